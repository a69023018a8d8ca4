package cruise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A lawDriver drives a law at explicit times, with steps of its rules rather than
// of its constants.
type lawDriver struct {
	law *aimd
	now clock.Instant
}

func newLawDriver(low, high float64) *lawDriver {
	pause := brake{backoff: steadyPause, forgive: defaultForgive}
	return &lawDriver{newAIMD(aimdConfig{min: low, max: high, decrease: 0.5, increase: 0.1}, pause), 1}
}

func (d *lawDriver) send() clock.Instant {
	d.law.sent(d.now)
	return d.now
}

func (d *lawDriver) after(t time.Duration) *lawDriver {
	d.now = d.now.Add(t)
	return d
}

func (d *lawDriver) end(o Outcome, sent clock.Instant) lesson {
	return d.law.done(d.now, ending{outcome: o, sent: sent, cost: 1}, false)
}

// succeed makes n calls succeed, gap apart, held back by the rate.
func (d *lawDriver) succeed(n int, gap time.Duration) {
	for range n {
		sent := d.after(ms).send()
		d.law.held(d.now)
		d.after(gap-ms).end(OutcomeSuccess, sent)
	}
}

func (d *lawDriver) throttle() lesson {
	sent := d.send()
	return d.after(ms).end(OutcomeThrottled, sent)
}

func TestLawBegins(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	assert.True(t, math.IsInf(d.law.limit(), 1), "without a rate")
	assert.Zero(t, d.law.wait(d.now))
	sent := d.send()
	assert.Positive(t, d.law.wait(d.now), "one call in flight at first")
	d.after(ms).end(OutcomeSuccess, sent)
	for range 100 {
		sent := d.send()
		d.send()
		d.after(ms).end(OutcomeSuccess, sent)
		d.end(OutcomeSuccess, sent)
	}
	d.send()
	assert.Zero(t, d.after(ms).law.wait(d.now), "and more as they succeed")
	assert.True(t, math.IsInf(d.law.limit(), 1), "success alone sets no rate")
}

// Each success of a slow call lets in two, which at one moment would be too many for a bucket
// of one, at any rate.
func TestLawBeginsWithSlowCallsApart(t *testing.T) {
	for _, tt := range []struct {
		window     float64
		took, want time.Duration
	}{
		{2, 4 * time.Second, time.Second},
		{10, 4 * time.Second, 200 * ms},
		{2, time.Minute, patience},
		{2, time.Second, 0}, // where a call more comes only after some successes anyway
	} {
		d := newLawDriver(0.01, math.Inf(1)).after(time.Hour)
		d.end(OutcomeSuccess, d.now-clock.Instant(tt.took))
		d.law.window = tt.window
		assert.Zero(t, d.law.wait(d.now), "nothing is in flight")
		d.send()
		assert.Equal(t, tt.want, d.law.wait(d.now))
		assert.Zero(t, d.after(tt.want).law.wait(d.now))
	}
}

// Whoever says that there is no limit wants a gentle beginning, whatever was in flight before.
func TestLawBeginsAnewWithoutALimit(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	for range 100 {
		sent := d.send()
		d.after(ms).end(OutcomeSuccess, sent)
	}
	d.law.setLimit(d.now, 50)
	d.law.setLimit(d.now, math.Inf(1))
	assert.Zero(t, d.law.wait(d.now))
	d.send()
	assert.Positive(t, d.law.wait(d.now), "one call in flight")
}

// Whoever sets a rate knows better than what there was before.
func TestLawForgetsWhatWasBeforeASetLimit(t *testing.T) {
	for _, set := range []float64{50, math.Inf(1)} {
		for _, after := range []int{1, 3, 20} { // calls before a throttle
			t.Run(fmt.Sprintf("%v, %d calls", set, after), func(t *testing.T) {
				d := newLawDriver(.001, math.Inf(1))
				d.law.setLimit(d.now, .05)
				d.succeed(100, 20*time.Second)
				d.law.setLimit(d.now, set)
				d.succeed(after, 20*ms)
				d.throttle()
				assert.InDelta(t, 25, d.law.limit(), 2)
			})
		}
	}
	t.Run("at a closed door", func(t *testing.T) {
		d := newLawDriver(.001, math.Inf(1))
		d.law.setLimit(d.now, .05)
		d.succeed(100, 20*time.Second)
		d.throttle()
		d.after(time.Second).throttle()
		d.law.setLimit(d.now, 50)
		d.after(time.Second).succeed(2, 20*ms)
		assert.GreaterOrEqual(t, d.law.limit(), 50.)
	})
}

// Calls that have not ended, and would have been throttled by now, are let through; a few of
// them may hang.
func TestLawCountsWhatIsUnderWay(t *testing.T) {
	for _, tt := range []struct {
		name     string
		underWay int
		refusal  time.Duration
		want     float64 // of the ceiling, at calls of 10 s and a rate of 20
	}{
		{"too few", 2, ms, 0.1},
		{"as many as ten seconds' worth of 5 a second", 50, ms, 5},
		{"some of them may be throttled yet", 50, 500 * ms, 3},
		{"all of them may be", 50, 5 * time.Second, 0.1},
		{"more than the rate", 1000, ms, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.001, math.Inf(1))
			d.law.setLimit(d.now, 20)
			d.succeed(1, 10*time.Second)
			for range tt.underWay {
				d.send()
			}
			d.law.held(d.now)
			sent := d.after(time.Second).send()
			d.after(tt.refusal).end(OutcomeThrottled, sent)
			assert.InDelta(t, tt.want, d.law.ceiling, .02*tt.want+.04)
		})
	}
}

// All in flight are throttled at once when a bucket is empty. So the faster calls are, the more
// of them it takes to let in one more, where there are many.
func TestLawBeginsMoreSlowlyWithMany(t *testing.T) {
	calls := func(from, to float64, took time.Duration) (n int) {
		d := newLawDriver(0.01, math.Inf(1)).after(time.Minute)
		d.law.window = from
		for range int(to) {
			d.send()
		}
		for ; d.law.window < to; n++ {
			d.end(OutcomeSuccess, d.now-clock.Instant(took))
			d.send()
		}
		return n
	}
	few := calls(1, startFew, 10*ms)
	assert.Equal(t, few, calls(1, startFew, time.Second), "a few alike")
	many := func(took time.Duration) int { return calls(startFew, 2*startFew, took) }
	assert.Greater(t, many(10*ms), 2*many(100*ms), "the faster, the more slowly for each")
	assert.Greater(t, many(100*ms), many(time.Second))
	assert.Equal(t, many(ms), many(10*ms), "within bounds")
	assert.Equal(t, many(200*ms), many(time.Second))
}

// By round trips of ten seconds many callers would stand still for minutes.
func TestLawBeginsFasterWhereCallsTakeLong(t *testing.T) {
	for _, from := range []float64{1, startFew} {
		grown := func(took time.Duration) float64 {
			d := newLawDriver(0.01, math.Inf(1)).after(time.Minute)
			d.law.window = from
			for range int(from) {
				d.send()
			}
			d.end(OutcomeSuccess, d.now-clock.Instant(took))
			return d.law.window - from
		}
		assert.InDelta(t, startGrow, grown(time.Second), 1e-9)
		assert.InDelta(t, 3*startGrow, grown(3*time.Second), 1e-9)
		assert.InDelta(t, 1, grown(time.Minute), 1e-9, "no faster than TCP")
	}
}

func TestLawOnlyThrottlesGiveARate(t *testing.T) {
	for _, o := range []Outcome{OutcomeUnknown, OutcomeTransient, OutcomePermanent, OutcomeQuotaExhausted, OutcomeDropped} {
		t.Run(o.String(), func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			d.succeed(10, 100*ms)
			for range 10 {
				sent := d.send()
				d.after(ms).end(o, sent)
			}
			assert.True(t, math.IsInf(d.law.limit(), 1))
			d.law.setLimit(d.now, 10)
			for range 10 {
				sent := d.send()
				d.after(ms).end(o, sent)
			}
			assert.Equal(t, 10., d.law.limit())
		})
	}
}

func TestLawCutsToHalfOfTheLesser(t *testing.T) {
	for _, tt := range []struct {
		name string
		slow int // calls of 200, after which 10 a second get through
		set  float64
		want float64 // at most, before any way back
	}{
		{"of what was delivered", 0, 1000, 5},
		{"of the rate", 0, 4, 2},
		{"of what was delivered at last, if the way back is all that was slow", 10, 1000, 5},
		{"of what was delivered in the long run, allowing for a way back", 100, 1000, 200. / 30 / .95 / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			for i := range 200 { // nothing holds them back
				took := 100 * ms
				if i < tt.slow {
					took *= 2
				}
				sent := d.send()
				d.after(took).end(OutcomeSuccess, sent)
			}
			d.law.rate, d.law.ceiling = tt.set, tt.set
			this := d.throttle()
			assert.Equal(t, CauseThrottle, this.why)
			assert.False(t, this.late)
			assert.InDelta(t, tt.want, d.law.limit(), tt.want/20)
		})
	}
}

