package law

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

// told is what an answer tells, at some time after the first one.
type told struct {
	at   time.Duration
	left int
	ends time.Duration // the reset as an instant, after the first answer
}

// A reset that stays where it is while calls are used up is that of a window.
func TestWindowed(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, tt := range []struct {
		name  string
		limit int
		tell  []told
		want  bool
	}{
		{"a window", 100, []told{{0, 99, m}, {s, 96, m}}, true},
		{"one call used", 100, []told{{0, 99, m}, {s, 98, m}}, true},
		{"no call used", 100, []told{{0, 99, m}, {s, 99, m}}, false},
		{"no limit told", 0, []told{{0, 99, m}, {s, 96, m}}, true},
		{"no reset told", 100, []told{{0, 99, 0}, {s, 90, s}}, false},
		{"rounded to a second", 100, []told{{0, 99, m}, {s, 90, m + s}, {2 * s, 80, m - s}}, true},
		{"moved by more", 100, []told{{0, 99, m}, {s, 90, m + 2200*ms}}, false},
		{"a long one may move by a hundredth", 100, []told{{0, 99, 1000 * s}, {s, 90, 1010 * s}}, true},
		{"but no more", 100, []told{{0, 99, 1000 * s}, {s, 90, 1015 * s}}, false},
		{"a bucket's moves with every call", 100, []told{{0, 90, 10 * s}, {s, 80, 21 * s}, {2 * s, 70, 32 * s}}, false},
		{"a bucket's that moved by less than can be told", 1000, []told{{0, 999, s}, {100 * ms, 996, 1300 * ms}}, false},
		{"a bucket's that would have moved", 1000, []told{{0, 999, m}, {s, 900, m}}, true},
		{"one that would have moved by less", 1000, []told{{0, 999, m}, {s, 996, m}}, true},
		{"few of many calls, and a short reset", 1000, []told{{0, 999, 2 * s}, {s, 996, 2 * s}}, false},
		{"few of all that are used", 1000, []told{{0, 500, m}, {s, 490, m}}, false},
		{"more of all that are used", 1000, []told{{0, 500, m}, {s, 480, m}}, true},
		{"a new window", 100, []told{{0, 30, m}, {s, 20, m}, {m, 99, 2 * m}}, false},
		{"and used again", 100, []told{{0, 30, m}, {s, 20, m}, {m, 99, 2 * m}, {m + s, 90, 2 * m}}, true},
		{"its last second", 100, []told{{0, 99, m}, {s, 90, m}, {59 * s, 2, m}}, true},
		{"a last second that is all there is", 100, []told{{58 * s, 99, m}, {59 * s, 2, m}}, false},
		{"one whose reset brings nothing back, as it slides", 100, []told{{0, 30, m}, {s, 20, m}, {m, 20, 2 * m}, {m + s, 10, 2 * m}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(10)
			begin := d.now
			var is bool
			for _, q := range tt.tell {
				d.now = begin.Add(q.at)
				is = d.windowed(d.now, Quota{Limit: tt.limit, Remaining: q.left, Reset: max(0, q.ends-q.at)})
			}
			assert.Equal(t, tt.want, is)
		})
	}
}

// The next window begins with the rate from before the rest of the last one was spread.
func TestNewWindowTakesUpTheRate(t *testing.T) {
	for _, tt := range []struct {
		name           string
		rate, unspread float64
		reset          time.Duration
		want           float64
		still          float64
		renewed        bool
	}{
		{"the rate of before", 1, 8, 2 * time.Minute, 8, 0, true},
		{"a rate that is higher by now", 9, 8, 2 * time.Minute, 9, 0, false},
		{"no more than the maximum", 1, 99, 2 * time.Minute, 20, 0, true},
		{"the same window", 1, 8, time.Minute, 1, 8, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(10)
			d.Max = 20
			d.resetAt = d.now.Add(time.Minute)
			d.rate, d.unspread, d.credit = tt.rate, tt.unspread, 1
			d.windowed(d.now, Quota{Limit: 100, Remaining: 99, Reset: tt.reset})
			assert.Equal(t, tt.want, d.Rate())
			assert.Equal(t, tt.still, d.unspread)
			assert.Equal(t, tt.renewed, d.credit == d.now)
		})
	}
}

