package law

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

const ms = time.Millisecond

var inf = math.Inf(1)

// A driver drives a law at explicit times.
type driver struct {
	*Law
	now clock.Instant
	run clock.Instant // of throttles
}

func config() Config { return Config{Min: .001, Max: inf, Decrease: .5, Increase: .1} }

// unpaced begins without a rate.
func unpaced() *driver { return &driver{Law: New(config()), now: clock.Instant(time.Hour)} }

// paced begins with a rate, and somebody who waits for it.
func paced(rate float64) *driver {
	d := unpaced()
	d.SetRate(d.now, rate)
	d.Held(d.now)
	return d
}

func (d *driver) after(t time.Duration) *driver {
	d.now = d.now.Add(t)
	return d
}

func (d *driver) send() clock.Instant {
	d.Sent(d.now)
	return d.now
}

// end ends an attempt of cost 1, and everyone pauses for what is asked, while somebody waits.
func (d *driver) end(a Attempt) Decision {
	a.Cost = max(1, a.Cost)
	this := d.Done(d.now, a)
	d.Rest(d.now, a, a.RetryAfter, false)
	return this
}

// succeed makes n calls succeed, gap apart. More are wanted, but the rate holds none back.
func (d *driver) succeed(n int, gap time.Duration) {
	for range n {
		sent := d.send()
		d.delivered.busy(d.now)
		d.after(gap).end(Attempt{Kind: Success, Sent: sent})
	}
}

// demand is succeed where the rate holds calls back.
func (d *driver) demand(n int, gap time.Duration) {
	for range n {
		sent := d.after(gap / 10).send()
		d.Held(d.now)
		d.after(gap - gap/10).end(Attempt{Kind: Success, Sent: sent})
	}
}

// throttle makes a call be throttled at once.
func (d *driver) throttle(retryAfter time.Duration) Decision {
	return d.end(Attempt{Kind: Throttle, Sent: d.send(), RetryAfter: retryAfter, Run: d.run})
}

// tell makes a call succeed at once that tells of a quota.
func (d *driver) tell(q Quota) Decision {
	return d.end(Attempt{Kind: Success, Sent: d.send(), Quota: &q})
}

func TestNewHasNoRate(t *testing.T) {
	l := New(config())
	assert.Equal(t, inf, l.Rate())
	assert.Equal(t, inf, l.Soon())
	in, rate := l.Renewed(1)
	assert.Equal(t, clock.Never, in)
	assert.Equal(t, inf, rate)
	assert.Zero(t, l.InFlight())
	assert.Zero(t, l.Wait(1))
}

func TestKinds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kind    Kind
		through int  // calls let through, after one success
		fresh   bool // it shows that the server is open
		queue   bool // its latency counts
	}{
		{"nothing", Nothing, 1, false, false},
		{"passed", Passed, 2, false, false},
		{"success", Success, 2, true, true},
		{"denied", Denied, 2, true, false},
		{"throttle", Throttle, 1, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(10)
			d.succeed(1, 100*ms)
			d.fresh, d.latency.samples = 0, 1
			d.end(Attempt{Kind: tt.kind, Sent: d.send()})
			assert.Zero(t, d.InFlight(), "it has ended")
			assert.Equal(t, tt.through, d.delivered.n)
			assert.Equal(t, tt.fresh, d.fresh == 1)
			assert.Equal(t, tt.queue, d.latency.samples == 2)
			assert.Equal(t, 10., d.Rate())
		})
	}
}

// An outage before any success is not to look like a limit that gives nothing.
func TestFailuresBeforeAnySuccessDoNotCount(t *testing.T) {
	d := paced(10)
	for range 5 {
		sent := d.send()
		d.after(time.Second).end(Attempt{Kind: Passed, Sent: sent})
	}
	assert.Zero(t, d.delivered.n)
	d.succeed(20, 100*ms)
	assert.InEpsilon(t, 10, d.Delivered(d.now), 1e-6, "nor does the time of the outage")
	d.throttle(0)
	d.after(4 * time.Second).throttle(0)
	d.after(2 * time.Second).end(Attempt{Kind: Success, Sent: d.send()})
	assert.InEpsilon(t, 21./7, d.given, 1e-6, "nor in what a window gives")
}

