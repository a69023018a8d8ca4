// Package replay plays tests in virtual time so that a seed repeats them: goroutines run one at a
// time, and all jitter follows from the seed. A test draws its own random numbers from package
// chance too, and its servers answer after a [Sleep].
//
// Three things stay beyond a seed: a machine that stops the program for 10 ms and more, the race
// detector, which shuffles goroutines, and another version of Go.
package replay

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a7df5faa/cruise/internal/chance"
)

// Variable is the environment variable that gives the seed: a whole number, or "random".
// Without it the seed is 1, so that a test that passes once passes always.
const Variable = "CRUISE_SEED"

// Test runs f in a bubble of testing/synctest. A test that fails says how to play it again. Runs of
// one test differ, as the seed is that of all of them.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if seeded != t {
		seed(t)
	}
	synctest.Test(t, f)
}

// seeded is the test whose runs follow from a seed now.
var seeded *testing.T

func seed(t *testing.T) {
	Alone(t)
	seed, err := seedOf(os.Getenv(Variable))
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	was := seeded
	seeded = t
	restore := chance.Seed(seed)
	t.Cleanup(func() {
		seeded = was
		restore()
		if t.Failed() {
			t.Logf("play it again: %s=%d go test -run '^%s$'", Variable, seed, t.Name())
		}
	})
}

func seedOf(text string) (uint64, error) {
	switch text {
	case "":
		return 1, nil
	case "random":
		return rand.Uint64N(1 << 53), nil
	}
	return strconv.ParseUint(text, 10, 64)
}

// Alone makes goroutines run one at a time until the test ends, in an order that the same seed
// repeats. Tests that run beside it must not count on more.
func Alone(t *testing.T) {
	procs := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
}

// Sleep waits for d, and for a time too short to matter that keeps goroutines from waking up at the
// same instant, where their order follows from no seed.
func Sleep(d time.Duration) { time.Sleep(d + chance.N(100*time.Microsecond)) }
