package law

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

// run is some calls, one after another.
type run struct {
	n   int
	gap time.Duration
}

func TestCutToHalfOfTheLesser(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rate    float64
		runs    []run
		ceiling float64
	}{
		{"what was delivered", 1000, []run{{20, 100 * ms}}, 10},
		{"the rate", 4, []run{{20, 100 * ms}}, 4},
		{"the last 32 if they were slower", 1000, []run{{100, 100 * ms}, {40, 200 * ms}}, 32 / 6.2},
		{"the last 128, but for ways back, if they were slower", 1000, []run{{100, 200 * ms}, {40, 100 * ms}}, 128 / 21.4 / .95},
		{"not what came before them", 1000, []run{{1000, time.Second}, {128, 100 * ms}}, 32 / 3.1},
		{"without a rate, the last 32 though they were faster", inf, []run{{100, 200 * ms}, {40, 100 * ms}}, 32 / 3.1},
		{"without a rate, half a second where the last 32 came at one moment", inf, []run{{100, 100 * ms}, {40, 0}}, 46 / .5},
		{"two seconds where the last 128 came in less", 1000, []run{{200, 20 * ms}, {100, ms}}, 196 / 2. / .95},
		{"without a rate, half a second where the last 32 came in less", inf, []run{{200, 20 * ms}, {100, ms}}, 121 / .5},
		{"without a rate, a few", inf, []run{{3, 100 * ms}}, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := unpaced()
			d.SetRate(d.now, tt.rate)
			d.Held(d.now)
			for _, r := range tt.runs {
				d.succeed(r.n, r.gap)
			}
			assert.InEpsilon(t, tt.ceiling, min(tt.rate, d.Delivered(d.now)), .01)
			d.throttle(0)
			assert.InEpsilon(t, tt.ceiling, d.ceiling, .01)
			assert.InEpsilon(t, tt.ceiling/2, d.Rate(), .01)
		})
	}
}

// Without anything to go by there is no rate yet.
func TestCutWithoutAMeasure(t *testing.T) {
	d := unpaced()
	assert.Equal(t, inf, d.Delivered(d.now))
	d.succeed(40, 0)
	d.throttle(0)
	assert.Equal(t, inf, d.Rate())
	d.after(time.Second).succeed(40, 100*ms)
	d.throttle(0)
	assert.InDelta(t, 16/3.1, d.Rate(), .01)
}

func TestCutByCost(t *testing.T) {
	d := paced(1000)
	for range 20 {
		sent := d.send()
		d.delivered.busy(d.now)
		d.after(100 * ms).end(Attempt{Kind: Success, Sent: sent, Cost: 10})
	}
	d.throttle(0)
	assert.InEpsilon(t, 50, d.Rate(), 1e-6)
}

// What failed otherwise was let through.
func TestCutCountsWhatPassed(t *testing.T) {
	d := paced(10)
	d.succeed(1, 100*ms)
	d.rate = 20
	for i := range 30 {
		sent := d.send()
		d.delivered.busy(d.now)
		d.after(100 * ms).end(Attempt{Kind: Success - Kind(i%2), Sent: sent})
	}
	d.throttle(0)
	assert.InEpsilon(t, 5, d.Rate(), .05)
}

func TestCutWithinBounds(t *testing.T) {
	for _, tt := range []struct {
		name          string
		low, high     float64
		rate, ceiling float64
	}{
		{"no bound", .001, inf, 5, 10},
		{"the minimum", 7, inf, 7, 10},
		{"the ceiling is no lower than the rate", 20, inf, 20, 20},
		{"the maximum", .001, 3, 3, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &driver{Law: New(Config{Min: tt.low, Max: tt.high, Decrease: .5, Increase: .1}), now: 1}
			d.succeed(20, 100*ms)
			d.throttle(0)
			assert.InEpsilon(t, tt.rate, d.Rate(), 1e-6)
			assert.InEpsilon(t, tt.ceiling, d.ceiling, 1e-6)
		})
	}
	d := paced(1000)
	d.Decrease = .8
	d.succeed(20, 100*ms)
	d.throttle(0)
	assert.InEpsilon(t, 8, d.Rate(), 1e-6, "by the factor that the owner chose")
}