// Only a throttle tells that there is a limit.
func TestOnlyThrottlesGiveARate(t *testing.T) {
	for kind := range Throttle {
		d := unpaced()
		d.succeed(10, 100*ms)
		for range 10 {
			sent := d.send()
			d.after(10 * ms).end(Attempt{Kind: kind, Sent: sent})
		}
		assert.Equal(t, inf, d.Rate(), "kind %d", kind)
	}
	d := unpaced()
	d.succeed(10, 100*ms)
	d.throttle(0)
	assert.Less(t, d.Rate(), inf)
}

func TestColdUntilASuccess(t *testing.T) {
	d := unpaced()
	assert.True(t, d.throttle(0).Cold)
	assert.True(t, d.end(Attempt{Kind: Passed, Sent: d.send()}).Cold, "nothing has succeeded")
	assert.True(t, d.end(Attempt{Kind: Success, Sent: d.send()}).Cold)
	assert.False(t, d.throttle(0).Cold, "something has")
	assert.False(t, paced(10).throttle(0).Cold, "a rate was given")
}

// What a first pause takes at most is by the rate after the cut.
func TestAtMost(t *testing.T) {
	d := unpaced()
	assert.Equal(t, clock.Never, d.throttle(0).AtMost, "there is no rate")
	d = paced(100)
	d.succeed(20, 100*ms)
	assert.Equal(t, 400*ms, d.throttle(0).AtMost, "two calls at 5 a second")
	assert.Equal(t, 400*ms, d.end(Attempt{Kind: Throttle, Sent: d.send(), Late: true}).AtMost)
	d.cost = 10
	assert.Equal(t, 4*time.Second, d.throttle(0).AtMost, "of calls that cost ten")
	assert.Equal(t, clock.Never, d.end(Attempt{Kind: Success, Sent: d.send()}).AtMost)
}

// The mean cost begins with the first, and follows about the last 32.
func TestCost(t *testing.T) {
	d := paced(100)
	d.end(Attempt{Kind: Success, Sent: d.send(), Cost: 10})
	assert.Equal(t, 10., d.cost)
	d.end(Attempt{Kind: Success, Sent: d.send(), Cost: 42})
	assert.Equal(t, 11., d.cost)
	d.end(Attempt{Kind: Throttle, Sent: d.send(), Cost: 1000})
	d.end(Attempt{Kind: Passed, Sent: d.send(), Cost: 1000})
	assert.Equal(t, 11., d.cost, "of successes only")
	d.Done(d.now, Attempt{Kind: Success})
	assert.Equal(t, 11-10./32, d.cost, "a call that costs nothing counts as one")
}

func TestSoonIsTheRateOfAFewCallsOn(t *testing.T) {
	for _, tt := range []struct {
		name                    string
		rate, ceiling, unspread float64
		want                    float64
	}{
		{"back at the ceiling", 5, 10, 0, 10},
		{"above it", 15, 10, 0, 15},
		{"slow for the rest of a window", 5, 10, 20, 5},
	} {
		l := New(config())
		l.rate, l.ceiling, l.unspread = tt.rate, tt.ceiling, tt.unspread
		assert.Equal(t, tt.want, l.Soon(), tt.name)
	}
}

func TestRenewedIsTheRateAfterAWindow(t *testing.T) {
	for _, tt := range []struct {
		name              string
		unspread, ceiling float64
		resetAt           clock.Instant
		in                time.Duration
		rate              float64
	}{
		{"not spread", 0, 10, 99, clock.Never, 1},
		{"the rate of before", 20, 10, 99, 94, 20},
		{"the ceiling", 5, 10, 99, 94, 10},
		{"it is over", 5, 10, 3, 0, 10},
	} {
		l := New(config())
		l.rate, l.ceiling, l.unspread, l.resetAt = 1, tt.ceiling, tt.unspread, tt.resetAt
		in, rate := l.Renewed(5)
		assert.Equal(t, tt.in, in, tt.name)
		assert.Equal(t, tt.rate, rate, tt.name)
	}
}