func TestRation(t *testing.T) {
	const s = time.Second
	type state struct {
		rate, ceiling, unspread float64
		inflight                int
		each, cost              float64 // of the quota for each call
		min                     float64
	}
	for _, tt := range []struct {
		name string
		state
		q                   Quota
		rate, was, unspread float64 // the new rate; and the old ceiling if 0
	}{
		{"less than a tenth is left", state{rate: 10, ceiling: 20}, Quota{100, 9, 10 * s}, .9, 20, 10},
		{"a tenth is", state{rate: 10, ceiling: 20}, Quota{100, 10, 10 * s}, 10, 20, 0},
		{"no limit told", state{rate: 10, ceiling: 20}, Quota{0, 50, 10 * s}, 5, 20, 10},
		{"calls in flight", state{rate: 10, ceiling: 20, inflight: 5}, Quota{100, 14, 10 * s}, .9, 20, 10},
		{"calls in flight that cost ten", state{rate: 100, ceiling: 200, inflight: 5, cost: 10}, Quota{1000, 140, 10 * s}, 9, 200, 100},
		{"nothing is left: one call", state{rate: 10, ceiling: 20}, Quota{100, 0, 10 * s}, .1, 20, 10},
		{"one that costs ten", state{rate: 10, ceiling: 20, cost: 10}, Quota{100, 0, 10 * s}, 1, 20, 10},
		{"more is left than the rate uses up", state{rate: .5, ceiling: 20}, Quota{100, 9, 10 * s}, .5, 20, 0},
		{"no less than the minimum", state{rate: 10, ceiling: 20, min: 3}, Quota{100, 9, 10 * s}, 3, 20, 10},
		{"a third is ours, at once", state{rate: 10, ceiling: 20, each: 3}, Quota{100, 90, 10 * s}, 9 * math.Pow(1./3, .9), 20, 10},
		{"those in flight are taken from all", state{rate: 10, ceiling: 20, each: 3, inflight: 5}, Quota{100, 90, 10 * s}, 7.5 * math.Pow(1./3, .9), 20, 10},
		{"more than nine tenths are ours", state{rate: 10, ceiling: 20, each: 1.11}, Quota{100, 90, 10 * s}, 10, 20, 0},
		{"less are", state{rate: 10, ceiling: 20, each: 1.25}, Quota{100, 80, 10 * s}, 8 * math.Pow(.8, .9), 20, 10},
		{"the ceiling is lower", state{rate: 10, ceiling: 7}, Quota{100, 9, 10 * s}, .9, 7, 7},
		{"spread before", state{rate: 2, ceiling: 7, unspread: 6}, Quota{100, 9, 10 * s}, .9, 7, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(10)
			d.Min = max(d.Min, tt.min)
			d.state(tt.state.rate, tt.ceiling, tt.state.unspread)
			d.inflight, d.cost, d.ours.each, d.credit = tt.inflight, max(1, tt.cost), tt.each, 1
			slower := tt.rate < tt.state.rate
			assert.Equal(t, slower, d.ration(d.now, tt.q))
			assert.InEpsilon(t, tt.rate, d.Rate(), 1e-9)
			assert.Equal(t, tt.was, d.ceiling)
			assert.Equal(t, tt.unspread, d.unspread)
			assert.Equal(t, slower, d.credit == d.now)
		})
	}
}

func (d *driver) state(rate, ceiling, unspread float64) {
	d.rate, d.ceiling, d.unspread = rate, ceiling, unspread
}

// Where there is no rate, the next window begins with what was delivered, or with what was left
// if that is more.
func TestRationGivesARate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		most    float64
		left    int
		want    float64
		ceiling float64
	}{
		{"what was delivered", inf, 5, .5, 10},
		{"what is left", inf, 200, 20, 20},
		{"no more than the maximum", 7, 5, .5, 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := unpaced()
			d.Max = tt.most
			d.succeed(32, 100*ms)
			assert.True(t, d.ration(d.now, Quota{Remaining: tt.left, Reset: 10 * time.Second}))
			assert.InEpsilon(t, tt.want, d.Rate(), 1e-9)
			assert.InEpsilon(t, tt.ceiling, d.ceiling, 1e-9)
			assert.InEpsilon(t, tt.ceiling, d.unspread, 1e-9)
		})
	}
}