// After a cut the rate is back to just below the ceiling within a few calls, and less far
// where calls are slow; from there on it probes.
func TestLawReturnsAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name          string
		ceiling, back float64
	}{
		{"fast", 100, 90},
		{"one a second", 1, .9},
		{"slower", .99, .85 * .99},
		{"a call in an hour", 1. / 3600, .85 / 3600},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(1e-6, math.Inf(1))
			l := d.law
			l.setLimit(d.now, tt.ceiling)
			l.rate = tt.ceiling / 2
			d.succeed(6, clock.CeilSeconds(1/l.limit()))
			assert.GreaterOrEqual(t, l.limit(), tt.back)
			l.rate = .999 * tt.back
			way := l.slope(d.now, l.ceiling)
			assert.InEpsilon(t, (tt.back-tt.ceiling/2)*tt.ceiling/backOver, way, 1e-9)
			l.rate = 1.001 * tt.back
			assert.Less(t, l.slope(d.now, l.ceiling), way/20)
		})
	}
}

// However far the way back is, it ends at the ceiling: beyond that the law probes.
func TestLawReturnsNoFurtherThanTheCeiling(t *testing.T) {
	d := newLawDriver(1e-6, math.Inf(1))
	d.law.setLimit(d.now, 100)
	d.law.rate = 10
	d.succeed(1, 300*ms)
	assert.Equal(t, 100., d.law.limit())
}

// One call at a time knocks at a closed door: the next goes after twice the time that the
// last one took, within bounds. One that hangs is waited for as long as patience lasts.
func TestLawKnocksOneAtATime(t *testing.T) {
	for _, tt := range []struct {
		name      string
		rate      float64
		throttles int
		took      time.Duration // the last of them
		want      time.Duration
	}{
		{"a rate says how long", 10, 1, 3 * time.Second, 0},
		{"no rate", math.Inf(1), 0, 3 * time.Second, patience},
		{"closed", 10, closedRow, 3 * time.Second, 6 * time.Second},
		{"closed, and answers are quick", 10, closedRow, 100 * ms, patience},
		{"closed, and answers are slow", 10, closedRow, 20 * time.Second, patienceMax},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			d.law.setLimit(d.now, tt.rate)
			for range tt.throttles {
				sent := d.after(time.Minute).send()
				d.after(tt.took).end(OutcomeThrottled, sent)
			}
			d.law.latency = tt.took
			assert.Zero(t, d.law.wait(d.now), "nobody is under way")
			d.after(time.Minute).send()
			assert.Equal(t, tt.want, d.law.wait(d.now))
			assert.Zero(t, d.law.wait(d.now.Add(tt.want)))
		})
	}
}

func TestLawIgnoresLateThrottles(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	d.law.setLimit(d.now, 10)
	d.succeed(10, 100*ms)
	var burst []clock.Instant
	for range 6 {
		burst = append(burst, d.send())
	}
	d.after(ms)
	assert.False(t, d.end(OutcomeThrottled, burst[0]).late)
	is := d.law.limit()
	for _, sent := range burst[1:] {
		this := d.after(ms).end(OutcomeThrottled, sent)
		assert.True(t, this.late)
		assert.Zero(t, this.pause)
		assert.Equal(t, is, d.law.limit())
	}
	// A success in between, also of a late call, does not make the next late
	// throttle new.
	d.end(OutcomeSuccess, burst[0])
	is = d.law.limit()
	assert.True(t, d.end(OutcomeThrottled, burst[1]).late)
	assert.Equal(t, is, d.law.limit())
}

func TestLawNeedsASuccessBetweenCuts(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	d.law.setLimit(d.now, 10)
	d.throttle()
	assert.Equal(t, 10., d.law.limit(), "nothing got through yet")
	d.succeed(10, 100*ms)
	d.throttle()
	is := d.law.limit()
	assert.Less(t, is, 10.)
	for i := range 5 {
		this := d.after(time.Second).throttle()
		assert.Positive(t, this.pause, "throttle %d", i)
		assert.Equal(t, is, d.law.limit(), "a server that is closed says nothing about the rate")
	}
	d.succeed(1, 100*ms)
	was := d.law.limit()
	d.throttle()
	assert.Less(t, d.law.limit(), was)
}

func TestLawGrowsOnlyWhenItHoldsCallsBack(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	d.law.setLimit(d.now, 10)
	for range 100 {
		sent := d.send()
		d.after(time.Second).end(OutcomeSuccess, sent)
	}
	assert.Equal(t, 10., d.law.limit(), "nobody wanted more")
	d.succeed(20, 100*ms)
	assert.Greater(t, d.law.limit(), 10.)
}

func TestLawIdleTimeEarnsNothing(t *testing.T) {
	growth := func(idle time.Duration) float64 {
		d := newLawDriver(0.01, math.Inf(1))
		d.law.setLimit(d.now, 10)
		d.succeed(20, 100*ms)
		was := d.law.limit()
		d.after(idle)
		d.succeed(1, 100*ms)
		return d.law.limit() - was
	}
	assert.Positive(t, growth(0))
	assert.LessOrEqual(t, growth(time.Hour), 10*growth(0), "an hour is 36000 intervals")
}

func TestLawKeepsItsBounds(t *testing.T) {
	d := newLawDriver(2, 20)
	d.law.setLimit(d.now, 10)
	for range 20 {
		d.succeed(1, time.Second)
		d.throttle()
	}
	assert.Equal(t, 2., d.law.limit(), "no throttle cuts below the minimum")
	d.after(time.Hour).succeed(100_000, 50*ms)
	assert.Equal(t, 20., d.law.limit(), "no success grows above the maximum")
}

// While nothing has ever succeeded, pauses are those of some levels ahead, unless
// somebody has said what they are to be.
func TestLawPausesLongerBeforeAnySuccess(t *testing.T) {
	backoff := Must(NewBackoff(WithBase(time.Second), WithMaxDelay(time.Minute), WithJitter(NoJitter())))
	for _, tt := range []struct {
		name  string
		cold  int
		quota *Quota
		want  time.Duration
	}{
		{"as the backoff says", 0, nil, time.Second},
		{"as it says, whatever is left", 0, &Quota{Limit: 10}, time.Second},
		{"longer", 1, nil, 2 * time.Second},
		{"some is left", 1, &Quota{Limit: 10, Remaining: 1}, 2 * time.Second},
		{"nothing is left", 1, &Quota{Limit: 10}, 4 * time.Second},
		{"nothing is left of nothing", 1, &Quota{}, 2 * time.Second},
		{"much longer", 2, nil, 4 * time.Second},
		{"much longer, and nothing is left", 2, &Quota{Limit: 10}, 8 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newAIMD(aimdConfig{min: 0.01, max: math.Inf(1), decrease: 0.5, increase: 0.1, cold: tt.cold},
				brake{backoff: backoff, forgive: defaultForgive})
			d := &lawDriver{l, 1}
			d.end(OutcomeTransient, d.send()) // which is no success
			e := ending{outcome: OutcomeThrottled, sent: d.send(), cost: 1, quota: tt.quota}
			assert.Equal(t, tt.want, l.done(d.after(ms).now, e, false).pause)
			d.after(time.Minute).succeed(1, 100*ms)
			e.sent = d.after(time.Minute).send()
			assert.LessOrEqual(t, l.done(d.after(ms).now, e, false).pause, 2*time.Second, "later")
		})
	}
	coldOf := func(opts ...LimiterOption) int { return Must(NewAdaptiveLimiter(opts...)).law.cold }
	assert.Equal(t, defaultCold, coldOf())
	assert.Zero(t, coldOf(WithPauseBackoff(steadyPause)))
	assert.Zero(t, lawOf(Must(NewSharedLimiter(NewMemoryStore(), WithPauseOnly()))).cold, "others may have succeeded")
}

// A limit that stays where it is is looked for less often, until it has moved.
func TestLawLooksLessOftenForALimitThatStays(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	l := d.law
	l.setLimit(d.now, 1)
	between := func(limit float64) (calls int) {
		for ; l.limit() <= limit; calls++ {
			d.succeed(1, clock.CeilSeconds(1/l.limit()))
		}
		d.throttle()
		return calls
	}
	for range 2 * agreeMost {
		between(1)
	}
	assert.Equal(t, agreeMost, l.agreed)
	rarely := between(1)
	l.agreed = 0
	assert.Greater(t, rarely, 2*between(1))

	// Above the ceiling it is quicker then.
	steep := func(agreed int) float64 {
		return (&aimd{aimdConfig: l.aimdConfig, agreed: agreed, rate: 15, ceiling: 10, first: 1}).slope(clock.Instant(time.Hour), 10)
	}
	assert.Greater(t, steep(agreeMost), 2*steep(0))

	between(2)
	assert.Zero(t, l.agreed, "it has moved")
	l.agreed = agreeMost
	l.setLimit(d.now, 5)
	assert.Zero(t, l.agreed, "it was moved")
}

