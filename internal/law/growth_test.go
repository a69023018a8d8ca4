package law

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

func TestSlope(t *testing.T) {
	type state struct {
		rate, ceiling, peak, price float64
		agreed, known, base        int
		measured                   int // for the price
		cost                       float64
	}
	for _, tt := range []struct {
		name string
		state
		want float64 // a second
	}{
		{"back over five calls", state{rate: 50, ceiling: 100, known: 999}, .4 * 100 / .05},
		{"back from further", state{rate: 1, ceiling: 100, known: 999}, .4 * 100 / .05},
		{"back to just below the ceiling", state{rate: 89.9, ceiling: 100, known: 999}, .4 * 100 / .05},
		{"probe from there on", state{rate: 90, ceiling: 100, known: 999}, 10. / 4},
		{"probe up to the ceiling", state{rate: 100, ceiling: 100, known: 999}, 10. / 4},
		{"probe over 128 calls", state{rate: .9, ceiling: 1, known: 999}, .1 / 128},
		{"probe over fewer that are known", state{rate: .9, ceiling: 1, known: 20}, .1 / 20},
		{"known since the measure began anew", state{rate: .9, ceiling: 1, known: 120, base: 100}, .1 / 20},
		{"probe over 8 at least", state{rate: .9, ceiling: 1, known: 1}, .1 / 8},
		{"probe over as many times more as cuts agree", state{rate: 1.9, ceiling: 2, known: 999, agreed: 3}, .2 / 256},
		{"five minutes at most", state{rate: .9, ceiling: 1, known: 999, agreed: 3}, .1 / 300},
		{"the same, without cuts that agree", state{rate: .095, ceiling: .1, known: 999}, .01 / 300},
		{"but no fewer than 8 calls", state{rate: .0095, ceiling: .01, known: 999, agreed: 3}, .001 / 800},
		{"four seconds times as many", state{rate: 90, ceiling: 100, known: 999, agreed: 3}, 10. / 16},
		{"ten times what a throttle costs", state{rate: 90, ceiling: 100, known: 999, measured: 999, price: 20}, 10. / 200},
		{"the same, by how many the ceiling was measured by", state{rate: 90, ceiling: 100, known: 999, measured: 64, price: 20}, 10. / 100},
		{"the same, by how many cuts agree", state{rate: 90, ceiling: 100, known: 999, measured: 999, price: 20, agreed: 1}, 10. / 400},
		{"calls that cost ten", state{rate: 50, ceiling: 100, known: 999, cost: 10}, .4 * 100 / .5},
		{"probe with calls that cost ten", state{rate: 90, ceiling: 100, known: 999, cost: 10}, 10. / 12.8},
		{"push on", state{rate: 110, ceiling: 100, known: 999}, 10. / 4 * 5},
		{"push on ever faster", state{rate: 200, ceiling: 100, known: 999}, 10. / 4 * 41},
		{"the way back is as quick where a throttle costs much", state{rate: 50, ceiling: 100, known: 999, measured: 999, price: 20}, .4 * 100 / .05},
		{"far below the peak", state{rate: 6, ceiling: 5, peak: 20, known: 999}, .1 * 10 / 12.8 * 9},
		{"far below the peak, probing", state{rate: 4.9, ceiling: 5, peak: 20, known: 999}, .1 * 10 / 12.8},
		{"just too far below the peak", state{rate: 6.9, ceiling: 5, peak: 10, known: 999}, .1 * 50 / 128 * (1 + 40*.38)},
		{"near the peak", state{rate: 7, ceiling: 5, peak: 10, known: 999}, .1 * 5 / 25.6 * 17},
		{"a peak below the ceiling", state{rate: 4.5, ceiling: 5, peak: 4, known: 999}, .1 * 5 / 25.6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := New(config())
			l.rate, l.ceiling, l.peak, l.price, l.agreed, l.cost = tt.rate, tt.ceiling, tt.peak, tt.price, tt.agreed, max(1, tt.cost)
			l.delivered.n, l.delivered.base, l.measured = tt.known, tt.base, tt.measured
			assert.InEpsilon(t, tt.want, l.slope(l.ceiling), 1e-9)
		})
	}
	l := New(config())
	l.rate, l.ceiling, l.Increase = 90, 100, .2
	assert.InEpsilon(t, 20./4, l.slope(100), 1e-9, "by the share that the owner chose")
	l.rate, l.Decrease = 50, .8
	assert.InEpsilon(t, .1*100*100/5, l.slope(100), 1e-9, "and back from where it cut to")
	l.rate, l.Increase = .5, 1
	assert.InEpsilon(t, 1./8, l.slope(1), 1e-9, "but no slower than probing")
}

