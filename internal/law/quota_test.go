package law

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Whether a rest is low depends on what must be left.
func TestReserve(t *testing.T) {
	for _, tt := range []struct {
		name     string
		limit    int
		inflight int
		cost     float64
		reserve  int // 0: the quota is not heeded
	}{
		{"eight", 0, 0, 1, 8},
		{"twice those in flight, and the next one", 0, 9, 1, 20},
		{"by cost", 0, 0, 7, 56},
		{"those in flight by cost", 0, 9, 7, 140},
		{"a quarter of the limit", 20, 0, 1, 5},
		{"a limit as small as what must be left", 8, 0, 1, 2},
		{"one that is smaller", 7, 0, 1, 0},
		{"one that is smaller than what is in flight", 19, 9, 1, 0},
		{"one that is not", 20, 9, 1, 5},
		{"a great limit", 1000, 0, 1, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			low := func(left int) bool {
				d := paced(8)
				d.inflight, d.cost = tt.inflight, tt.cost
				return d.heed(d.now, 0, Quota{Limit: tt.limit, Remaining: left})
			}
			if tt.reserve > 0 {
				assert.False(t, low(tt.reserve))
				assert.True(t, low(tt.reserve-1))
			} else {
				assert.False(t, low(0))
			}
		})
	}
}

// A quota that is nearly used up is a throttle that cost nothing.
func TestHeed(t *testing.T) {
	const ago = -time.Second
	for _, tt := range []struct {
		name                     string
		before                   int           // the rest when it was last looked at,
		at                       time.Duration // which was then, 0 for never
		sent                     time.Duration // 0 if unknown
		cutAt                    time.Duration // 0 for never
		left                     int
		reset                    time.Duration
		settled                  bool
		rate, ceiling            float64
		remembered, creditedFrom bool // the rest; and growth begins anew
	}{
		{"it falls", 5, ago, 0, 0, 4, 0, true, 8.2, 10, true, true},
		{"it stays", 5, ago, 0, 0, 5, 0, true, 8.5, 20, true, true},
		{"it rises by one", 5, ago, 0, 0, 6, 0, true, 10, 20, true, true},
		{"to nothing", 5, ago, 0, 0, 0, 0, true, 7, 10, true, true},
		{"it rises by more", 5, ago, 0, 0, 7, 0, true, 10 + .5*math.Sqrt(10), 20, true, true},
		{"for the first time", 0, 0, 0, 0, 5, 0, true, 10, 20, true, false},
		{"too soon", 5, -199 * ms, 0, 0, 4, 0, true, 10, 20, false, false},
		{"soon enough", 5, -200 * ms, 0, 0, 4, 0, true, 8.2, 10, true, true},
		{"sent before the last cut", 5, ago, -600 * ms, -500 * ms, 4, 0, true, 10, 20, false, false},
		{"sent at the last cut", 5, ago, -500 * ms, -500 * ms, 4, 0, true, 10, 20, false, false},
		{"sent after it", 5, ago, -400 * ms, -500 * ms, 4, 0, true, 8.2, 10, true, true},
		{"enough", 50, ago, 0, 0, 10, 0, false, 10, 20, true, false},
		{"a short reset", 5, ago, 0, 0, 4, 5 * time.Second, false, 10, 20, false, false},
		{"a longer one", 5, ago, 0, 0, 4, 5*time.Second + 1, true, 8.2, 10, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(10)
			at := func(t time.Duration) clock.Instant {
				if t == 0 {
					return 0
				}
				return d.now + clock.Instant(t)
			}
			d.ceiling, d.credit, d.spare = 20, 1, 99
			d.longest = tt.reset
			d.lowAt, d.lowLeft, d.lowCutAt = at(tt.at), tt.before, at(tt.cutAt)
			assert.Equal(t, tt.settled, d.heed(d.now, at(tt.sent), Quota{Remaining: tt.left, Reset: tt.reset}))
			assert.InDelta(t, tt.rate, d.Rate(), 1e-9)
			assert.Equal(t, tt.ceiling, d.ceiling)
			assert.Zero(t, d.spare)
			if tt.remembered {
				assert.Equal(t, d.now, d.lowAt)
				assert.Equal(t, tt.left, d.lowLeft)
			} else {
				assert.Equal(t, at(tt.at), d.lowAt)
				assert.Equal(t, tt.before, d.lowLeft)
			}
			if tt.rate < 10 {
				assert.Equal(t, d.now, d.lowCutAt)
			} else {
				assert.Equal(t, at(tt.cutAt), d.lowCutAt)
			}
			if tt.creditedFrom {
				assert.Equal(t, d.now, d.credit)
			} else {
				assert.Equal(t, clock.Instant(1), d.credit)
			}
		})
	}
}

