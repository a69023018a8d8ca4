//go:build unix

package calm_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/calm"
)

func TestMain(m *testing.M) { os.Exit(calm.Run(m)) }

// What TestRun asks of the tests of a process: the words "stop", "panic", and "fail" with the
// number of runs that are to fail.
const wanted = "CRUISE_TEST_WANTED"

func TestAsWanted(t *testing.T) {
	words, ok := os.LookupEnv(wanted)
	if !ok {
		t.Skip("TestRun asks for nothing")
	}
	if strings.Contains(words, "stop") {
		require.NoError(t, exec.Command("sh", "-c", "kill -STOP $PPID; sleep 0.3; kill -CONT $PPID").Run())
		assert.Eventually(t, func() bool { return calm.Late() > 200*time.Millisecond }, time.Minute, time.Millisecond)
	}
	if words == "panic" {
		fmt.Println("the last words")
		panic("as wanted")
	}
	before, _ := strconv.Atoi(os.Getenv(calm.Before))
	_, fail, _ := strings.Cut(words, "fail ")
	runs, _ := strconv.Atoi(fail)
	t.Run("part", func(t *testing.T) { assert.GreaterOrEqual(t, before, runs) })
}

// Beside a test that fails this one is run once.
func TestBesideIt(*testing.T) {}

func TestAPanicLosesNothingThatWasPrinted(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestAsWanted$")
	cmd.Env = append(os.Environ(), wanted+"=panic", calm.Before+"=")
	out, err := cmd.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), "the last words\n")
	assert.Contains(t, string(out), "--- FAIL: TestAsWanted")
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name, wanted string
		runs         int
		passes       bool
	}{
		{"passes", "", 1, true},
		{"passes though the machine stood still", "stop", 1, true},
		{"fails", "fail 1", 1, false},
		{"fails as the machine stands still", "stop fail 1", 2, true},
		{"fails as it stands still again", "stop fail 2", 3, true},
		{"fails in all runs", "stop fail 3", 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^(TestAsWanted|TestBesideIt)$", "-test.v")
			log := filepath.Join(t.TempDir(), "log")
			cmd.Env = append(os.Environ(), wanted+"="+c.wanted, calm.Before+"=", calm.Log+"="+log)
			out, err := cmd.CombinedOutput()
			assert.Equal(t, c.passes, err == nil, "%s", out)
			assert.Equal(t, c.runs, bytes.Count(out, []byte("=== RUN   TestAsWanted\n")), "%s", out)
			assert.Equal(t, 1, bytes.Count(out, []byte("=== RUN   TestBesideIt\n")), "%s", out)
			noted, _ := os.ReadFile(log)
			assert.Equal(t, c.runs-1, bytes.Count(noted, []byte(": TestAsWanted failed while")))
		})
	}
}