// Each success pays for the time since growth was last paid out.
func TestGrow(t *testing.T) {
	const slope = 2.5 // at 90 below 100
	for _, tt := range []struct {
		name   string
		paid   time.Duration // since growth was
		held   time.Duration // since a call was held back
		resume time.Duration // since the end of a pause; 0 for none
		late   bool
		want   float64
		credit bool
	}{
		{"paid for", 10 * ms, 5 * ms, 0, false, slope * .01, true},
		{"four call intervals at most", time.Hour, ms, 0, false, slope * 4 / 90, true},
		{"held back at this moment", 10 * ms, 0, 0, false, slope * .01, true},
		{"held back before", 10 * ms, 20 * ms, 0, false, 0, false},
		{"held back when it was last paid", 10 * ms, 10 * ms, 0, false, 0, false},
		{"half of it in a pause", 10 * ms, 5 * ms, 5 * ms, false, slope * .005, true},
		{"all of it in a pause", 10 * ms, 5 * ms, -ms, false, 0, false},
		{"late", 10 * ms, 5 * ms, 0, true, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, now := New(config()), clock.Instant(2*time.Hour)
			l.rate, l.ceiling = 90, 100
			l.credit, l.heldAt = now-clock.Instant(tt.paid), now-clock.Instant(tt.held)
			if tt.resume != 0 {
				l.resume = now - clock.Instant(tt.resume)
			}
			was := l.credit
			l.grow(now, tt.late, 1)
			assert.InDelta(t, tt.want, l.rate-90, 1e-9)
			if tt.credit {
				was = now
			}
			assert.Equal(t, was, l.credit)
			assert.Equal(t, 100., l.ceiling)
		})
	}
}

func TestGrowTo(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		rate, ceiling, peak  float64
		spare, most          float64
		seconds, want, delta float64
	}{
		{"just below the ceiling, and no further at once", 10, 100, 0, 0, inf, .3, 90, 1e-9},
		{"the ceiling, and no further at once", 99.99, 100, 0, 0, inf, .03, 100, 1e-9},
		{"the maximum", 90, 100, 0, 0, 90.01, .01, 90.01, 0},
		{"beyond the ceiling", 100, 100, 0, 0, inf, .01, 100.025, 1e-9},
		{"by what a quota leaves, too", 90, 100, 0, 1, inf, .01, 90 + .025 + .05*90*math.Sqrt(90)*.01, 1e-9},
		{"beyond the ceiling by that", 99.99, 100, 0, 1, inf, .01, 100 + .05*99.99*math.Sqrt(99.99)*.01, 1e-3},
		// From 0.7 of the peak on by the peak: .4·10·10/5 = 8 a second.
		{"back to the peak", 7, .01, 10, 0, inf, .01, 7.08, 1e-9},
		{"back to the peak from a ceiling below it", 7, 5, 10, 0, inf, .01, 7.08, 1e-9},
		{"not quite there", 6.9, 5, 10, 0, inf, .01, 6.9 + .01*.1*math.Sqrt(50)/4*(1+40*.38), 1e-9},
		{"the peak, and no further at once", 9.99, .01, 10, 0, inf, .3, 10, .35},
		{"a ceiling near the peak", 7, 7, 10, 0, inf, .01, 7 + .01*.7/4, 1e-9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := clock.Instant(time.Hour)
			l := New(config())
			l.Max, l.rate, l.ceiling, l.peak, l.spare = tt.most, tt.rate, tt.ceiling, tt.peak, tt.spare
			l.heldAt, l.credit = now, now-clock.Instant(clock.CeilSeconds(tt.seconds))
			l.grow(now, false, 1)
			assert.InDelta(t, tt.want, l.rate, tt.delta)
		})
	}
}

// After a cut the rate is back at just below the ceiling within a few calls.
func TestGrowBackOverAFewCalls(t *testing.T) {
	for _, rate := range []float64{1000, 100, 1, .01} {
		d := paced(rate)
		d.rate /= 2
		calls := 0
		for ; d.Rate() < .9*rate-1e-9; calls++ {
			d.demand(1, clock.CeilSeconds(1/d.Rate()))
		}
		assert.LessOrEqual(t, calls, 5, "%v", rate)
		d.demand(5, clock.CeilSeconds(1/d.Rate()))
		assert.Less(t, d.Rate(), rate)
	}
}

func TestNoGrowthWithoutSuccess(t *testing.T) {
	for _, kind := range []Kind{Nothing, Passed} {
		d := paced(10)
		for range 10 {
			sent := d.after(50 * ms).send()
			d.Held(d.now)
			d.after(50 * ms).end(Attempt{Kind: kind, Sent: sent})
		}
		assert.Equal(t, 10., d.Rate(), "kind %d", kind)
	}
	d := paced(10)
	d.after(ms).succeed(10, 100*ms)
	was := d.Rate()
	d.succeed(100, 100*ms)
	assert.Equal(t, was, d.Rate(), "nobody wanted more")
}

func TestSpareGrowth(t *testing.T) {
	for _, tt := range []struct {
		name        string
		rate, spare float64
		cost        float64
		seconds     float64
		want        float64
	}{
		{"none", 100, 0, 1, 1, 0},
		{"for each call, by the root of the rate", 100, .1, 1, .1, .1 * .05 * 10 * 10},
		{"a slow process gains more of its rate", 1, .1, 1, .1, .1 * .05 * 1 * .1},
		{"for calls that cost four", 400, .1, 4, .1, 4 * .1 * .05 * 10 * 10},
		{"three tenths of the rate at most", 100, 1, 1, 10, 30},
	} {
		l := New(config())
		l.rate, l.spare, l.cost = tt.rate, tt.spare, tt.cost
		assert.InDelta(t, tt.want, l.spareGrowth(tt.seconds), 1e-9, tt.name)
	}
}

// A process that others kept down rises within minutes once they are gone, though its ceiling was
// found again and again.
func TestLowRateRisesWithinMinutes(t *testing.T) {
	d := paced(.15)
	d.agreed = agreeMost
	began := d.now
	for d.Rate() < 10 {
		d.demand(1, clock.CeilSeconds(1/d.Rate()))
	}
	assert.Less(t, d.now.Sub(began), 15*time.Minute)
}