func TestHeedWithinBounds(t *testing.T) {
	d := paced(10)
	d.Min, d.Max = 9, 10.01
	d.lowAt, d.lowLeft = d.now-clock.Instant(time.Second), 5
	d.heed(d.now, 0, Quota{Remaining: 4})
	assert.Equal(t, 9., d.Rate())
	d.rate = 10
	d.heed(d.after(time.Second).now, 0, Quota{Remaining: 9})
	assert.Equal(t, 10.01, d.Rate())
	d.rate, d.Max = .04, inf
	d.heed(d.after(time.Hour).now, 0, Quota{Remaining: 4})
	d.heed(d.after(time.Hour).now, 0, Quota{Remaining: 9})
	assert.LessOrEqual(t, d.Rate(), 9*1.25, "a quarter more at most")
}

// Where a low rest is the cut, the peak fades with it: a process that was alone before would push
// aside the others for ever.
func TestLowRestFadesThePeak(t *testing.T) {
	d := paced(10)
	d.peak = 50
	d.lowAt, d.lowLeft = d.now-clock.Instant(time.Second), 5
	d.heed(d.now, 0, Quota{Remaining: 4})
	assert.InEpsilon(t, 46, d.peak, 1e-9)
	d.heed(d.after(time.Second).now, 0, Quota{Remaining: 9})
	assert.InEpsilon(t, 46, d.peak, 1e-9, "not as it rises")
}

// A rest lasts for a second at least.
func TestReserveOfASecond(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rate    float64
		limit   int
		reserve int
	}{
		{"calls of a second", 50, 0, 50},
		{"of a slow process", 5, 0, 8},
		{"a quarter of the limit at most", 50, 100, 25},
		{"no matter how small the limit", 50, 12, 3},
	} {
		for left, low := range map[int]bool{tt.reserve: false, tt.reserve - 1: true} {
			d := paced(tt.rate)
			assert.Equal(t, low, d.heed(d.now, 0, Quota{Limit: tt.limit, Remaining: left}), tt.name)
		}
	}
}

// Before the first throttle, a low rest shows the limit.
func TestHeedGivesARate(t *testing.T) {
	for _, tt := range []struct {
		name          string
		low, high     float64
		rate, ceiling float64
	}{
		{"less than what was delivered", .001, inf, 7, 10},
		{"no less than the minimum", 9, inf, 9, 10},
		{"no more than the maximum", .001, 5, 5, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &driver{Law: New(Config{Min: tt.low, Max: tt.high, Decrease: .5, Increase: .1}), now: clock.Instant(time.Hour)}
			d.succeed(40, 100*ms)
			assert.True(t, d.heed(d.now, 0, Quota{Remaining: 5}))
			assert.InEpsilon(t, tt.rate, d.Rate(), .04)
			assert.InEpsilon(t, tt.ceiling, d.ceiling, .04)
			assert.Equal(t, []clock.Instant{d.now, d.now, d.now}, []clock.Instant{d.credit, d.lowAt, d.lowCutAt})
			assert.Equal(t, 5, d.lowLeft)
		})
	}
	d := unpaced()
	assert.False(t, d.heed(d.now, 0, Quota{Remaining: 5}), "nothing is known")
	assert.Equal(t, inf, d.Rate())
}

