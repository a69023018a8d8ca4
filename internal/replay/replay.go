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

// Test seeds the test, and runs f in a bubble of testing/synctest.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	Seed(t)
	synctest.Test(t, f)
}

// Seed makes the rest of the test follow from the seed. A test that fails says how to play it again.
func Seed(t *testing.T) {
	t.Helper()
	Alone(t)
	seed, err := seedOf(os.Getenv(Variable))
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	t.Cleanup(chance.Seed(seed))
	t.Cleanup(func() {
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