// Whoever sets a rate knows better than what there was before.
func TestSetRateForgets(t *testing.T) {
	for _, set := range []float64{50, inf} {
		for _, calls := range []int{1, 3, 20} { // before a throttle
			d := paced(.05)
			d.demand(200, 20*time.Second)
			d.throttle(0)
			d.demand(20, 20*time.Second)
			d.Law.peak, d.agreed, d.unspread, d.given, d.price, d.window = 99, 3, 7, 7, 7, 7
			d.SetRate(d.now, set)
			assert.Equal(t, set, d.Rate())
			assert.Equal(t, set, d.ceiling)
			for i, was := range []float64{d.peak, float64(d.agreed), d.unspread, d.given, d.price} {
				assert.Zero(t, was, "%d", i)
			}
			assert.Equal(t, 1., d.window)
			d.Held(d.now)
			d.succeed(calls, 20*ms)
			d.throttle(0)
			assert.InDelta(t, 25, d.Rate(), .1, "%v, %d calls", set, calls)
		}
	}
	d := paced(.05)
	d.demand(100, 20*time.Second)
	d.throttle(0)
	d.after(time.Second).throttle(0)
	d.SetRate(d.now, 50)
	d.after(time.Second).demand(20, 20*ms)
	d.SetRate(d.now, 100)
	d.succeed(50, 100*ms)
	d.throttle(0)
	d.after(8 * time.Second).throttle(0)
	d.after(4 * time.Second).end(Attempt{Kind: Success, Sent: d.send()})
	assert.InEpsilon(t, 51./15, d.ceiling, 1e-6, "nor does a window begin before")
	d = paced(.05)
	d.demand(100, 20*time.Second)
	d.throttle(0)
	d.after(time.Second).throttle(0)
	d.SetRate(d.now, 50)
	d.after(time.Second).demand(20, 20*ms)
	assert.GreaterOrEqual(t, d.Rate(), 50., "what a server that was closed let through is of before, too")
}

// The owner that sets a rate knows it as well as 128 calls tell, but not where there is none.
func TestSetRateIsKnown(t *testing.T) {
	assert.InEpsilon(t, .1/128, paced(1).slope(1), 1e-9)
	d := paced(1)
	d.SetRate(d.now, inf)
	d.rate = 1
	assert.InEpsilon(t, .1/8, d.slope(1), 1e-9)
}

// A law that is settled probes as rarely as one whose cuts agree, until one does not.
func TestSettle(t *testing.T) {
	d := paced(1000)
	d.Settle()
	assert.Equal(t, agreeMost, d.agreed)
	assert.InEpsilon(t, 100./400, d.slope(1000), 1e-9)
	d.succeed(20, 100*ms)
	d.throttle(0)
	assert.Zero(t, d.agreed)
	assert.Zero(t, d.price)
}

// Time before the rate was set earns nothing.
func TestSetRatePaysNoGrowth(t *testing.T) {
	d := paced(10)
	d.Held(d.after(time.Second).now)
	d.SetRate(d.now, 20)
	d.end(Attempt{Kind: Success, Sent: d.after(50 * ms).send()})
	assert.Equal(t, 20., d.Rate())
}

// Only time in which somebody wants a call counts.
func TestDemand(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin func() *driver
		then  func(d *driver)
		want  time.Duration // that counts, ten seconds later
	}{
		{"somebody waits for the rate", func() *driver { return paced(10) }, func(*driver) {}, 10 * time.Second},
		{"nobody waits", func() *driver { return paced(10) }, func(d *driver) { d.Free(d.now) }, 0},
		{"a call went, and takes a call interval", func() *driver { return paced(10) }, func(d *driver) { d.send() }, 100 * ms},
		{"a call of cost ten", func() *driver { return paced(10) }, func(d *driver) { d.cost = 10; d.send() }, time.Second},
		{"a call of a rate that was spread", func() *driver { return paced(10) }, func(d *driver) { d.unspread = 100; d.send() }, 10 * ms},
		{"a spread rate holds calls back", func() *driver { return paced(10) }, func(d *driver) {
			d.Free(d.now)
			d.unspread = 100
			d.Held(d.now)
		}, 0},
		{"an unknown latency without a rate", unpaced, func(d *driver) { d.send() }, 10 * time.Second},
		{"twice the latency without a rate", unpaced, func(d *driver) { d.took = time.Second; d.send() }, 2 * time.Second},
		{"without a rate others are under way", unpaced, func(d *driver) { d.send(); d.Free(d.now) }, 10 * time.Second},
		{"without a rate nobody is", unpaced, func(d *driver) {
			d.end(Attempt{Kind: Success, Sent: d.send()})
			d.Free(d.now)
		}, 0},
		{"a call went, and ended", func() *driver { return paced(10) }, func(d *driver) {
			d.send()
			d.Rest(d.now, Attempt{Kind: Success}, 0, false)
		}, 100 * ms},
		{"an attempt ends, and nobody waits", func() *driver { return paced(10) }, func(d *driver) {
			d.Rest(d.now, Attempt{Kind: Success}, 0, true)
		}, 0},
		{"an attempt ends, and somebody waits", func() *driver { return paced(10) }, func(d *driver) {
			d.Rest(d.now, Attempt{Kind: Success}, 0, false)
		}, 10 * time.Second},
		{"a throttle shows demand", unpaced, func(d *driver) {
			d.delivered.idle(d.now, d.now)
			d.Done(d.now, Attempt{Kind: Throttle})
		}, 10 * time.Second},
		{"a throttle of a spread rate shows none", func() *driver { return paced(10) }, func(d *driver) {
			d.unspread = 100
			d.end(Attempt{Kind: Throttle})
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.begin()
			was := d.delivered.clock(d.now)
			tt.then(d)
			assert.Equal(t, tt.want, d.delivered.clock(d.after(10*time.Second).now)-was)
		})
	}
}

