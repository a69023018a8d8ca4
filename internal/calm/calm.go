// Package calm is for tests on real time, which are about moments that a machine
// misses when it stands still: one that is shared stops all its programs at times,
// for most of a second.
package calm

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Stood is how long a machine stands still before its test results mean nothing.
const Stood = 100 * time.Millisecond

var late atomic.Int64

// Late returns by how much a goroutine of this process woke up too late at most, since Run
// began: bounds of times that a test measures have to allow for it.
func Late() time.Duration { return time.Duration(late.Load()) }

// Watch looks how late a goroutine wakes up on this machine, until it is stopped, which
// tells the longest.
func Watch() (stop func() time.Duration) {
	const nap = 5 * time.Millisecond
	done, result := make(chan struct{}), make(chan time.Duration)
	timer, last := time.NewTimer(nap), time.Now() // here, since the goroutine itself may begin late
	go func() {
		var longest time.Duration
		for over := false; !over; timer.Reset(nap) {
			select {
			case <-done:
				over = true
			case <-timer.C:
			}
			now := time.Now()
			longest, last = max(longest, now.Sub(last)-nap), now
			for was := late.Load(); int64(longest) > was && !late.CompareAndSwap(was, int64(longest)); {
				was = late.Load()
			}
		}
		result <- longest
	}()
	return func() time.Duration { close(done); return <-result }
}

// Before is the variable of the environment that says how many runs there were before
// this one.
const Before = "CRUISE_TEST_RUNS_BEFORE"

// Log is the variable that names a file to which further runs are noted, since the go
// command shows nothing of a package that passes.
const Log = "CRUISE_TEST_FURTHER_RUNS"

const mostRuns = 3

// Run is m.Run for a TestMain. If tests fail and the machine stood still meanwhile, it runs the
// failed tests again, in three runs at most. The last run decides.
func Run(m *testing.M) (code int) {
	Watch()
	before, _ := strconv.Atoi(os.Getenv(Before))
	if before+1 >= mostRuns || flag.Lookup("test.fuzz").Value.String() != "" {
		return m.Run()
	}
	code, failed := watched(m)
	stood := Late()
	if code == 0 || stood < Stood {
		return code
	}
	note := fmt.Sprintf("%s: %s failed while the machine stood still for %v: once more\n",
		filepath.Base(os.Args[0]), strings.Join(failed, ", "), stood.Round(time.Millisecond))
	fmt.Print(note)
	if f, err := os.OpenFile(os.Getenv(Log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		_, _ = f.WriteString(note)
		_ = f.Close()
	}
	// The first run wrote the files that the go command asked for.
	args := append(os.Args[1:], "-test.testlogfile=", "-test.coverprofile=")
	if len(failed) > 0 { // else TestMain failed, or the output was not read
		args = append(args, "-test.run=^("+strings.Join(failed, "|")+")$")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), Before+"="+strconv.Itoa(before+1))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if cmd.Run() != nil {
		return 1
	}
	return 0
}

// failure is the line that a test prints at its end. Package testing tells of it in no
// other way. The first character is there with -test.v=test2json.
var failure = regexp.MustCompile(`(?m)^\x16?--- FAIL: (\w+) `)

// watched is m.Run, and returns the failed tests where there is a command tee. A goroutine that
// copied the output would lose its last part when a test panics.
func watched(m *testing.M) (code int, failed []string) {
	printed, err := os.CreateTemp("", "calm")
	if err != nil {
		return m.Run(), nil
	}
	defer printed.Close()
	_ = os.Remove(printed.Name())
	r, w, err := os.Pipe()
	if err != nil {
		return m.Run(), nil
	}
	stdout := os.Stdout
	tee := exec.Command("tee", "/dev/fd/3")
	tee.Stdin, tee.Stdout, tee.Stderr, tee.ExtraFiles = r, stdout, os.Stderr, []*os.File{printed}
	if err = tee.Start(); err == nil {
		os.Stdout = w
	}
	_ = r.Close()
	code = m.Run()
	os.Stdout = stdout
	_ = w.Close()
	if err != nil || tee.Wait() != nil {
		return code, nil
	}
	text, _ := io.ReadAll(io.NewSectionReader(printed, 0, math.MaxInt64))
	for _, name := range failure.FindAllSubmatch(text, -1) {
		if name := string(name[1]); !slices.Contains(failed, name) {
			failed = append(failed, name)
		}
	}
	return code, failed
}
