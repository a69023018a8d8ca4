//go:build unix

package calm_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/calm"
)

func TestMain(m *testing.M) { os.Exit(calm.Run(m)) }

// What TestRun asks of the tests of a process: the words "stop", "fail" and "always".
const wanted = "CRUISE_TEST_WANTED"

func TestAsWanted(t *testing.T) {
	words, ok := os.LookupEnv(wanted)
	if !ok {
		t.Skip("TestRun asks for nothing")
	}
	has := func(word string) bool { return strings.Contains(words, word) }
	if has("stop") {
		require.NoError(t, exec.Command("sh", "-c", "kill -STOP $PPID; sleep 0.3; kill -CONT $PPID").Run())
	}
	first := os.Getenv(calm.SecondRun) == ""
	assert.False(t, has("fail") && first || has("always"))
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name, wanted string
		runs         int
		passes       bool
	}{
		{"passes", "", 1, true},
		{"passes though the machine stood still", "stop", 1, true},
		{"fails", "fail", 1, false},
		{"fails as the machine stands still", "stop fail", 2, true},
		{"fails in both runs", "stop always", 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestAsWanted$", "-test.v")
			log := filepath.Join(t.TempDir(), "log")
			cmd.Env = append(os.Environ(), wanted+"="+c.wanted, calm.SecondRun+"=", calm.Log+"="+log)
			out, err := cmd.CombinedOutput()
			assert.Equal(t, c.passes, err == nil, "%s", out)
			assert.Equal(t, c.runs, bytes.Count(out, []byte("=== RUN   TestAsWanted")), "%s", out)
			noted, _ := os.ReadFile(log)
			assert.Equal(t, c.runs-1, bytes.Count(noted, []byte("once more\n")))
		})
	}
}