func TestPart(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name     string
		each     float64
		after    time.Duration
		fell     int
		n        int // calls since; there were nine before
		inflight int
		cost     float64
		fresh    bool
		want     float64
	}{
		{"at first all is ours", 0, s, 50, 1, 0, 1, false, 1},
		{"at first all is ours, by cost", 0, s, 50, 1, 0, 10, false, 10},
		{"nobody else", 1, s, 1, 1, 0, 1, false, 1},
		{"as much by others", 1, s, 2, 1, 0, 1, false, 1 + 1./10},
		{"by two calls", 1, s, 4, 2, 0, 1, false, 1 + 2./11},
		{"others did before", 2, s, 1, 1, 0, 1, false, 2 - 1./10},
		{"four times as much at most", 1, s, 999, 1, 0, 1, false, 1 + 4./10},
		{"four times what it was at most", 3, s, 999, 1, 0, 1, false, 3 + (1+12-3)/10.},
		{"less than the calls cost", 1, s, 0, 1, 0, 1, false, 1},
		{"another quota that has more", 1, s, -999, 1, 0, 1, false, 1},
		{"a new window", 1, s, -50, 1, 0, 1, true, 1},
		{"no call since", 1, s, 50, 0, 0, 1, false, 1},
		{"long ago", 1, 20 * s, 11, 1, 0, 1, false, 1 + 10*.1/5},
		{"too few calls to tell them from those under way", 1, s, 99, 16, 2, 1, false, 1},
		{"calls under way may be used up", 1, s, 19, 17, 2, 1, false, 1},
		{"more than those", 1, s, 53, 17, 2, 1, false, 1 + 2.*17/26},
		{"a fifth of the time that is remembered", 1, 2 * s, 2, 1, 0, 1, false, 1 + 1./5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := clock.Instant(time.Hour)
			p := part{each: tt.each, at: now, n: 9, left: 5000, low: 5000}
			now = now.Add(tt.after)
			p.learn(now, 5000-tt.fell, 9+tt.n, tt.inflight, tt.cost, 2*s, 40*s, tt.fresh)
			assert.InEpsilon(t, tt.want, p.each, 1e-9)
		})
	}
	p := part{each: 1, at: 1, n: 1000, left: 9, low: 9}
	p.learn(1, 7, 1001, 0, 1, time.Second, time.Minute, false)
	assert.InEpsilon(t, 1+1./1001, p.each, 1e-9, "of all calls, if they take no time")
	assert.Equal(t, []float64{1, .5, 1}, []float64{(&part{each: .5}).of(1), (&part{each: 2}).of(1), (&part{}).of(7)})
}

// Of the answers to calls that overtake each other, the lowest rest counts.
func TestPartOfOvertakingAnswers(t *testing.T) {
	const inflight = 20
	for _, others := range []int{0, 1} {
		for seed := range uint64(100) {
			rng := rand.New(rand.NewPCG(seed, 0))
			p, now, highest := part{}, clock.Instant(time.Hour), 0.
			for n := range 2000 {
				now = now.Add(ms)
				left := 1_000_000 - (1+others)*(n+rng.IntN(2*inflight)-inflight)
				p.learn(now, left, n+1, inflight, 1, time.Second, time.Hour, n == 0)
				highest = max(highest, p.each)
			}
			if others == 0 {
				assert.Equal(t, 1., highest, "seed %d: a lone process is always alone", seed)
			}
			assert.InDelta(t, 1+others, p.each, .5)
		}
	}
}

// Parts come to be equal, whatever they were, and all of the quota is used.
func TestClaimsBecomeEqual(t *testing.T) {
	for _, first := range [][]float64{{.95, .05}, {.5, .5}, {.01, .33, .66}, {.9, .02, .02, .02, .02, .02}} {
		parts := slices.Clone(first)
		for range 30 {
			sum := 0.
			for i, p := range parts {
				parts[i] = (&part{each: 1 / p}).claim(1)
				sum += parts[i]
			}
			assert.GreaterOrEqual(t, sum, 1-1e-9)
			assert.LessOrEqual(t, sum, 1.25)
			for i := range parts {
				parts[i] /= sum
			}
		}
		assert.Less(t, slices.Max(parts), 1.25*slices.Min(parts), "from %v", first)
	}
	assert.Equal(t, 1., (&part{each: 1}).claim(1))
}

