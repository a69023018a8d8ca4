package replay

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/chance"
)

// order is in which order callers get through that sleep at random.
func order(t *testing.T) (all []int) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			for range 20 {
				Sleep(chance.N(3 * time.Millisecond))
				mu.Lock()
				all = append(all, i)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return all
}

func TestSeedRepeatsATest(t *testing.T) {
	if calm.Raced {
		t.Skip("the race detector shuffles goroutines")
	}
	play := func(seed string) (first, second []int) {
		t.Run(seed, func(t *testing.T) {
			t.Setenv(Variable, seed)
			Test(t, func(t *testing.T) { first = order(t) })
			Test(t, func(t *testing.T) { second = order(t) })
		})
		return first, second
	}
	first, second := play("7")
	again, secondAgain := play("7")
	other, _ := play("8")
	assert.Equal(t, first, again, "the same seed")
	assert.Equal(t, second, secondAgain, "the second run")
	assert.NotEqual(t, first, second, "two runs of one test")
	assert.NotEqual(t, first, other, "another seed")
}

func TestSeedOf(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want uint64
		ok   bool
	}{
		"none":     {"", 1, true},
		"a number": {"42", 42, true},
		"a word":   {"seven", 0, false},
		"negative": {"-1", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := seedOf(tt.text)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.ok, err == nil)
		})
	}
	a, errA := seedOf("random")
	b, errB := seedOf("random")
	assert.NoError(t, errA)
	assert.NoError(t, errB)
	assert.NotEqual(t, a, b)
}