// Probing takes a share of the time that the law has known the server, within bounds, or a
// hundred calls if that is longer.
func TestLawProbesAsSlowlyAsItIsOld(t *testing.T) {
	for _, tt := range []struct {
		age   time.Duration
		limit float64
		takes time.Duration
	}{
		{time.Second, 1000, probeMin},
		{10 * time.Second, 1000, 2 * time.Second},
		{time.Hour, 1000, probeMax},
		{time.Hour, 1, probeOver * time.Second},
	} {
		l := &aimd{aimdConfig: aimdConfig{decrease: .5, increase: .1}, rate: tt.limit, ceiling: tt.limit, cost: 1, first: 1}
		assert.InEpsilon(t, .1*tt.limit/tt.takes.Seconds(), l.slope(l.first.Add(tt.age), l.ceiling), 1e-6, "%v old, %v calls a second", tt.age, tt.limit)
	}
}

// From most of the peak on the rate grows as if that were the ceiling, unless it pushes on faster:
// the peak has faded, and the limit may be far above it.
func TestLawGrowsBackByThePeakOrFaster(t *testing.T) {
	for _, tt := range []struct {
		name              string
		rate, ceiling, by float64
	}{
		{"far below the peak", 6, .01, .01},
		{"quickly back", 7.5, 5, 10},
		{"where it pushes on", 9.5, 5, 5},
		{"where it would push on slowly", 9.5, .01, 10},
		{"above the peak", 15, 5, 5},
		{"above the peak, and far above the ceiling", 15, .01, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := clock.Instant(time.Hour)
			l := &aimd{aimdConfig: aimdConfig{max: math.Inf(1), decrease: .5, increase: .1}, rate: tt.rate, ceiling: tt.ceiling, peak: 10,
				cost: 1, first: 1, heldAt: now, credit: now - clock.Instant(10*ms)}
			want := l.slope(now, tt.by) * .01
			l.grow(now, surplus{}, false)
			assert.InEpsilon(t, want, l.rate-tt.rate, 1e-6)
			assert.Equal(t, tt.ceiling, l.ceiling)
		})
	}
}

// Few throttles may come by chance, whatever the rate: they take the ceiling no further down
// than to a part of what it was. Many have come because the rate is too high.
func TestLawIsNotTakenFarDownByFewThrottles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		calls int // that succeed between two throttles
		set   bool
		least float64 // of the ceiling, after a hundred throttles
		most  float64
	}{
		{"few", 99, false, fewTo, 1},
		{"as few as may be", 40, false, fewTo, fewTo},
		{"many", 30, false, 0, .5 * fewTo},
		{"few, after the rate was set", 99, true, 0, .5 * fewTo},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			l := d.law
			l.first = d.now - clock.Instant(time.Hour) // it probes slowly
			l.setLimit(d.now, 1000)
			d.succeed(1000, ms+ms/10)
			d.throttle()
			known := l.ceiling
			if tt.set {
				l.setLimit(d.now, .1*known)
			}
			for range 100 {
				for range tt.calls {
					d.succeed(1, ms+clock.CeilSeconds(1/l.limit()))
				}
				d.throttle()
				assert.LessOrEqual(t, l.limit(), l.ceiling)
			}
			assert.GreaterOrEqual(t, l.ceiling, tt.least*known)
			assert.LessOrEqual(t, l.ceiling, tt.most*known)
		})
	}
}

// What is no chance lets few throttles, too, take the ceiling as low as need be.
func TestLawKnowsWhatIsNoChance(t *testing.T) {
	stop := func(d *lawDriver, retryAfter time.Duration) {
		sent := d.after(ms).send()
		d.after(ms).law.done(d.now, ending{outcome: OutcomeThrottled, sent: sent, cost: 1, retryAfter: retryAfter}, false)
	}
	left := func(d *lawDriver, rests ...int) {
		for _, rest := range rests {
			sent := d.send()
			d.after(time.Second).law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &Quota{Limit: 1000, Remaining: rest}}, false)
		}
	}
	for _, tt := range []struct {
		name    string
		happens func(d *lawDriver)
		chance  bool
	}{
		{"a throttle", func(d *lawDriver) { stop(d, 0) }, true},
		{"a short Retry-After", func(d *lawDriver) { stop(d, fewWait-1) }, true},
		{"a long Retry-After", func(d *lawDriver) { stop(d, fewWait) }, false},
		{"a late one", func(d *lawDriver) {
			d.send()
			stop(d, 0)
			d.law.done(d.now, ending{outcome: OutcomeThrottled, sent: 1, cost: 1, retryAfter: fewWait}, false)
		}, false},
		{"a door that is closed for a moment", func(d *lawDriver) { stop(d, 0); stop(d, 0); d.succeed(1, ms) }, true},
		{"a door that is closed for long", func(d *lawDriver) { stop(d, 0); stop(d, 0); d.after(fewWait).succeed(1, ms) }, false},
		{"enough is left of a quota", func(d *lawDriver) { left(d, 900, 800) }, true},
		{"a quota is nearly used up", func(d *lawDriver) { left(d, 900, 9, 8) }, false},
		{"many throttles", func(d *lawDriver) {
			for range 20 {
				d.succeed(4, ms)
				stop(d, 0)
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			d.law.setLimit(d.now, 1000)
			d.succeed(400, ms+ms/10)
			d.throttle()
			d.succeed(20, ms+ms/10)
			known := d.law.trusted
			require.Positive(t, known)
			tt.happens(d)
			assert.Equal(t, tt.chance, d.law.trusted >= known)
		})
	}
}

// A closed door that was closed for minutes may have been an outage: what it taught is
// doubted until the next throttle. Another one soon after is that of a window.
func TestLawDoubtsWhatMayHaveBeenAnOutage(t *testing.T) {
	closing := func(d *lawDriver, lasts time.Duration) {
		d.law.setLimit(d.now, 10)
		d.succeed(50, 100*ms)
		d.throttle()
		d.after(lasts).throttle()
		d.succeed(1, 100*ms)
		require.Less(t, d.law.limit(), .5, "it teaches")
	}
	recovers := func(d *lawDriver) (took time.Duration) {
		for begun, low := d.now, d.law.limit(); d.law.limit() < 4*low; took = d.now.Sub(begun) {
			d.after(clock.CeilSeconds(1/d.law.limit())-100*ms).succeed(1, 100*ms)
		}
		return took
	}
	quick := newLawDriver(0.001, math.Inf(1))
	closing(quick, outageLeast)
	slow := newLawDriver(0.001, math.Inf(1))
	closing(slow, outageLeast-time.Minute)
	assert.Greater(t, recovers(slow), 3*recovers(quick))
	slowest := newLawDriver(0.001, math.Inf(1))
	closing(slowest, 12*time.Hour)
	assert.InEpsilon(t, 1/outageGap.Seconds(), slowest.law.ceiling, .01, "and no less is learnt")

	t.Run("one call ends it", func(t *testing.T) { // which is no measure, nor is the time it took
		for _, closed := range []time.Duration{time.Second, time.Hour} {
			d := newLawDriver(0.001, math.Inf(1))
			d.law.setLimit(d.now, 50)
			d.succeed(3000, 20*ms)
			opens := func(after time.Duration) {
				d.throttle()
				d.after(after).throttle()
				d.after(time.Second).succeed(1, 20*ms)
			}
			opens(time.Second)
			opens(closed)
			d.succeed(300, 40*ms)
			opens(2 * time.Second)
			assert.Greater(t, d.law.limit(), 5., "closed for %v", closed)
		}
	})

	for _, tt := range []struct {
		name    string
		between time.Duration // from the end of the first closing to the next, of four minutes
		doubted bool
	}{
		{"soon after", outageApart * 3 * time.Minute, false},
		{"long after", outageApart * 5 * time.Minute, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.001, math.Inf(1))
			closing(d, 4*time.Minute)
			assert.True(t, d.law.doubted, "the first one is")
			d.after(tt.between)
			closing(d, 4*time.Minute)
			assert.Equal(t, tt.doubted, d.law.doubted)
			d.throttle()
			assert.False(t, d.law.doubted, "a throttle ends it")

			d.after(outageApart * 5 * time.Minute)
			closing(d, 4*time.Minute)
			require.True(t, d.law.doubted)
			d.law.setLimit(d.now, 10)
			assert.False(t, d.law.doubted, "and so does whoever sets the rate")
		})
	}
}

// Whoever comes to a closed door does not take the time before it opened for time in
// which the server delivered.
func TestLawDoesNotCountAClosedBeginning(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	d.throttle()
	d.after(time.Second).succeed(1, 0)
	d.succeed(20, 50*ms)
	d.throttle()
	assert.InDelta(t, 7, d.law.limit(), .1, "half of 21 calls in 1 s and half of the closed time")

	told := newLawDriver(0.01, math.Inf(1))
	told.law.setLimit(told.now, 10)
	for range 3 {
		told.after(time.Second).throttle()
	}
	told.after(time.Second).succeed(1, 0)
	assert.GreaterOrEqual(t, told.law.limit(), 10., "a single success is no measure")
}

