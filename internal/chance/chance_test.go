package chance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func draw() (all []any) {
	for range 20 {
		all = append(all, Float64(), N(1000), N(time.Hour))
	}
	return all
}

func TestSeed(t *testing.T) {
	unseeded := draw()
	restore := Seed(1)
	first := draw()
	within := Seed(2)
	other := draw()
	within()
	next := draw()
	restore()
	again := draw()
	defer Seed(1)()
	assert.Equal(t, first, draw(), "the same seed")
	assert.Equal(t, next, draw(), "which another one in between does not disturb")
	assert.NotEqual(t, first, other, "another seed")
	assert.NotEqual(t, unseeded, again, "no seed")
}

func TestBounds(t *testing.T) {
	for name, seed := range map[string]func() func(){
		"seeded": func() func() { return Seed(1) },
		"global": func() func() { return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			defer seed()()
			least, most := 10, 0
			lowest, highest := time.Hour, time.Duration(0)
			for range 1000 {
				n, f := N(10), Float64()
				least, most = min(least, n), max(most, n)
				half := UpperHalf(10)
				lowest, highest = min(lowest, half), max(highest, half)
				assert.True(t, 0 <= f && f < 1, "%v", f)
			}
			assert.Equal(t, [2]int{0, 9}, [2]int{least, most})
			assert.Equal(t, [2]time.Duration{5, 10}, [2]time.Duration{lowest, highest}, "from half of it to all of it")
			assert.Zero(t, N(time.Duration(1)))
		})
	}
}

func BenchmarkFloat64(b *testing.B) {
	for b.Loop() {
		Float64()
	}
}
