package law

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A window is what a server with a window does: it lets calls through, closes, and opens again.
type window struct {
	calls   int           // 100 ms apart
	shut    time.Duration // from the first throttle to the last one
	opening time.Duration // from that to a success
}

func (w window) pass(d *driver) {
	d.succeed(w.calls, 100*ms)
	d.throttle(0)
	if w.shut > 0 {
		d.after(w.shut).throttle(0)
	}
	d.rate, d.ceiling = 99, 99
	d.after(w.opening).end(Attempt{Kind: Success, Sent: d.send()})
}

// given is what goes through from one opening to the next: the calls, and that of the success
// before.
func (w window) given() float64 {
	return float64(w.calls+1) / (float64(w.calls)/10 + w.shut.Seconds() + w.opening.Seconds()/2)
}

func TestClosingTeachesItsWindow(t *testing.T) {
	const (
		s, m = time.Second, time.Minute
		few  = memoryLeast - 2 // with the success that opens it is one less than a measure
	)
	for _, tt := range []struct {
		name    string
		windows []window
		teaches bool
	}{
		{"a closing", []window{{50, 8 * s, 4 * s}}, true},
		{"one throttle closes nothing", []window{{50, 0, 12 * s}}, false},
		{"as many calls as are a measure", []window{{few + 1, 8 * s, 4 * s}}, true},
		{"fewer", []window{{few, 8 * s, 4 * s}}, false},
		{"fewer, again", []window{{few, 8 * s, 4 * s}, {few, 8 * s, 4 * s}}, true},
		{"fewer, and others that give 9 % more", []window{{few, 8 * s, 4 * s}, {few, 7150 * ms, 4 * s}}, true},
		{"fewer, and others that give 12 % more", []window{{few, 8 * s, 4 * s}, {few, 6800 * ms, 4 * s}}, false},
		{"fewer, and others that give 8 % less", []window{{few, 8 * s, 4 * s}, {few, 9 * s, 4 * s}}, true},
		{"fewer, and others that give 12 % less", []window{{few, 8 * s, 4 * s}, {few, 9500 * ms, 4 * s}}, false},
		{"nearly five minutes", []window{{500, 4*m + 57*s, 4 * s}}, true},
		{"five minutes may be an outage", []window{{500, 4*m + 58*s, 4 * s}}, false},
		{"five minutes, again", []window{{500, 5 * m, 4 * s}, {500, 5 * m, 4 * s}}, true},
		{"a quarter of the time", []window{{30, 800 * ms, 400 * ms}}, true},
		{"less is no window's", []window{{30, 800 * ms, 398 * ms}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(100)
			d.delivered.busy(d.now)
			var was, rate float64
			for i, w := range tt.windows {
				was = d.opened.total.Seconds()
				w.pass(d)
				if i < len(tt.windows)-1 {
					assert.Equal(t, 99., d.ceiling, "the first one teaches nothing")
				}
				rate = w.given()
			}
			if len(tt.windows) > 1 { // the openings before ended at a success, not when the server opened
				w := tt.windows[len(tt.windows)-1]
				rate = float64(w.calls+1) / (d.opened.total.Seconds() - was - w.opening.Seconds()/2)
			}
			if tt.windows[0].shut > 0 {
				assert.InEpsilon(t, rate, d.given, 1e-6)
			}
			if !tt.teaches {
				assert.Equal(t, 99., d.ceiling)
				assert.GreaterOrEqual(t, d.Rate(), 99.)
				return
			}
			assert.InEpsilon(t, rate, d.ceiling, 1e-6)
			assert.InEpsilon(t, .95*rate, d.Rate(), 1e-6)
		})
	}
}

// What a window gives at first is no peak. Few calls say nothing of the peak: the server may have
// a brownout.
func TestClosingLowersThePeak(t *testing.T) {
	for calls, lower := range map[int]bool{memoryShort - 2: false, memoryShort - 1: true} {
		d := paced(100)
		d.delivered.busy(d.now)
		d.peak = 90
		window{calls, 8 * time.Second, 4 * time.Second}.pass(d)
		assert.Less(t, d.ceiling, 90., "%d calls", calls)
		assert.Equal(t, lower, d.peak == d.ceiling, "%d calls", calls)
	}
}

// What a closing costs is known once it comes again.
func TestPriceOfClosings(t *testing.T) {
	const s = time.Second
	long, longer, short := window{50, 8 * s, 4 * s}, window{50, 20 * s, 4 * s}, window{50, 0, 200 * ms}
	for _, tt := range []struct {
		name    string
		windows []window
		price   float64 // in seconds
	}{
		{"an outage", []window{long}, 0},
		{"an outage among throttles of a bucket", []window{short, short, longer, short}, .1},
		{"two closings", []window{long, longer}, 10},
		{"two closings, the longer one first", []window{longer, long}, 10},
		{"short ones since", []window{long, longer, short, short}, 10},
		{"three short ones since", []window{long, longer, short, short, short}, .1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(100)
			d.delivered.busy(d.now)
			for _, w := range tt.windows {
				w.pass(d)
			}
			assert.InDelta(t, tt.price, d.price, .051)
		})
	}
}