// Where there is no rate calls come ever faster: the last of them tell the ceiling.
func TestLawTakesTheEndOfTheStartForTheCeiling(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	d.succeed(50, time.Second)
	d.succeed(memoryShort, 100*ms)
	d.throttle()
	assert.InDelta(t, 5, d.law.limit(), .2, "half of the last 10 a second")

	told := newLawDriver(0.01, math.Inf(1))
	told.law.setLimit(told.now, 10)
	told.succeed(50, time.Second)
	told.succeed(memoryShort, 100*ms)
	told.throttle()
	assert.InDelta(t, .8, told.law.limit(), .1, "half of 82 in 53 s: with a rate, all of them count")
}

// A first throttle that asks for a long wait tells of a window: what it gives is known
// before the next one has to be used up as well.
func TestLawLearnsAWindowFromTheFirstRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		name  string
		asked time.Duration
		want  float64 // the rate when the wait is over
	}{
		{"a window of a minute", 50 * time.Second, 100. / 60},
		{"a token of a bucket", 100 * ms, 9},
		{"a second, rounded up", time.Second, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			d.succeed(100, 100*ms)
			sent := d.send()
			d.law.done(d.after(ms).now, ending{outcome: OutcomeThrottled, sent: sent, cost: 1, retryAfter: tt.asked}, false)
			d.after(tt.asked).succeed(6, 100*ms)
			assert.InEpsilon(t, tt.want, d.law.limit(), .1)
		})
	}
}

// A call that was under way when the door closed knows nothing of it.
func TestLawOpensNoDoorForALateSuccess(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	d.law.window = 8
	for range 8 {
		d.end(OutcomeSuccess, d.send())
	}
	refuse := func(sent clock.Instant) {
		d.law.done(d.after(ms).now, ending{outcome: OutcomeThrottled, sent: sent, cost: 1, retryAfter: time.Second}, false)
	}
	first, late := d.send(), d.send()
	refuse(first)
	d.after(ms).end(OutcomeSuccess, late)
	for range 2 {
		refuse(d.after(time.Second).send())
	}
	d.after(time.Second).end(OutcomeSuccess, d.send())
	assert.InDelta(t, .95*10/2.5, d.law.limit(), .5, "ten in two and a half seconds, not one since the late success")
}

func TestLawOutlivesALongRetryAfter(t *testing.T) {
	for _, asked := range []time.Duration{time.Hour, math.MaxInt64} {
		t.Run(asked.String(), func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			d.succeed(100, 100*ms)
			sent := d.send()
			d.law.done(d.after(ms).now, ending{outcome: OutcomeThrottled, sent: sent, cost: 1, retryAfter: asked}, false)
			assert.Greater(t, d.law.shutAt, 9*time.Second, "closed from now on, not until long ago")
			d.after(time.Hour).succeed(1, 100*ms)
			assert.LessOrEqual(t, d.law.delivered.baseAt, d.law.delivered.clock(d.now), "what counts begins now at the latest")
		})
	}
}

// Where nothing had succeeded before, a call that was under way tells that the limit is shared.
func TestLawBeginsGentlyAfterALateFirstSuccess(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1)).after(time.Minute)
	first, late := d.send(), d.send()
	d.after(ms).end(OutcomeThrottled, first)
	d.after(ms).end(OutcomeSuccess, late)
	d.succeed(startHeld-1, 100*ms)
	assert.Equal(t, 1., d.law.window)
	d.succeed(2, 100*ms)
	assert.Greater(t, d.law.window, 1.)
}

// Calls that nobody was kept waiting for say little of what the server would have given:
// each counts for no more than the time until the next might have gone.
func TestLawMeasuresByDemand(t *testing.T) {
	quiet := func() *lawDriver {
		d := newLawDriver(0.01, math.Inf(1))
		d.law.setLimit(d.now, 10)
		d.succeed(memoryLong, 100*ms)
		d.law.setLimit(d.now, 10)
		for range memoryLong {
			sent := d.after(time.Second).send()
			d.after(50*ms).end(OutcomeSuccess, sent)
		}
		return d
	}
	d := quiet()
	d.throttle()
	assert.InDelta(t, 5, d.law.limit(), .1, "half of the rate, though it was one call a second")

	d = quiet()
	poll := d.send()
	for range memoryLong {
		sent := d.after(time.Second).send()
		d.after(50*ms).end(OutcomeSuccess, sent)
	}
	d.succeed(10, 200*ms)
	d.throttle()
	assert.InDelta(t, 3.8, d.law.limit(), .2, "10 at 5 a second, of the last 32; the others at the rate, beside one that hangs")
	d.end(OutcomeSuccess, poll)

	d = quiet()
	delivered := &d.law.delivered
	before := delivered.clock(d.now)
	d.throttle()
	d.after(time.Minute).throttle()
	assert.InDelta(t, time.Minute, delivered.clock(d.now)-before, float64(5*ms), "a closed door counts in full")
}

// Calls under way are demand for more only while there is no rate, which could say so, and
// no longer than calls take.
func TestLawMeasuresWhileNobodyWaits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rate  float64
		after func(d *lawDriver)
		want  time.Duration // counted of a minute
	}{
		{"no rate, one of two calls under way", math.Inf(1), func(d *lawDriver) {
			d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: d.now, cost: 1}, true)
		}, time.Minute},
		{"no rate, and it takes longer than the last one", math.Inf(1), func(d *lawDriver) {
			d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: d.now.Add(-time.Second), cost: 1}, true)
			d.send()
		}, 2 * time.Second},
		{"no rate, none", math.Inf(1), func(d *lawDriver) {
			d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: d.now, cost: 1}, true)
			d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: d.now, cost: 1}, true)
		}, 0},
		{"a rate that nobody waits for", 10, func(*lawDriver) {}, 100 * ms},
		{"a rate that somebody waits for", 10, func(d *lawDriver) { d.law.held(d.now) }, time.Minute},
		{"somebody waits for another limiter", 10, func(d *lawDriver) { d.law.held(d.now); d.law.free(d.now) }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			d.law.setLimit(d.now, tt.rate)
			d.send()
			d.send()
			delivered := &d.law.delivered
			before := delivered.clock(d.now)
			tt.after(d)
			assert.Equal(t, tt.want, delivered.clock(d.now.Add(time.Minute))-before)
		})
	}
}

// A closing is the end of what was delivered before it: the next cut measures from
// the middle between the last throttle and the success that ended it.
func TestLawMeasuresFromAReopening(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	d.law.setLimit(d.now, 10)
	d.succeed(100, 100*ms)
	d.throttle()
	d.after(10 * time.Second).throttle()
	d.after(100*ms).succeed(1, 100*ms)
	d.law.setLimit(d.now, 10)
	d.succeed(20, 100*ms)
	d.throttle()
	assert.InDelta(t, 5, d.law.limit(), .3, "half of the 10 a second since then")
}

// One call alone between two closings says nothing of what the server gives. With the
// next, all that went through since counts.
func TestLawLearnsNothingFromOneCall(t *testing.T) {
	d := newLawDriver(0.001, math.Inf(1))
	closing := func() {
		d.throttle()
		d.after(10 * time.Second).throttle()
		d.after(100*ms).succeed(1, 100*ms)
	}
	d.law.setLimit(d.now, 10)
	d.succeed(100, 100*ms)
	closing()
	d.law.rate, d.law.ceiling = 10, 10
	closing()
	assert.Greater(t, d.law.limit(), .5)
	closing()
	assert.InDelta(t, .095, d.law.limit(), .005, "0.95 of two calls in twenty seconds")
}

// Calls that take longer and longer stand in a queue: the rate falls below what comes
// out of it, and is back as soon as the queue is worked off. Nothing else does that.
func TestLawWorksOffQueues(t *testing.T) {
	const usual = 20 * ms
	rng := rand.New(rand.NewPCG(1, 2))
	tail := func(int) time.Duration { // one call in ten takes up to fifty times as long
		if rng.IntN(10) == 0 {
			return usual * time.Duration(1+rng.IntN(50))
		}
		return usual
	}
	for _, tt := range []struct {
		name        string
		took        func(call int) time.Duration
		least, most float64 // of the rate, during 300 calls and after them
	}{
		{"a queue that grows", func(i int) time.Duration { return usual + time.Duration(i)*5*ms }, 2, 9},
		{"a queue that grows slowly", func(i int) time.Duration { return usual + time.Duration(i)*ms/2 }, 5, 9.9},
		{"as long as usual", func(int) time.Duration { return usual }, 10, math.Inf(1)},
		{"a long tail", tail, 10, math.Inf(1)},
		{"one that hung", func(i int) time.Duration { return usual + time.Minute*time.Duration(max(0, 1-i)) }, 10, math.Inf(1)},
		{"shorter than usual", func(int) time.Duration { return usual / 10 }, 10, math.Inf(1)},
		{"no time at all", func(int) time.Duration { return 0 }, 10, math.Inf(1)},
		{"ten times as long from now on", func(int) time.Duration { return 10 * usual }, 5, math.Inf(1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			call := func(took time.Duration) {
				gap := clock.CeilSeconds(1 / d.law.limit())
				d.after(gap).law.held(d.now)
				d.law.sent(d.now)
				d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: d.now.Add(-took), cost: 1}, false)
			}
			d.law.setLimit(d.now, 10)
			for range 500 {
				call(tail(0))
			}
			d.law.setLimit(d.now, 10)
			lowest := d.law.limit()
			for i := range 300 {
				call(tt.took(i))
				lowest = min(lowest, d.law.limit())
			}
			assert.GreaterOrEqual(t, lowest, tt.least)
			assert.LessOrEqual(t, d.law.limit(), tt.most)
			for range 150 {
				call(usual)
			}
			assert.GreaterOrEqual(t, d.law.limit(), 10., "afterwards")
		})
	}
}