// A pause for a throttle counts for 30 call intervals, and no other pause does.
func TestPausesCount(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin *driver
		pause func(d *driver)
		want  time.Duration // that counts, a minute later
	}{
		{"a short one", paced(10), func(d *driver) { d.throttle(2 * time.Second) }, time.Minute},
		{"a long one", paced(10), func(d *driver) { d.throttle(50 * time.Second) }, 13 * time.Second},
		{"two at once", paced(10), func(d *driver) { d.throttle(50 * time.Second); d.throttle(50 * time.Second) }, 13 * time.Second},
		{"a shorter one within", paced(10), func(d *driver) { d.throttle(50 * time.Second); d.throttle(time.Second) }, 13 * time.Second},
		{"without a rate", unpaced(), func(d *driver) { d.throttle(50 * time.Second) }, 10 * time.Second},
		{"for a window", paced(10), func(d *driver) {
			d.Rest(d.now, Attempt{Kind: Success}, 50*time.Second, false)
		}, 10 * time.Second},
		{"by hand", paced(10), func(d *driver) { d.Stop(d.now, d.now.Add(50*time.Second)) }, 10 * time.Second},
		{"by hand, and somebody comes meanwhile", paced(10), func(d *driver) {
			d.Stop(d.now, d.now.Add(50*time.Second))
			d.Free(d.now)
			d.Held(d.now.Add(10 * time.Second))
		}, 10 * time.Second},
		{"by hand, and ended", paced(10), func(d *driver) {
			d.Stop(d.now, d.now.Add(50*time.Second))
			d.Stop(d.now, d.now)
		}, time.Minute},
		{"nobody waits", paced(10), func(d *driver) {
			a := Attempt{Kind: Throttle, RetryAfter: 50 * time.Second}
			d.Done(d.now, a)
			d.Rest(d.now, a, a.RetryAfter, true)
		}, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.begin
			was := d.delivered.clock(d.now)
			tt.pause(d)
			assert.Equal(t, tt.want, d.delivered.clock(d.after(time.Minute).now)-was)
		})
	}
}

func TestWhyTheRateChanged(t *testing.T) {
	d := paced(100)
	d.Held(d.after(ms).now)
	assert.Equal(t, ByGrowth, d.after(9*ms).end(Attempt{Kind: Success, Sent: d.now}).Why)
	assert.Equal(t, ByThrottle, d.throttle(0).Why)
	assert.Equal(t, ByQuota, d.after(time.Second).tell(Quota{Remaining: 3}).Why)
	d = paced(10)
	d.Held(d.after(ms).now)
	assert.Equal(t, ByGrowth, d.after(9*ms).tell(Quota{Remaining: 10}).Why, "just enough is left")
	d.Held(d.after(ms).now)
	assert.Equal(t, ByQuota, d.after(9*ms).tell(Quota{Remaining: 90}).Why, "much is")
	d = paced(1)
	d.resetAt, d.unspread = d.now.Add(time.Minute), 8
	assert.Equal(t, ByQuota, d.tell(Quota{Limit: 100, Remaining: 10, Reset: 2 * time.Minute}).Why, "a new window")
	assert.Equal(t, 8., d.Rate())
	d = paced(15)
	d.succeed(40, 100*ms)
	d.rate, d.latency = 15, latency{short: 3, long: 1, samples: 128, share: 1}
	d.Held(d.now)
	assert.Equal(t, ByLatency, d.end(Attempt{Kind: Success, Sent: d.now - clock.Instant(3*time.Second)}).Why)
	assert.Less(t, d.Rate(), 15.)
	d = paced(100)
	d.demand(50, 100*ms)
	d.throttle(0)
	d.after(20 * time.Second).throttle(0)
	assert.Equal(t, ByThrottle, d.after(time.Second).end(Attempt{Kind: Success, Sent: d.send()}).Why, "the window of a server that was closed")
}