// By how much a quota fell is told by two answers, and takes as long as calls do.
func TestPartOfOthers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first []Quota
		fell  int
		want  float64
	}{
		{"alone", []Quota{{Limit: 5000, Remaining: 5000}}, 1, 1},
		{"one other", []Quota{{Limit: 5000, Remaining: 5000}}, 2, .5},
		{"answers that overtake each other", []Quota{{Limit: 5000, Remaining: 4997}, {Limit: 5000, Remaining: 4999}}, 2, .5},
		{"two quotas with one reset", []Quota{{Limit: 100, Remaining: 50}, {Limit: 5000, Remaining: 4999}}, 2, .5},
		{"in units of a hundredth", []Quota{{Limit: 500000, Remaining: 500000}}, 100, .01},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(10)
			end := d.now.Add(time.Hour)
			tell := func(q Quota) {
				q.Reset = end.Sub(d.after(10 * ms).now)
				d.tell(q)
			}
			for _, q := range tt.first {
				tell(q)
			}
			q := tt.first[len(tt.first)-1]
			for range 1000 {
				q.Remaining -= tt.fell
				tell(q)
			}
			assert.InEpsilon(t, tt.want, d.ours.of(1), .1)
		})
	}
	quiet := func(took time.Duration) float64 {
		d := paced(10)
		d.took = took
		end := d.now.Add(100 * time.Hour)
		for i := range 100 {
			d.after(time.Minute)
			d.windowed(d.now, Quota{Remaining: 100000 - 601*i, Reset: end.Sub(d.now)})
			d.delivered.add(d.now, 1)
		}
		return d.ours.each
	}
	assert.InDelta(t, 3, quiet(0), .1, "others use ten a second: two in two call intervals")
	assert.InDelta(t, 21, quiet(time.Second), 3, "20 in twice what a call takes")
}

// Answers that tell nothing speed up no rate that was spread, until the reset has come.
func TestSpreadForWhoIsToldNothing(t *testing.T) {
	d := paced(100)
	end := d.now.Add(time.Minute)
	for left := 99; left >= 9; left-- {
		d.tell(Quota{Limit: 100, Remaining: left, Reset: end.Sub(d.after(ms).now)})
	}
	slow := d.Rate()
	assert.InDelta(t, 9/60., slow, .01)
	d.demand(5, time.Second)
	assert.Equal(t, slow, d.Rate())
	d.now = end - clock.Instant(time.Second)
	d.demand(1, time.Second-1)
	assert.Equal(t, slow, d.Rate(), "just before")
	d.Held(d.now)
	d.after(1).end(Attempt{Kind: Success})
	assert.Greater(t, d.Rate(), slow)
	d.demand(5, time.Second)
	assert.Greater(t, d.Rate(), 2*slow)

	d = paced(10)
	d.tell(Quota{Limit: 100, Remaining: 90, Reset: time.Minute})
	was := d.Rate()
	d.demand(1, 100*ms)
	assert.Greater(t, d.Rate(), was, "nothing was spread")
}

// A window's rest is spread until its reset, and no longer.
func TestWindowFromEndToEnd(t *testing.T) {
	d := paced(10)
	end := d.now.Add(20 * time.Second)
	call := func(left int) Decision {
		return d.tell(Quota{Limit: 100, Remaining: left, Reset: end.Sub(d.after(100 * ms).now)})
	}
	for left := 99; left >= 10; left-- {
		call(left)
		assert.Equal(t, 10., d.Rate(), "%d left", left)
	}
	assert.Equal(t, ByQuota, call(9).Why)
	assert.InDelta(t, 9./10.9, d.Rate(), .01)
	in, rate := d.Renewed(d.now)
	assert.Equal(t, []any{10900 * ms, 10.}, []any{in, rate})
	d.after(2 * time.Second)
	call(0)
	assert.InEpsilon(t, 1/end.Sub(d.now).Seconds(), d.Rate(), 1e-9, "somebody else took the rest: one call goes, at the reset")
	d.now = end
	end = end.Add(20 * time.Second)
	this := call(99)
	assert.Equal(t, ByQuota, this.Why)
	assert.Equal(t, 10., d.Rate())
	assert.Zero(t, d.unspread)
}

// A quota that is no window's is heeded as what is left, one that is a window's is rationed.
func TestWindowIsNotHeeded(t *testing.T) {
	d := paced(1)
	end := d.now.Add(time.Minute)
	for left := 19; left >= 0; left-- {
		d.lowAt, d.lowLeft = 1, 100
		d.tell(Quota{Limit: 100, Remaining: left, Reset: end.Sub(d.after(ms).now)})
		if left < 17 {
			want := max(1, float64(left)) / 60
			if left >= 10 {
				want = 1
			}
			assert.InDelta(t, want, d.Rate(), .01, "%d left", left)
		} else {
			d.rate = 1
		}
	}
}