// Calls that take longer for good are no queue for long.
func TestLawGetsUsedToSlowCalls(t *testing.T) {
	for _, times := range []time.Duration{3, 10, 100} {
		t.Run(fmt.Sprint(int(times), " times"), func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			d.law.setLimit(d.now, 10)
			d.succeed(memoryLong, 100*ms)
			d.law.setLimit(d.now, 10)
			for range 2000 {
				sent := d.now
				d.law.held(d.now)
				d.after(100 * ms).send()
				d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent.Add(-100 * ms * times), cost: 1}, false)
				assert.GreaterOrEqual(t, d.law.limit(), 5.)
			}
			assert.GreaterOrEqual(t, d.law.limit(), 9.)
		})
	}
}

// The first answer of all may be a quick or a slow one.
func TestLawTakesNoFirstAnswerForTheUsualOne(t *testing.T) {
	for _, first := range []time.Duration{100 * time.Microsecond, ms, 100 * ms, 10 * time.Second} {
		t.Run(first.String(), func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			d.law.setLimit(d.now, 10)
			for took := first; d.law.delivered.n < 1000; took = 100 * ms {
				d.after(clock.CeilSeconds(1 / d.law.limit())).law.held(d.now)
				d.law.sent(d.now)
				d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: d.now.Add(-took), cost: 1}, false)
				require.GreaterOrEqual(t, d.law.limit(), 10., "after %d calls", d.law.delivered.n)
			}
		})
	}
}

// What comes out of a queue is successes: calls that were given up come to nothing. And
// calls that nobody waited for stand in none.
func TestLawKnowsWhatComesOutOfAQueue(t *testing.T) {
	const usual = 20 * ms
	for _, tt := range []struct {
		name        string
		held        bool
		fail        int // of four
		least, most float64
	}{
		{"all are answered", true, 0, 8, 10},
		{"one of four is", true, 3, 5, 6},
		{"nobody waits", false, 0, 10, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			d.law.setLimit(d.now, 10)
			call := func(held bool, took time.Duration, outcome Outcome) {
				d.after(100 * ms)
				if held {
					d.law.held(d.now)
				}
				d.law.sent(d.now)
				d.law.done(d.now, ending{outcome: outcome, sent: d.now.Add(-took), cost: 1}, false)
			}
			for range 300 {
				call(true, usual, OutcomeSuccess)
			}
			d.law.setLimit(d.now, 10)
			for i := range 200 {
				outcome := OutcomeSuccess
				if i%4 < tt.fail {
					outcome = OutcomeTransient
				}
				call(tt.held, 10*usual, outcome)
			}
			lowest := d.law.limit()
			assert.GreaterOrEqual(t, lowest, tt.least)
			assert.LessOrEqual(t, lowest, tt.most)
		})
	}
}

// An answer that something is not there comes quickly, and says nothing of how long calls
// take that do some work.
func TestLawKnowsQuickAnswersFromWork(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	d.law.setLimit(d.now, 10)
	answered := func(outcome Outcome, took time.Duration) {
		for range 300 {
			d.after(100 * ms)
			d.law.held(d.now)
			d.law.sent(d.now)
			d.law.done(d.now, ending{outcome: outcome, sent: d.now.Add(-took), cost: 1}, false)
		}
	}
	answered(OutcomePermanent, 2*ms)
	answered(OutcomeSuccess, 20*ms)
	assert.GreaterOrEqual(t, d.law.limit(), 10.)
}

// After a cut the rate is soon back at the ceiling.
func TestLawKnowsWhatComesSoon(t *testing.T) {
	d := newLawDriver(0.01, math.Inf(1))
	d.law.setLimit(d.now, 100)
	d.succeed(300, 10*ms)
	assert.Equal(t, d.law.limit(), d.law.soon())
	d.throttle()
	assert.InDelta(t, 2*d.law.limit(), d.law.soon(), 1e-9)
}

// Calls that hang, or whose end nobody tells, do not close the door for good.
func TestLawHangingCalls(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin func(d *lawDriver)
	}{
		{"at the start", func(*lawDriver) {}},
		{"after throttles in a row", func(d *lawDriver) {
			d.succeed(5, 100*ms)
			d.throttle()
			d.throttle()
			d.throttle()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.01, math.Inf(1))
			tt.begin(d)
			for range 10 {
				d.send() // and never heard of again
				wait := d.law.wait(d.now)
				assert.Positive(t, wait)
				assert.LessOrEqual(t, wait, time.Minute)
				d.after(wait)
				assert.Zero(t, d.law.wait(d.now))
			}
		})
	}
}

// The server's wait is for the pause, and for nothing else.
// All that were under way when a window was used up are told how long it stays so.
func TestLawCountsALongRetryAfterOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		waits []time.Duration // told one after the other
	}{
		{"one call", []time.Duration{time.Hour}},
		{"many calls", slices.Repeat([]time.Duration{time.Hour}, 20)},
		{"not the first of them", []time.Duration{0, time.Hour, time.Hour}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.001, math.Inf(1))
			d.succeed(100, 100*ms)
			d.throttle()
			d.succeed(100, 100*ms)
			sent := d.send()
			for range tt.waits[1:] {
				d.send()
			}
			for _, wait := range tt.waits {
				d.after(ms).law.done(d.now, ending{outcome: OutcomeThrottled, sent: sent, cost: 1, retryAfter: wait}, false)
			}
			d.after(time.Hour).succeed(100, 100*ms)
			d.throttle()
			assert.InDelta(t, 0.417, d.law.ceiling, 0.01)
		})
	}
}

func TestLawRetryAfterChangesOnlyThePause(t *testing.T) {
	limits := map[time.Duration]float64{}
	for _, asked := range []time.Duration{0, 1, time.Second, time.Hour} {
		d := newLawDriver(0.01, math.Inf(1))
		d.law.setLimit(d.now, 10)
		d.succeed(10, 100*ms)
		sent := d.send()
		this := d.law.done(d.after(ms).now, ending{outcome: OutcomeThrottled, sent: sent, cost: 1, retryAfter: asked}, false)
		if asked > 0 {
			assert.Equal(t, asked, this.pause)
		} else {
			assert.Positive(t, this.pause)
		}
		d.succeed(10, 100*ms)
		limits[asked] = d.law.limit()
	}
	for asked, limit := range limits {
		assert.Equal(t, limits[0], limit, "Retry-After %v", asked)
	}
}

// Random outcomes at random times, and what must hold whatever the constants are.
func TestLawInvariants(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		script := make([]byte, 2000)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		if !checkLaw(t, script) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzLaw(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 2, 0, 0, 2, 1, 0, 3, 1, 3, 200})
	f.Add([]byte("halve on throttle, grow linearly on success"))
	f.Fuzz(func(t *testing.T, script []byte) { checkLaw(t, script) })
}

// checkLaw runs a script of three bytes an event: what, which, how much.
func checkLaw(t *testing.T, script []byte) bool {
	const low, high = 0.5, 500.
	d := newLawDriver(low, high)
	d.law.setLimit(d.now, 50)
	var flying []clock.Instant
	for i := 0; i+2 < len(script); i += 3 {
		what, which, much := script[i], int(script[i+1]), int(script[i+2])
		d.after(time.Duration(much*much*much) * time.Microsecond) // to 16 s
		var this lesson
		switch what % 4 {
		case 0:
			if d.law.wait(d.now) == 0 {
				flying = append(flying, d.send())
			}
		case 1:
			d.law.held(d.now)
		default:
			e := ending{outcome: Outcome(which % 7), cost: 1}
			if len(flying) > 0 {
				k := which % len(flying)
				e.sent = flying[k]
				flying = append(flying[:k], flying[k+1:]...)
			}
			switch {
			case what%4 == 3 && what&64 != 0:
				e.retryAfter = time.Duration(much) * time.Second
			case what%4 == 2 && what&64 != 0:
				e.quota = &Quota{Limit: which, Remaining: much, Reset: time.Duration(int(what)*which) * 10 * ms}
			}
			this = d.law.done(d.now, e, what&128 != 0)
		}
		limit, wait := d.law.limit(), d.law.wait(d.now)
		if !(limit >= low && limit <= high) || this.pause < 0 || this.pause > 255*time.Second || wait < 0 || wait > time.Minute {
			t.Errorf("event %d: limit %v, pause %v, room %v", i/3, limit, this.pause, wait)
			return false
		}
	}
	return true
}