func TestClosing(t *testing.T) {
	begin := func() *driver {
		d := paced(100)
		d.succeed(50, 100*ms)
		return d
	}
	opens := func(d *driver) {
		d.after(4 * time.Second).end(Attempt{Kind: Success, Sent: d.send()})
		assert.Zero(t, d.row)
	}
	t.Run("the rate falls to just below what the window gives", func(t *testing.T) {
		d := begin()
		d.throttle(0)
		d.rate, d.peak = 50, 9
		d.after(8 * time.Second).throttle(0)
		opens(d)
		assert.InEpsilon(t, 51./15, d.ceiling, 1e-6)
		assert.InEpsilon(t, .95*51./15, d.Rate(), 1e-6)
		assert.InEpsilon(t, 51./15, d.peak, 1e-6, "what it gives at first is no peak")
		assert.Equal(t, d.now, d.credit, "nothing is paid for the time before")
	})
	t.Run("a rate that is less stays", func(t *testing.T) {
		d := begin()
		d.throttle(0)
		d.rate, d.peak = 2, 1
		d.after(8 * time.Second).throttle(0)
		opens(d)
		assert.Equal(t, 2., d.Rate())
		assert.Equal(t, 1., d.peak)
	})
	t.Run("no less than the minimum", func(t *testing.T) {
		d := begin()
		d.Min = 4
		d.throttle(0)
		d.after(8 * time.Second).throttle(0)
		opens(d)
		assert.Equal(t, []float64{4, 4}, []float64{d.ceiling, d.Rate()})
	})
	t.Run("a ceiling that is less stays", func(t *testing.T) {
		d := begin()
		d.throttle(0)
		d.ceiling, d.rate = 3, 3
		d.after(8 * time.Second).throttle(0)
		opens(d)
		assert.Equal(t, []float64{3, 3}, []float64{d.ceiling, d.Rate()})
	})
	t.Run("calls that cost ten", func(t *testing.T) {
		d := begin()
		d.throttle(0)
		d.cost = 10
		d.ceiling = 99
		d.after(8 * time.Second).throttle(0)
		d.after(4 * time.Second).end(Attempt{Kind: Success, Sent: d.send(), Cost: 10})
		assert.InEpsilon(t, 510./15, d.ceiling, 1e-6)
	})
	t.Run("late throttles close nothing", func(t *testing.T) {
		d := begin()
		d.throttle(0)
		for range 5 {
			d.after(2 * time.Second).end(Attempt{Kind: Throttle, Sent: d.send(), Late: true})
		}
		assert.Equal(t, 1, d.row)
		opens(d)
		assert.InDelta(t, 10, d.ceiling, .5)
	})
	t.Run("a late success opens nothing", func(t *testing.T) {
		d := begin()
		d.throttle(0)
		d.after(time.Second).end(Attempt{Kind: Success, Sent: d.send(), Late: true})
		d.delivered.busy(d.now)
		assert.Equal(t, 1, d.row)
		d.after(7 * time.Second).throttle(0)
		assert.Equal(t, 2, d.row, "in a row")
		opens(d)
		assert.InEpsilon(t, 52./15, d.given, 1e-6)
	})
	t.Run("other failures open nothing", func(t *testing.T) {
		for _, kind := range []Kind{Nothing, Passed} {
			d := begin()
			d.throttle(0)
			d.end(Attempt{Kind: kind, Sent: d.send()})
			assert.Equal(t, 1, d.row)
		}
	})
	t.Run("a denial opens", func(t *testing.T) {
		d := begin()
		d.throttle(0)
		d.end(Attempt{Kind: Denied, Sent: d.send()})
		assert.Zero(t, d.row)
	})
	t.Run("the measure begins where it opened", func(t *testing.T) {
		d := begin()
		d.throttle(0)
		d.after(8 * time.Second).throttle(0)
		opens(d)
		assert.Equal(t, 1, d.delivered.counted(), "the success")
		assert.Equal(t, d.delivered.clock(d.now)-2*time.Second, d.delivered.baseAt)
		assert.Equal(t, d.delivered.total(d.now), d.opened.total)
		assert.Equal(t, 51, d.opened.calls)
		d.succeed(20, 50*ms)
		assert.InDelta(t, 7, d.Delivered(d.now), .1, "21 calls in 1 s and half of the time in which it opened")
	})
	t.Run("one throttle begins no measure", func(t *testing.T) {
		d := begin()
		d.throttle(0)
		opens(d)
		assert.Zero(t, d.opened.calls)
	})
	t.Run("one as long as a call interval costs nothing", func(t *testing.T) {
		for rate, price := range map[float64]float64{10: 1.27, .1: 0} {
			d := paced(rate)
			d.delivered.busy(d.now)
			for range 3 {
				d.succeed(10, ms)
				d.throttle(0)
				opens(d)
			}
			assert.InDelta(t, price, d.price, .01, "%v a second", rate)
		}
	})
	t.Run("what a throttle costs", func(t *testing.T) {
		d := begin()
		d.throttle(3 * time.Second)
		assert.Equal(t, 3., d.price)
		d.end(Attempt{Kind: Throttle, RetryAfter: time.Hour, Late: true})
		assert.Equal(t, 3., d.price)
		d.throttle(0)
		assert.Zero(t, d.price)
	})
}