// What is left above the reserve lets the rate grow, but not while it falls.
func TestSpare(t *testing.T) {
	for _, tt := range []struct {
		name  string
		was   int
		left  int
		reset time.Duration
		want  float64
	}{
		{"more than before", 19, 20, 0, 1},
		{"as much", 20, 20, 0, 1},
		{"it falls", 21, 20, 0, 0},
		{"it falls, and a reset says when more comes", 21, 20, time.Minute, 0},
		{"a little more than enough", 0, 12, 0, .2},
		{"just enough", 0, 10, 0, 0},
		{"far more than enough", 0, 5000, 0, 1},
		{"a short reset", 0, 20, time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(10)
			d.lowLeft, d.longest = tt.was, tt.reset
			assert.False(t, d.heed(d.now, 0, Quota{Remaining: tt.left, Reset: tt.reset}))
			assert.InDelta(t, tt.want, d.spare, 1e-9)
		})
	}
}

// An answer that tells of a quota makes the rate grow faster; the next one that tells nothing
// does not.
func TestSpareIsOfOneAnswer(t *testing.T) {
	grown := func(q *Quota) float64 {
		d := paced(10)
		d.tell(Quota{Remaining: 1000})
		d.SetRate(d.now, 10)
		d.Held(d.after(50 * ms).now)
		d.after(50 * ms).end(Attempt{Kind: Success, Sent: d.send(), Quota: q})
		return d.Rate() - 10
	}
	plain := grown(nil)
	assert.Positive(t, plain)
	assert.InEpsilon(t, plain+.1*.05*10*math.Sqrt(10), grown(&Quota{Remaining: 1000}), .2)
	assert.InEpsilon(t, plain, grown(&Quota{Remaining: 10}), 1e-9)
}

// While a rest is low, the rate does not grow by success.
func TestNoGrowthWhileLow(t *testing.T) {
	d := paced(10)
	for left := range 9 {
		d.Held(d.after(200 * ms).now)
		assert.Equal(t, ByQuota, d.after(50*ms).tell(Quota{Remaining: left}).Why)
		assert.Equal(t, 10., d.Rate())
	}
}

// What comes with other ends than success is not heeded.
func TestQuotaOfFailures(t *testing.T) {
	for _, kind := range []Kind{Nothing, Passed, Throttle} {
		d := paced(10)
		for range 5 {
			d.after(time.Second).end(Attempt{Kind: kind, Sent: d.send(), Quota: &Quota{Remaining: 1}})
		}
		assert.Equal(t, 10., d.Rate(), "kind %d", kind)
	}
	d := paced(10)
	for range 5 {
		d.after(time.Second).end(Attempt{Kind: Denied, Sent: d.send(), Quota: &Quota{Remaining: 1}})
	}
	assert.Less(t, d.Rate(), 10., "an answer is one, whatever it says")
}

// A rest that never changes tells nothing: the rate would fall to the least.
func TestHeedNoRestThatStays(t *testing.T) {
	d := paced(100)
	settled := func(left int) bool {
		d.lowAt = d.now
		d.after(time.Minute)
		return d.heed(d.now, d.now, Quota{Remaining: left})
	}
	for range memoryLeast {
		assert.True(t, settled(0))
	}
	rate := d.Rate()
	assert.False(t, settled(0))
	assert.Equal(t, rate, d.Rate())
	assert.True(t, settled(7), "it changed")
	assert.True(t, settled(6))
}

// A quota whose reset is never more than some seconds away is whole again before a slower rate
// shows. The last seconds of a long window are no such quota.
func TestQuick(t *testing.T) {
	low := func(resets ...time.Duration) float64 {
		d := paced(100)
		for _, reset := range resets {
			for left := 60; left > 1; left-- {
				d.Held(d.now)
				sent := d.send()
				d.after(10 * ms).end(Attempt{Kind: Success, Sent: sent, Quota: &Quota{Limit: 100, Remaining: left, Reset: reset}})
			}
		}
		return d.Rate()
	}
	assert.GreaterOrEqual(t, low(time.Second), 100.)
	assert.GreaterOrEqual(t, low(quickMost), 100.)
	assert.Less(t, low(time.Minute), 100.)
	assert.Less(t, low(time.Minute, 2*time.Second), 100.)
}