// What is left of a window is spread over the time until its reset; what is left
// of a bucket is not, since that fills while it is used.
func TestLawRations(t *testing.T) {
	const limit = 100
	for name, c := range map[string]struct {
		reset func(since time.Duration, used int) time.Duration
		slows bool
	}{
		"window": {func(since time.Duration, _ int) time.Duration { return time.Minute - since }, true},
		"window, in whole seconds": {func(since time.Duration, _ int) time.Duration {
			return (time.Minute - since + time.Second - 1).Truncate(time.Second)
		}, true},
		"bucket": {func(_ time.Duration, used int) time.Duration { return time.Duration(used) * 5 * time.Second }, false},
		"none":   {func(time.Duration, int) time.Duration { return 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newLawDriver(0.001, math.Inf(1))
			d.law.setLimit(d.now, 100)
			start := d.now
			most := 60
			if c.slows {
				most = 95
			}
			for used := 1; used <= most; used++ {
				sent := d.send()
				d.after(10 * ms)
				q := Quota{Limit: limit, Remaining: limit - used, Reset: c.reset(d.now.Sub(start), used)}
				d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
			}
			if c.slows {
				assert.InDelta(t, 5./59.05, d.law.limit(), .005, "5 calls in what is left of a minute")
				assert.Equal(t, d.law.limit(), d.law.soon(), "and no sooner")
			} else {
				assert.GreaterOrEqual(t, d.law.limit(), 100.)
			}
		})
	}
}

// A job that needs less than nine tenths of a window of its own is not slowed down: how large a
// job is cannot be known.
func TestLawRationsTheLastTenthAlone(t *testing.T) {
	d := newLawDriver(0.001, math.Inf(1))
	d.law.setLimit(d.now, 100)
	start := d.now
	tell := func(left int) {
		sent := d.send()
		d.after(10 * ms)
		q := Quota{Limit: 100, Remaining: left, Reset: 15*time.Minute - d.now.Sub(start)}
		d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
	}
	for left := 99; left > 10; left-- {
		tell(left)
		require.Zero(t, d.law.unspread, "%d left", left)
	}
	tell(10)
	assert.InDelta(t, 10./900, d.law.limit(), .001)
}

// A quota whose reset is never more than some seconds away is whole again before a slower rate
// shows. The last seconds of a long window are no such quota.
func TestLawIgnoresAQuotaOfSeconds(t *testing.T) {
	low := func(resets ...time.Duration) float64 {
		d := newLawDriver(0.001, math.Inf(1))
		d.law.setLimit(d.now, 100)
		for _, reset := range resets {
			for left := 60; left > 1; left-- {
				d.law.held(d.now)
				sent := d.send()
				d.after(10 * ms)
				q := Quota{Limit: 100, Remaining: left, Reset: reset}
				d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
			}
		}
		return d.law.limit()
	}
	assert.GreaterOrEqual(t, low(time.Second), 100.)
	assert.GreaterOrEqual(t, low(5*time.Second), 100.)
	assert.Less(t, low(time.Minute), 100.)
	assert.Less(t, low(time.Minute, 2*time.Second), 100.)
}

// Of a window that was largely used up before it was first seen, what is left lasts until its
// reset all the same. A bucket that others use, too, is none.
func TestLawRationsWhatOthersLeft(t *testing.T) {
	for _, left := range []int{2500, 1200, 1000, 300, 100} {
		t.Run(fmt.Sprintf("%d of 5000", left), func(t *testing.T) {
			d := newLawDriver(0.001, math.Inf(1))
			d.law.setLimit(d.now, 100)
			reset := d.now.Add(50 * time.Minute)
			for ; left > 0 && d.now < reset; left-- {
				d.law.held(d.now)
				d.after(max(0, clock.CeilSeconds(1/d.law.limit())-50*ms))
				sent := d.send()
				d.after(50 * ms)
				q := Quota{Limit: 5000, Remaining: left - 1, Reset: reset.Sub(d.now)}
				d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
			}
			assert.Less(t, reset.Sub(d.now), 2*time.Minute, "and no sooner")
			assert.Less(t, left, 50, "nor is much left")
		})
	}
	t.Run("a bucket", func(t *testing.T) {
		d := newLawDriver(0.001, math.Inf(1))
		d.law.setLimit(d.now, 10)
		for i := range 500 { // 10 a second, of a hundred at most
			d.law.held(d.now)
			sent := d.send()
			left := 20 - i%8
			q := Quota{Limit: 100, Remaining: left, Reset: time.Duration(100-left) * 100 * ms}
			d.law.done(d.after(100*ms).now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
			require.Zero(t, d.law.unspread)
		}
	})
}

// What is left speeds growth up as long as it does not fall: while it does, it may
// be all that there is for a long time. Where a reset is told, that is known.
func TestLawHurriesOnlyWhileTheRestHolds(t *testing.T) {
	grown := func(step int, reset time.Duration) float64 {
		d := newLawDriver(0.001, math.Inf(1))
		d.law.setLimit(d.now, 10)
		left := 500
		for range 20 {
			d.after(ms).law.held(d.now)
			sent := d.send()
			d.after(99 * ms)
			left += step
			q := Quota{Limit: 1000, Remaining: left, Reset: reset}
			d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
		}
		return d.law.limit()
	}
	falls, holds, rises := grown(-1, 0), grown(0, 0), grown(1, 0)
	assert.Greater(t, falls, 10.)
	assert.Greater(t, holds, falls+3)
	assert.InDelta(t, holds, rises, 1)
	assert.Greater(t, grown(-1, time.Hour), falls+3)
}

// Where a part of the limit has been used and is back already, there is more to be had:
// the rate doubles, as long as less than a quarter of the limit is in use.
func TestLawFollowsWhatComesBack(t *testing.T) {
	steady := func(left int) func(int) int { return func(int) int { return left } }
	for _, tt := range []struct {
		name        string
		limit       int
		left        func(call int) int // negative: not told
		flying      int                // other calls
		least, most float64            // of the rate after 60 calls at 10 a second
	}{
		{"at once", 12, steady(11), 0, 320, 640},
		{"nothing was used", 12, steady(12), 0, 320, 640},
		{"more than the limit is left", 12, steady(13), 0, 320, 640},
		{"little by little", 12, func(i int) int { return 10 + i%2 }, 0, 320, 640},
		{"told now and then", 12, func(i int) int { return 11 - 12*min(1, i%10) }, 0, 320, 640},
		{"a third is in use", 12, steady(8), 0, 75, 200},
		{"half is in use", 12, steady(6), 0, 10, 14},
		{"a large limit takes more calls", 60, steady(59), 0, 80, 200},
		{"a larger one too many", 400, steady(199), 0, 10, 50},
		{"it may be that answers overtake each other", 60, steady(59), 25, 10, 50},
		{"it falls", 200, func(i int) int { return 199 - i }, 0, 10, 14},
		{"a window begins anew", 12, func(i int) int { return 11 - i%6 }, 0, 10, 14},
		{"the limit is not told", 0, steady(11), 0, 10, 14},
	} {
		for _, cost := range []int{1, 10} { // what is left is costs
			t.Run(fmt.Sprintf("%s, calls of cost %d", tt.name, cost), func(t *testing.T) {
				d := newLawDriver(0.001, math.Inf(1))
				d.law.setLimit(d.now, 10*float64(cost))
				for range tt.flying {
					d.send()
				}
				for i := range 60 {
					d.after(ms).law.held(d.now)
					e := ending{outcome: OutcomeSuccess, sent: d.send(), cost: cost}
					if left := tt.left(i); left >= 0 {
						e.quota = &Quota{Limit: tt.limit * cost, Remaining: left * cost}
					}
					d.after(99*ms).law.done(d.now, e, false)
				}
				assert.GreaterOrEqual(t, d.law.limit()/float64(cost), tt.least)
				assert.LessOrEqual(t, d.law.limit()/float64(cost), tt.most)
			})
		}
	}
}

// A throttle while enough is left shows that something else limits calls, whatever comes
// back of the quota, until a throttle comes as the quota says.
func TestLawDoesNotFollowAQuotaThatThrottlesNobody(t *testing.T) {
	left := func(n int) *Quota { return &Quota{Limit: 12, Remaining: n} }
	for _, tt := range []struct {
		name    string
		before  *Quota   // what a success was told
		with    []*Quota // what throttles were
		follows bool
	}{
		{"nothing left", left(11), []*Quota{left(0)}, true},
		{"some left", left(1), []*Quota{left(1)}, false},
		{"nothing said, little left before", left(6), []*Quota{nil}, true},
		{"nothing said, more than half left before", left(7), []*Quota{nil}, false},
		{"nothing ever said", nil, []*Quota{nil}, true},
		{"nothing said, few left of nobody knows how many", &Quota{Remaining: 10}, []*Quota{nil}, true},
		{"nothing said, many left of nobody knows how many", &Quota{Remaining: 11}, []*Quota{nil}, false},
		{"nothing left, then some", left(11), []*Quota{left(0), left(1)}, false},
		{"some left, then nothing", left(11), []*Quota{left(1), left(0)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			grown := func(before *Quota, with []*Quota, then *Quota) float64 {
				d := newLawDriver(0.001, math.Inf(1))
				end := func(outcome Outcome, q *Quota) {
					sent := d.send()
					d.law.done(d.after(99*ms).now, ending{outcome: outcome, sent: sent, cost: 1, quota: q}, false)
				}
				d.law.setLimit(d.now, 10)
				end(OutcomeSuccess, before)
				for _, q := range with {
					end(OutcomeThrottled, q)
				}
				for range 60 {
					d.after(ms).law.held(d.now)
					end(OutcomeSuccess, then)
				}
				return d.law.limit()
			}
			if is := grown(tt.before, tt.with, left(11)); tt.follows {
				assert.Greater(t, is, 100.)
			} else {
				assert.Equal(t, grown(nil, make([]*Quota, len(tt.with)), nil), is, "as if it said nothing")
			}
		})
	}
}

// Where little is left of a quota the rate falls while less is left each time, and grows
// again with what is left.
func TestLawFollowsWhatIsLeft(t *testing.T) {
	const heedless = -1 // it grows as if nothing was told
	for _, tt := range []struct {
		name        string
		was         int // left before
		told        Quota
		ago         time.Duration // when that was heeded
		min         float64
		want        float64 // rate, of ten before
		wantCeiling float64 // of twenty before
	}{
		{"less than before", 9, Quota{Limit: 100, Remaining: 5}, 10 * time.Second, 0, 7.5, 10},
		{"less than before, of an unknown limit", 9, Quota{Remaining: 5}, 10 * time.Second, 0, 7.5, 10},
		{"less than before, at the minimum", 9, Quota{Limit: 100, Remaining: 5}, 10 * time.Second, 9, 9, 10},
		{"as much as before", 5, Quota{Limit: 100, Remaining: 5}, 10 * time.Second, 0, 7.5, 20},
		{"as much as before, at the minimum", 5, Quota{Limit: 100, Remaining: 5}, 10 * time.Second, 9, 9, 20},
		{"one more", 4, Quota{Limit: 100, Remaining: 5}, 10 * time.Second, 0, 10, 20},
		{"some more", 3, Quota{Limit: 100, Remaining: 5}, 10 * time.Second, 0, 10.316, 20},
		{"some more, for the first time in long", 3, Quota{Limit: 100, Remaining: 5}, time.Hour, 0, 12.5, 20},
		{"less, a moment ago", 9, Quota{Limit: 100, Remaining: 5}, 199 * ms, 0, 10, 20},
		{"less, two calls ago", 9, Quota{Limit: 100, Remaining: 5}, 200 * ms, 0, 7.5, 10},
		{"enough", 20, Quota{Limit: 100, Remaining: 10}, 10 * time.Second, 0, heedless, 20},
		{"not quite enough", 20, Quota{Limit: 100, Remaining: 9}, 10 * time.Second, 0, 7.5, 10},
		{"a quarter of a low limit", 20, Quota{Limit: 20, Remaining: 5}, 10 * time.Second, 0, heedless, 20},
		{"less than that", 20, Quota{Limit: 20, Remaining: 4}, 10 * time.Second, 0, 7.5, 10},
		{"of the least limit that is heeded", 20, Quota{Limit: 10, Remaining: 1}, 10 * time.Second, 0, 7.5, 10},
		{"of a limit that is used up and whole again at once", 9, Quota{Limit: 9, Remaining: 1}, 10 * time.Second, 0, heedless, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(tt.min, math.Inf(1))
			l := d.law
			l.setLimit(d.now, 10)
			d.after(2 * time.Hour)
			l.ceiling, l.hintAt, l.hintLeft = 20, d.now-clock.Instant(tt.ago)+clock.Instant(100*ms), tt.was
			d.send()
			l.held(d.now)
			l.done(d.after(100*ms).now, ending{outcome: OutcomeSuccess, sent: d.now, cost: 1, quota: &tt.told}, false)
			if tt.want == heedless {
				assert.Greater(t, l.limit(), 10.)
			} else {
				assert.InDelta(t, tt.want, l.limit(), .001)
			}
			assert.Equal(t, tt.wantCeiling, l.ceiling)
		})
	}
}

