package swarm

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/replay"
)

// usual is how many seeds a usual test runs.
const usual = 500

// again is the line that plays a seed again.
func again(seed uint64) string {
	return fmt.Sprintf("SWARM_SEED=%d go test ./internal/swarm -run TestSwarm", seed)
}

// play runs one seed. A run that hangs panics, as the bubble sees that nothing can go on.
func play(seed uint64) (w *world, faults []string) {
	defer chance.Seed(seed)()
	w = &world{plan: newPlan(seed)}
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "\nplay it again: %s\n%v\n\n", again(seed), w.plan)
			panic(p)
		}
	}()
	// A bubble wants a test only to fail it, which nothing here does.
	synctest.Test(new(testing.T), func(*testing.T) { w.run() })
	return w, w.check()
}

func TestSwarm(t *testing.T) {
	replay.Alone(t)
	run := func(seed uint64) bool {
		w, faults := play(seed)
		if len(faults) > 0 {
			t.Errorf("%s\nplay it again: %s\n%v", strings.Join(faults[:min(5, len(faults))], "\n"), again(seed), w.plan)
		}
		return len(faults) == 0
	}
	if text := os.Getenv("SWARM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		if run(seed) && testing.Verbose() {
			w, _ := play(seed)
			t.Logf("%v\n%s", w.plan, strings.Join(w.trace(), "\n"))
		}
		return
	}
	for _, seed := range kept(t) {
		run(seed)
	}
	runs, first, most := usual, uint64(1), 1
	if testing.Short() || calm.Raced {
		runs /= 10
	}
	if text := os.Getenv("SWARM_RUNS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		runs, first, most = n, rand.Uint64N(1<<53), 10
	}
	for i, failed := 0, 0; i < runs && failed < most; i++ {
		if !run(first + uint64(i)) {
			failed++
		}
	}
}

// kept are the seeds that once failed.
func kept(t *testing.T) (seeds []uint64) {
	file, err := os.Open("testdata/seeds.txt")
	require.NoError(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, _, _ := strings.Cut(lines.Text(), "#"); strings.TrimSpace(text) != "" {
			seed, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
			require.NoError(t, err, lines.Text())
			seeds = append(seeds, seed)
		}
	}
	return seeds
}

// A seed is worth keeping only if it plays the same run again.
func TestSeedPlaysTheSameRunAgain(t *testing.T) {
	replay.Alone(t)
	for seed := uint64(1); seed <= 40; seed++ {
		first, _ := play(seed)
		second, _ := play(seed)
		a, b := first.trace(), second.trace()
		same := 0
		for same < min(len(a), len(b)) && a[same] == b[same] {
			same++
		}
		require.Equal(t, a[same:min(len(a), same+3)], b[same:min(len(b), same+3)], "%s\n%v", again(seed), first.plan)
	}
}
