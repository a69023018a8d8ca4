// Package calm is for tests on real time, which are about moments that a machine
// misses when it stands still: one that is shared stops all its programs at times,
// for most of a second.
package calm

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
		}
		late <- longest
	}()
	return func() time.Duration { close(done); return <-late }
}

// SecondRun is the variable of the environment that is set in a second run.
const SecondRun = "CRUISE_TEST_SECOND_RUN"

// Log is the variable that names a file to which a second run is noted, since the go
// command shows nothing of a package that passes.
const Log = "CRUISE_TEST_SECOND_RUNS"

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
	note := fmt.Sprintf("%s failed while the machine stood still for %v: once more\n", filepath.Base(os.Args[0]), stood.Round(time.Millisecond))
	fmt.Print(note)
	if f, err := os.OpenFile(os.Getenv(Log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		_, _ = f.WriteString(note)
		_ = f.Close()
	}
	// The first run wrote the files that the go command asked for.
	cmd := exec.Command(os.Args[0], append(os.Args[1:], "-test.testlogfile=", "-test.coverprofile=")...)
	cmd.Env = append(os.Environ(), SecondRun+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if cmd.Run() != nil {
		return 1
	}
	return 0
}