// Before the first throttle, a quota that is nearly used up shows the limit: the rate is a
// part of what the server gave.
func TestLawTakesALowRestForTheFirstThrottle(t *testing.T) {
	for _, tt := range []struct {
		name           string
		low, high      float64
		calls          int // before, at ten a second
		limit, ceiling float64
	}{
		{"below what was given", .01, math.Inf(1), 40, 7.5, 10},
		{"no less than the minimum", 9, math.Inf(1), 40, 9, 10},
		{"no more than the maximum", .01, 5, 40, 5, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(tt.low, tt.high)
			d.succeed(tt.calls, 100*ms)
			sent := d.after(ms).send()
			d.law.held(d.now)
			l := d.law
			l.done(d.after(99*ms).now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &Quota{Limit: 100, Remaining: 5}}, false)
			assert.InEpsilon(t, tt.limit, l.limit(), .05)
			assert.InEpsilon(t, tt.ceiling, l.ceiling, .05)
		})
	}
}

// A bucket of a few tokens is full when it says that few are left, and others may empty it: what
// stays low, however slowly calls come, is no reason to slow down further.
func TestLawIgnoresARestThatStays(t *testing.T) {
	for _, tt := range []struct {
		name        string
		left        func(call int) int
		limit       int
		least, most float64 // of the rate, in the end
	}{
		{"a small bucket that is full", func(int) int { return 4 }, 0, 9, math.Inf(1)},
		{"always nothing", func(int) int { return 0 }, 100, 9, math.Inf(1)},
		{"a small bucket that others use", func(i int) int { return 4 - i%5*3%5 }, 0, 7, math.Inf(1)},
		{"it is ten at times", func(i int) int { return 9 + i%8/7 }, 0, 0, 2},
		{"it is a quarter of the limit at times", func(i int) int { return 4 + i%8/7 }, 20, 0, 2},
		{"it was more once", func(i int) int { return max(4, 9-i) }, 0, 9, math.Inf(1)},
		{"it rises after all", func(i int) int { return 4 + max(0, i-60)/2 }, 0, 9, math.Inf(1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.001, math.Inf(1))
			d.law.setLimit(d.now, 10)
			for i := range 200 {
				gap := clock.CeilSeconds(1 / d.law.limit())
				d.after(gap).law.held(d.now)
				sent := d.send()
				q := Quota{Limit: tt.limit, Remaining: tt.left(i)}
				d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
			}
			assert.GreaterOrEqual(t, d.law.limit(), tt.least)
			assert.LessOrEqual(t, d.law.limit(), tt.most)
		})
	}
}

// Answers that tell nothing speed up no rate that was spread, until the reset has come.
func TestLawSpreadsForWhoIsToldNothing(t *testing.T) {
	d := newLawDriver(0.001, math.Inf(1))
	d.law.setLimit(d.now, 100)
	end := d.now.Add(time.Minute)
	for _, left := range []int{100, 50, 30} {
		sent := d.send()
		d.after(10 * ms)
		q := Quota{Limit: 100, Remaining: left, Reset: end.Sub(d.now)}
		d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
	}
	slow := d.law.limit()
	assert.Less(t, slow, 1.)
	d.succeed(5, time.Second)
	assert.Equal(t, slow, d.law.limit())
	d.after(time.Minute).succeed(5, time.Second)
	assert.Greater(t, d.law.limit(), 2*slow)
}

// When others have used up a window, one call goes out after its reset, rather
// than at the lowest rate there is.
func TestLawRationsNothingLeft(t *testing.T) {
	d := newLawDriver(0.001, math.Inf(1))
	d.law.setLimit(d.now, 100)
	end := d.now.Add(10 * time.Second)
	for _, left := range []int{50, 40, 0} {
		sent := d.send()
		d.after(10 * ms)
		q := Quota{Limit: 100, Remaining: left, Reset: end.Sub(d.now)}
		d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
	}
	assert.InDelta(t, 1/9.97, d.law.limit(), .001)
}

// A window of which more is left than the rate uses up makes it no faster.
func TestLawRationsNeverHurry(t *testing.T) {
	d := newLawDriver(0.001, math.Inf(1))
	d.law.setLimit(d.now, 1)
	end := d.now.Add(10 * time.Second)
	for _, left := range []int{100, 60, 50} {
		sent := d.send()
		d.after(10 * ms)
		q := Quota{Limit: 100, Remaining: left, Reset: end.Sub(d.now)}
		d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
	}
	assert.Less(t, d.law.limit(), 2.)
}