// A Retry-After that is longer than 30 calls take closes by itself.
func TestClosingByRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		name   string
		asked  time.Duration
		cost   float64
		closed bool
	}{
		{"short", 300 * ms, 1, false},
		{"long", 301 * ms, 1, true},
		{"short for calls that cost ten", 3 * time.Second, 10, false},
		{"long for them", 3001 * ms, 10, true},
		{"endless", clock.Never, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(100)
			d.cost = tt.cost
			d.throttle(tt.asked)
			assert.Equal(t, tt.closed, d.row >= closedRow)
		})
	}
	d := unpaced()
	d.throttle(time.Nanosecond)
	assert.Equal(t, closedRow, d.row, "without a rate, any")
	d = unpaced()
	d.throttle(0)
	assert.Equal(t, 1, d.row, "but none")

	d = paced(100)
	d.succeed(memoryShort, 100*ms)
	d.throttle(10 * time.Second)
	d.after(10 * time.Second).end(Attempt{Kind: Success, Sent: d.send()})
	assert.InEpsilon(t, 33/8.2, d.ceiling, 1e-6, "opened somewhere between the throttle and the success")
	assert.NotZero(t, d.opened.calls)

	d = paced(100)
	d.succeed(memoryShort-1, 10*ms)
	d.throttle(10 * time.Second)
	ceiling := d.ceiling
	d.after(10 * time.Second).end(Attempt{Kind: Success, Sent: d.send()})
	assert.Equal(t, ceiling, d.ceiling, "so few calls may be what a bucket had saved")
	assert.Zero(t, d.opened.calls)
}

// Pauses for throttles are time in which a window gives nothing, though they don't count as
// demand; a pause for another reason is not.
func TestClosingKnowsOfPauses(t *testing.T) {
	d := paced(100)
	d.succeed(50, 100*ms)
	d.throttle(40 * time.Second)
	assert.Less(t, d.delivered.clock(d.after(40*time.Second).now), 12*time.Second)
	d.throttle(0)
	d.after(20 * time.Second).end(Attempt{Kind: Success, Sent: d.send()})
	assert.InEpsilon(t, 51./55, d.ceiling, 1e-6)

	d = paced(100)
	d.Stop(d.now, d.now.Add(time.Hour))
	d.after(time.Hour).succeed(50, 100*ms)
	d.throttle(0)
	d.after(8 * time.Second).throttle(0)
	d.after(4 * time.Second).end(Attempt{Kind: Success, Sent: d.send()})
	assert.InEpsilon(t, 51./15, d.ceiling, 1e-6)
}

// Whoever comes to a closed server does not take the time before it opened for time in which
// the server delivered. A first success measures nothing.
func TestClosedBeginning(t *testing.T) {
	for _, throttles := range []int{1, 3} {
		for _, late := range []bool{false, true} { // it was sent before the last of them
			d := unpaced()
			for range throttles {
				d.throttle(0)
				d.after(time.Second)
			}
			d.end(Attempt{Kind: Success, Sent: d.send(), Late: late})
			assert.Equal(t, inf, d.Rate())
			assert.Zero(t, d.given)
			d.succeed(20, 50*ms)
			assert.InDelta(t, 21/1.5, d.Delivered(d.now), .01, "%d throttles", throttles)
		}
	}
	d := paced(10)
	for range 3 {
		d.after(time.Second).throttle(0)
	}
	d.after(time.Second).end(Attempt{Kind: Success, Sent: d.send()})
	assert.Equal(t, 10., d.Rate())
}

// Without a rate there is none to lower: it comes from a cut.
func TestClosingGivesNoRate(t *testing.T) {
	d := unpaced()
	d.succeed(50, 0)
	d.throttle(0)
	d.after(8 * time.Second).throttle(0)
	d.after(4 * time.Second).end(Attempt{Kind: Success, Sent: d.send()})
	assert.Equal(t, inf, d.Rate())
	assert.True(t, math.IsInf(d.ceiling, 1))
	assert.InEpsilon(t, 51./10, d.given, 1e-6)
}

func TestClosingOutlivesAnEndlessRetryAfter(t *testing.T) {
	for _, asked := range []time.Duration{time.Hour, clock.Farthest, clock.Never} {
		d := paced(100)
		d.succeed(50, 100*ms)
		d.throttle(asked)
		d.throttle(asked)
		d.Stop(d.after(time.Hour).now, d.now)
		d.end(Attempt{Kind: Success, Sent: d.send()})
		assert.LessOrEqual(t, d.delivered.baseAt, d.delivered.clock(d.now), "what counts begins now at the latest")
		assert.InDelta(t, 3605, d.delivered.total(d.now).Seconds(), .1, "what was spared is taken back")
	}
}
