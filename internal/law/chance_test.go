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
	}{{.001, 80}, {.005, 40}, {.01, 20}, {.05, 20}, {.1, 5}} {
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
		"a ceiling close to the peak": func(d *driver) { d.ceiling = 70 },
	} {
		d := alone(2 * memoryLeast)
		change(d)
		assert.False(t, d.byChance(), name)
		if d.ceiling == 60 {
			assert.Equal(t, 2*memoryLeast-3, d.chance.alone, name)
		}
	}

	many := alone(2*memoryLeast + 1)
	assert.True(t, many.byChance())
	assert.Equal(t, 2*memoryLeast, many.chance.alone, "five bunches are enough to doubt it, however many came alone")

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

// Cuts are in vain if each of many lowers the ceiling, and throttles stay frequent.
func TestCutsInVain(t *testing.T) {
	sunk := func(cuts int, apart float64) *driver {
		d := paced(100)
		d.apart = apart
		for range cuts {
			was := d.ceiling
			d.ceiling *= .9
			d.sink(was)
		}
		return d
	}
	assert.Equal(t, 20., sunk(2*memoryLeast, 20).vain)
	assert.Zero(t, sunk(2*memoryLeast-1, 20).vain, "too few")
	assert.Zero(t, sunk(2*memoryLeast, 3*memoryLeast+1).vain, "rare")
	assert.Zero(t, sunk(2*memoryLeast, memoryLeast-1).vain, "the server is closed")
	risen := sunk(2*memoryLeast-1, 20)
	risen.sink(risen.ceiling)
	assert.Equal(t, 2*memoryLeast-5, risen.sunk, "a ceiling that is no lower")

	known := sunk(2*memoryLeast, 20)
	for range 2*memoryLeast + 1 {
		known.apart = 10
		known.sink(known.ceiling + 1)
	}
	assert.Equal(t, 20., known.vain, "more of them would count as chance each time")
	known.vain = 0
	known.sink(known.ceiling + 1)
	assert.Zero(t, known.vain, "it takes as many cuts again")

	in := func(apart float64, fresh int) (*driver, bool) {
		d := sunk(2*memoryLeast, 20)
		d.apart, d.fresh = apart, fresh
		return d, d.byChance()
	}
	_, is := in(20, 1)
	assert.True(t, is, "one that follows soon")
	d, is := in(15, 2)
	assert.False(t, is, "they come far more often, so it is congestion")
	assert.Equal(t, []float64{20, 20}, []float64{d.apart, d.vain}, "but go on to come by chance")
	d, is = in(80, 100)
	assert.False(t, is)
	assert.Zero(t, d.vain, "they have become rare")

	d, _ = in(20, 20)
	d.throttle(0)
	assert.Equal(t, 100., d.Rate(), "it cuts nothing")
	for range 3 {
		d.throttle(0)
	}
	assert.Equal(t, []float64{20, 20}, []float64{d.apart, d.vain}, "without a success in between they decide nothing")
	assert.Equal(t, 3, d.chance.late, "and count against the next")
	d.fresh = 4
	d.throttle(0)
	assert.Equal(t, 20+(1-20)/8., d.apart)
	d.SetRate(d.now, 5)
	assert.Zero(t, d.chance)
}