// A congestion cuts once.
func TestCutNeedsASuccess(t *testing.T) {
	d := paced(100)
	d.throttle(0)
	assert.Equal(t, 100., d.Rate(), "nothing has got through")
	d.succeed(20, 100*ms)
	d.end(Attempt{Kind: Throttle, Sent: d.send(), Late: true})
	assert.Equal(t, 100., d.Rate(), "a late one")
	d.throttle(0)
	is := d.Rate()
	assert.InDelta(t, 5, is, .2)
	for range 3 {
		d.after(time.Second).throttle(0)
		d.end(Attempt{Kind: Passed, Sent: d.send()})
	}
	assert.Equal(t, is, d.Rate(), "a server that is closed says nothing of the rate")
	d.end(Attempt{Kind: Success, Sent: d.send(), Late: true})
	d.throttle(0)
	assert.Less(t, d.Rate(), is, "any success is one")
}

// Time before a cut earns nothing after it.
func TestCutPaysNoGrowth(t *testing.T) {
	d := paced(100)
	d.succeed(20, 100*ms)
	d.Held(d.now)
	d.throttle(0)
	d.after(time.Second).end(Attempt{Kind: Success, Sent: d.send()})
	assert.InDelta(t, 5, d.Rate(), 1e-6)
	assert.Equal(t, d.now-clock.Instant(time.Second), d.credit)
}

// Cuts that find the ceiling where it was agree.
func TestCutAgrees(t *testing.T) {
	for _, tt := range []struct {
		name    string
		ceiling float64 // before a cut at 10
		was     int
		want    int
	}{
		{"a tenth above", 11.1, 1, 2},
		{"more above", 11.2, 1, 0},
		{"a tenth below", 9.1, 1, 2},
		{"more below", 9.05, 1, 0},
		{"three at most", 10, 3, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(1000)
			d.succeed(20, 100*ms)
			d.ceiling, d.agreed = tt.ceiling, tt.was
			d.throttle(0)
			assert.InEpsilon(t, 10, d.ceiling, 1e-6)
			assert.Equal(t, tt.want, d.agreed)
		})
	}
	d := unpaced()
	d.succeed(20, 100*ms)
	d.throttle(0)
	assert.Zero(t, d.agreed, "there was none to agree with")
}

// The peak is the most that was delivered over 128 calls or more.
func TestCutKeepsThePeak(t *testing.T) {
	for _, tt := range []struct {
		name  string
		calls int
		was   float64
		want  float64
	}{
		{"too few", 127, 0, 0},
		{"enough", 128, 0, 10},
		{"it fades", 127, 20, 19},
		{"it fades, and is more", 128, 20, 19},
		{"it is less", 128, 8, 10},
		{"what is below the ceiling does not fade", 127, 8, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(1000)
			d.succeed(tt.calls, 100*ms)
			d.peak = tt.was
			d.throttle(0)
			assert.InDelta(t, tt.want, d.peak, .1)
		})
	}
}

// Few calls before the first cut go at the speed of a full bucket.
func TestBurstBeforeTheFirstCutIsNoPeak(t *testing.T) {
	d := unpaced()
	d.succeed(120, ms)
	d.throttle(0)
	d.succeed(20, 500*ms)
	d.throttle(0)
	assert.Zero(t, d.peak, "20 calls since then")
	d.succeed(128, 500*ms)
	d.throttle(0)
	assert.InDelta(t, 2, d.peak, .1)
}

// The calls of a window go fast, and the next ones have to wait for the reset.
func TestBurstOfAWindowIsNoPeak(t *testing.T) {
	d := paced(1000)
	for range 10 {
		d.succeed(500, 10*ms)
		d.throttle(55 * time.Second)
		d.after(55 * time.Second)
	}
	assert.InDelta(t, 500/60., d.peak, 5, "in the long run it is 8 a second")
	was := d.peak
	d.succeed(100, 10*ms)
	d.throttle(0)
	assert.LessOrEqual(t, d.peak, was, "too few calls")
}

