package law

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Throttles that come alone, whatever the rate is, do not bring it down to nothing.
func TestThrottlesByChance(t *testing.T) {
	after := func(calls int, chance float64, seed uint64) float64 {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := paced(100)
		d.Max = 100
		for range calls {
			if rng.Float64() < chance {
				d.throttle(0)
				d.Rest(d.now, Attempt{Kind: Throttle}, 2*time.Duration(float64(time.Second)/d.Rate()), false)
				d.after(2 * time.Duration(float64(time.Second)/d.Rate()))
			}
			d.demand(1, time.Duration(float64(time.Second)/d.Rate()))
		}
		return d.Rate()
	}
	for _, tt := range []struct {
		chance, least float64
	}{{.001, 80}, {.005, 40}, {.01, 20}} {
		mean := 0.
		for seed := range uint64(20) {
			mean += after(40_000, tt.chance, seed) / 20
		}
		assert.Greater(t, mean, tt.least, "%v", tt.chance)
	}
}

func TestByChance(t *testing.T) {
	alone := func(n int) *driver {
		d := paced(100)
		d.ceiling, d.peak, d.chance.alone = 60, 100, n-1
		d.fresh = 2 * memoryLeast
		return d
	}
	assert.True(t, alone(memoryLeast).byChance(), "eight in a row")
	assert.False(t, alone(memoryLeast-1).byChance(), "seven")
	for name, change := range map[string]func(*driver){
		"sooner after the last":       func(d *driver) { d.fresh-- },
		"others that are late":        func(d *driver) { d.chance.late = 1 },
		"a long pause asked for":      func(d *driver) { d.price = .021 },
		"nothing got through":         func(d *driver) { d.fresh = 0 },
		"a ceiling close to the peak": func(d *driver) { d.ceiling = 70 },
	} {
		d := alone(2 * memoryLeast)
		change(d)
		assert.False(t, d.byChance(), name)
		if d.ceiling == 60 {
			assert.Equal(t, memoryLeast-1, d.chance.alone, name)
		}
	}

	many := alone(2*memoryLeast + 1)
	assert.True(t, many.byChance())
	assert.Equal(t, 2*memoryLeast, many.chance.alone, "two bunches are enough to doubt it, however many came alone")

	d := alone(memoryLeast)
	d.throttle(0)
	assert.Equal(t, []float64{100, 60}, []float64{d.Rate(), d.ceiling}, "it cuts nothing")
	d.throttle(0)
	assert.Equal(t, 60., d.ceiling, "nor does the next one, which only pauses")
	d.succeed(20, 100*ms)
	d.throttle(0)
	assert.Less(t, d.Rate(), 60., "both count against the one after them")

	late := alone(memoryLeast)
	late.end(Attempt{Kind: Throttle, Late: true, Count: 3})
	assert.Equal(t, 3, late.chance.late)
	assert.False(t, late.byChance())
	assert.Zero(t, late.chance.late)
	late.chance.late = -1
	assert.NotPanics(t, func() { late.byChance() }, "a store may tell anything")
	late.SetRate(late.now, 5)
	assert.Zero(t, late.chance)
}