// A window's rest is spread until its reset and no longer: the next window begins at the
// rate of before, and a throttle meanwhile says nothing of what is too much.
func TestLawRationsOneWindowOnly(t *testing.T) {
	window := func() (*lawDriver, *aimd, func(limit, left int, reset time.Duration) lesson) {
		d := newLawDriver(0.001, math.Inf(1))
		d.law.setLimit(d.now, 10)
		tell := func(limit, left int, reset time.Duration) lesson {
			sent := d.send()
			d.after(10 * ms)
			q := Quota{Limit: limit, Remaining: left, Reset: reset}
			return d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
		}
		return d, d.law, tell
	}
	t.Run("the next window", func(t *testing.T) {
		d, l, tell := window()
		was := 10.
		for left := 9; left > 0; left-- {
			was = l.limit()
			tell(10, left, time.Minute-d.now.Sub(1))
			if l.unspread > 0 {
				break
			}
		}
		assert.Less(t, l.limit(), .2, "the rest of a minute")
		d.after(time.Minute)
		tell(10, 9, time.Minute)
		assert.InDelta(t, was, l.limit(), 1)
		assert.Zero(t, l.unspread)
	})
	t.Run("a throttle", func(t *testing.T) {
		d, l, tell := window()
		for left := 9; left > 0; left-- {
			tell(10, left, time.Minute-d.now.Sub(1))
		}
		pace := l.limit()
		require.Less(t, pace, .2)
		ceiling := l.ceiling
		d.throttle()
		assert.InDelta(t, ceiling, l.ceiling, .1)
		assert.InDelta(t, pace, l.limit(), .01)
		d.after(time.Minute)
		tell(10, 9, time.Minute)
		assert.InDelta(t, ceiling/2, l.limit(), ceiling/10, "cut once")
	})
	for _, after := range []int{1, 40, 80, 103, 110} { // calls since a tenth of the window was left; 100 end it
		t.Run(fmt.Sprintf("a throttle after %d calls", after), func(t *testing.T) {
			d, l, tell := window()
			left, end := 1000, d.now.Add(time.Hour)
			call := func() {
				l.held(d.now)
				d.after(clock.CeilSeconds(1/l.limit()) - 10*ms)
				if left--; d.now.Add(10*ms) >= end {
					left, end = 999, end.Add(time.Hour)
				}
				tell(1000, left, end.Sub(d.now)-10*ms)
			}
			for l.unspread == 0 {
				call()
			}
			was := l.unspread
			for range after {
				call()
			}
			d.throttle()
			assert.InEpsilon(t, was/2, max(l.rate, l.unspread), .15)
			was = max(l.rate, l.unspread)
			call()
			d.throttle()
			assert.GreaterOrEqual(t, max(l.rate, l.unspread), was*.4, "the wait for what was saved is none for the server")
		})
	}
	for _, tt := range []struct{ reset, want time.Duration }{{8 * time.Second, 8 * time.Second}, {time.Minute, 0}} {
		t.Run(fmt.Sprintf("used up for %v", tt.reset), func(t *testing.T) {
			_, _, tell := window()
			var this lesson
			for left := 9; left >= 0; left-- {
				this = tell(10, left, tt.reset)
				if left > 0 {
					assert.Zero(t, this.pause)
				}
			}
			assert.Equal(t, tt.want, this.pause)
		})
	}
}

// Answers that overtake each other, or tell of two quotas in turn, may make less of the
// first figures than was used. The part is learnt all the same.
func TestLawLearnsItsPartFromDisorder(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first []Quota
	}{
		{"in order", []Quota{{Limit: 5000, Remaining: 4999}, {Limit: 5000, Remaining: 4997}}},
		{"answers overtake each other", []Quota{{Limit: 5000, Remaining: 4997}, {Limit: 5000, Remaining: 4999}}},
		{"two quotas with one reset", []Quota{{Limit: 100, Remaining: 50}, {Limit: 5000, Remaining: 4999}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newLawDriver(0.001, 20)
			d.law.setLimit(d.now, 10)
			start := d.now
			tell := func(q Quota) {
				sent := d.send()
				d.after(10 * ms)
				q.Reset = time.Hour - d.now.Sub(start)
				d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
			}
			for _, q := range tt.first {
				tell(q)
			}
			for left := 4900; left > 3000; left -= 2 { // one other uses as much
				tell(Quota{Limit: 5000, Remaining: left})
			}
			assert.InDelta(t, .5, d.law.part.of(1), .05)
		})
	}
}

// What is told to be left is costs, not calls.
func TestLawHeedsQuotasByCost(t *testing.T) {
	firstCut := func(cost int) (left int) {
		d := newLawDriver(0.001, math.Inf(1))
		d.law.setLimit(d.now, float64(10*cost))
		for range 5 {
			d.send()
		}
		for left = 100; left > 0; left-- {
			d.law.held(d.now)
			sent := d.send()
			q := Quota{Limit: 100 * cost, Remaining: left * cost}
			why := d.law.done(d.after(100*ms).now, ending{outcome: OutcomeSuccess, sent: sent, cost: cost, quota: &q}, false).why
			if why == CauseQuota && d.law.rate < d.law.ceiling {
				return left
			}
		}
		return left
	}
	assert.Greater(t, firstCut(1), 5, "while there is enough for what is under way")
	assert.Equal(t, firstCut(1), firstCut(50))
}

// That calls take longer than they did is no reason to use up a window.
func TestLawRationsWhatIsLeftAtAQueue(t *testing.T) {
	for _, took := range []time.Duration{20 * ms, 50 * ms} {
		d := newLawDriver(0.001, math.Inf(1))
		d.law.setLimit(d.now, 100)
		d.succeed(300, 20*ms)
		end := d.now.Add(10 * time.Second)
		tell := func(left int) lesson {
			d.law.held(d.now)
			sent := d.send()
			d.after(took)
			q := Quota{Limit: 100, Remaining: left, Reset: end.Sub(d.now)}
			return d.law.done(d.now, ending{outcome: OutcomeSuccess, sent: sent, cost: 1, quota: &q}, false)
		}
		for left := 99; left >= 8; left-- {
			tell(left)
		}
		assert.InDelta(t, 8/end.Sub(d.now).Seconds(), d.law.limit(), .1, "%v", took)
		assert.Equal(t, end.Sub(d.now)-took, tell(0).pause, "%v", took)
	}
}

// A meter's clock goes on while somebody wants something, and through a pause.
func TestMeterClock(t *testing.T) {
	const s = clock.Instant(time.Second)
	idle := func(now, until clock.Instant) func(*meter) { return func(m *meter) { m.idle(now, until) } }
	busy := func(now clock.Instant) func(*meter) { return func(m *meter) { m.busy(now) } }
	skip := func(now clock.Instant, but time.Duration, until clock.Instant) func(*meter) {
		return func(m *meter) { m.skip(now, but, until) }
	}
	for _, tt := range []struct {
		name  string
		steps []func(*meter) // after busy at 10 s
		want  time.Duration  // at 100 s
	}{
		{"busy", nil, 90 * time.Second},
		{"idle", []func(*meter){idle(20*s, 0)}, 10 * time.Second},
		{"busy again", []func(*meter){idle(20*s, 0), busy(90 * s), busy(95 * s)}, 20 * time.Second},
		{"nobody waits in a pause", []func(*meter){idle(20*s, 50*s)}, 40 * time.Second},
		{"somebody comes at its end", []func(*meter){idle(20*s, 50*s), busy(50 * s)}, 90 * time.Second},
		{"somebody comes later", []func(*meter){idle(20*s, 50*s), busy(80 * s)}, 60 * time.Second},
		{"and goes", []func(*meter){idle(20*s, 50*s), busy(80 * s), idle(90*s, 50*s)}, 50 * time.Second},
		{"a pause of which little counts", []func(*meter){skip(20*s, 5*time.Second, 60*s)}, 55 * time.Second},
		{"and nobody waits", []func(*meter){skip(20*s, 5*time.Second, 60*s), idle(20*s, 60*s)}, 15 * time.Second},
		{"nobody waits, and it ends before", []func(*meter){idle(20*s, 50*s), skip(30*s, 0, 30*s)}, 20 * time.Second},
		{"nobody waits, and it gets longer", []func(*meter){idle(20*s, 50*s), skip(30*s, 0, 80*s), busy(70 * s)}, 40 * time.Second},
		{"another pause when the clock stands", []func(*meter){idle(20*s, 50*s), idle(60*s, 90*s)}, 40 * time.Second},
		{"and that ends sooner", []func(*meter){skip(20*s, 5*time.Second, 60*s), skip(22*s, 0, 22*s)}, 90 * time.Second},
		{"and that ends later", []func(*meter){skip(20*s, 5*time.Second, 60*s), skip(40*s, 0, 40*s)}, 75 * time.Second},
		{"and another one begins", []func(*meter){skip(20*s, 5*time.Second, 60*s), skip(22*s, 5*time.Second, 80*s)}, 35 * time.Second},
		{"skipped while idle", []func(*meter){idle(20*s, 0), skip(30*s, 5*time.Second, 60*s)}, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m meter
			m.busy(10 * s)
			for _, step := range tt.steps {
				step(&m)
			}
			assert.Equal(t, tt.want, m.clock(100*s))
		})
	}
}
