// Package calm is for tests on real time, which are about moments that a machine
// misses when it stands still: one that is shared stops all its programs at times,
// for most of a second.
package calm

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Stood is how long a machine stands still before what tests find on it means
// nothing.
const Stood = 100 * time.Millisecond

// Watch looks how late a goroutine wakes up on this machine, until it is stopped, which
// tells the longest.
func Watch() (stop func() time.Duration) {
	const nap = 5 * time.Millisecond
	done, late := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for {
			before := time.Now()
			select {
			case <-done:
				late <- longest
				return
			case <-time.After(nap):
				longest = max(longest, time.Since(before)-nap)
			}
		}
	}()
	return func() time.Duration { close(done); return <-late }
}

// SecondRun is the variable of the environment that is set in a second run.
const SecondRun = "CRUISE_TEST_SECOND_RUN"

// Run is m.Run for a TestMain. If tests fail, and the machine stood still meanwhile,
// it runs all of the package once more, and the second run decides.
func Run(m *testing.M) (code int) {
	if os.Getenv(SecondRun) != "" {
		return m.Run()
	}
	stop := Watch()
	code = m.Run()
	stood := stop()
	if code == 0 || stood < Stood || flag.Lookup("test.fuzz").Value.String() != "" {
		return code
	}
	fmt.Printf("the machine stood still for %v: all tests once more\n", stood.Round(time.Millisecond))
	// The first run wrote the files that the go command asked for.
	cmd := exec.Command(os.Args[0], append(os.Args[1:], "-test.testlogfile=", "-test.coverprofile=")...)
	cmd.Env = append(os.Environ(), SecondRun+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if cmd.Run() != nil {
		return 1
	}
	return 0
}