// A throttle while the rest of a window is spread is measured against the rate of before, and
// cuts that.
func TestCutWhileSpread(t *testing.T) {
	for _, tt := range []struct {
		name                    string
		rate, unspread          float64
		ceiling, after, renewed float64
	}{
		{"what was delivered", 1, 100, 10, 1, 5},
		{"the rate of before", 1, 4, 4, 1, 2},
		{"both rates", 1, 1.5, 1.5, .75, .75},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(1000)
			d.succeed(20, 100*ms)
			d.rate, d.unspread = tt.rate, tt.unspread
			d.throttle(0)
			assert.InEpsilon(t, tt.ceiling, d.ceiling, 1e-6)
			assert.InEpsilon(t, tt.after, d.Rate(), 1e-6)
			assert.InEpsilon(t, tt.renewed, d.unspread, 1e-6)
		})
	}
}

// The price of a throttle counts by how many calls measured the ceiling.
func TestCallsThatMeasureTheCeiling(t *testing.T) {
	d := paced(1000)
	assert.Equal(t, memoryLong, d.measured, "the owner knows it")
	d.succeed(20, 100*ms)
	d.throttle(0)
	assert.Equal(t, 20, d.measured, "a cut")
	d.Settle()
	assert.Equal(t, memoryLong, d.measured, "others know it")

	d = paced(100)
	d.delivered.busy(d.now)
	window{50, 8 * time.Second, 4 * time.Second}.pass(d)
	assert.Equal(t, 51, d.measured, "a closing")
}

// A bucket that was full flatters, but not twice.
func TestCutForgetsTheBurst(t *testing.T) {
	for calls, left := range map[int]int{8: 8, 9: 0, 200: 0} {
		d := paced(1000)
		d.succeed(calls, 100*ms)
		d.throttle(0)
		assert.Equal(t, left, d.delivered.counted(), "%d calls", calls)
		d.succeed(20, 100*ms)
		d.throttle(0)
		assert.Equal(t, left+20, d.delivered.counted(), "%d calls, the second time", calls)
	}
}

// Undo takes back what a run of throttles taught, and no more.
func TestUndo(t *testing.T) {
	cuts := func(n int) *driver {
		d := paced(100)
		d.peak, d.run = 50, 7
		for range n {
			d.succeed(100, 10*ms)
			d.throttle(0)
		}
		return d
	}
	for _, n := range []int{1, 2, 9} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			d := cuts(n)
			assert.Less(t, d.Rate(), 100.)
			d.Undo(7)
			assert.InEpsilon(t, 100, d.Rate(), .1)
			assert.InEpsilon(t, 100, d.ceiling, .1)
			assert.Equal(t, 50., d.peak)
		})
	}
	t.Run("no run before", func(t *testing.T) {
		d := cuts(2)
		was := d.Rate()
		d.run = 8
		d.succeed(100, 10*ms)
		d.throttle(0)
		d.Undo(8)
		assert.InEpsilon(t, was, d.Rate(), .3)
	})
	t.Run("no other run", func(t *testing.T) {
		d := cuts(2)
		was := *d.Law
		d.Undo(8)
		assert.Equal(t, was.rate, d.Rate())
		assert.Equal(t, was.ceiling, d.ceiling)
	})
	t.Run("no throttle of no run", func(t *testing.T) {
		d := paced(100)
		d.succeed(100, 10*ms)
		d.throttle(0)
		was := *d.Law
		d.Undo(0)
		assert.Equal(t, was.rate, d.Rate())
		assert.Equal(t, was.ceiling, d.ceiling)
	})
	t.Run("once", func(t *testing.T) {
		d := cuts(2)
		d.Undo(7)
		d.rate = 10
		d.Undo(7)
		assert.Equal(t, 10., d.Rate())
	})
	t.Run("not what is set since", func(t *testing.T) {
		d := cuts(2)
		d.SetRate(d.now, 10)
		d.Undo(7)
		assert.Equal(t, 10., d.Rate())
	})
	t.Run("no slower than it has become", func(t *testing.T) {
		d := cuts(1)
		d.rate = 300
		d.Undo(7)
		assert.Equal(t, 300., d.Rate())
	})
	t.Run("the first cut of all", func(t *testing.T) {
		d := unpaced()
		d.run = 7
		d.succeed(40, 100*ms)
		d.throttle(0)
		d.Undo(7)
		assert.Equal(t, inf, d.Rate())
		assert.Greater(t, d.window, 1.)
	})
}
