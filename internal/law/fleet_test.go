package law

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A fleet tells a law, in steps, how the calls of many processes ended.
type fleet struct {
	*Law
	now clock.Instant
}

func newFleet(rate, ceiling float64) *fleet {
	c := config()
	c.Lag = 1
	f := &fleet{New(c), clock.Instant(time.Hour)}
	f.Begin(f.now, rate, ceiling)
	return f
}

// step goes on by d, in which n calls of the rate succeeded.
func (f *fleet) step(d time.Duration, n int) {
	f.now = f.now.Add(d)
	f.Used(f.now-clock.Instant(d), f.now, 0, true)
	if n > 0 {
		f.tell(Attempt{Kind: Denied, Count: n})
	}
}

func (f *fleet) tell(a Attempt) {
	f.Done(f.now, a)
	f.Rest(f.now, a, 0, false)
}

// Until the first congestion a guess grows by itself in each second.
func TestGuessGrows(t *testing.T) {
	f := newFleet(10, inf)
	for range 20 {
		f.step(100*ms, 10)
	}
	assert.InEpsilon(t, 10*math.Pow(1.1, 20), f.Rate(), .01)
	assert.Equal(t, inf, f.Ceiling())
	f.step(time.Minute, 1)
	assert.InEpsilon(t, 10*math.Pow(1.1, 20)+4, f.Rate(), .01, "one call pays for four intervals")
}

// A rate that was found elsewhere is near its ceiling soon, and not beyond.
func TestFoundRateReturnsToItsCeiling(t *testing.T) {
	f := newFleet(10, 100)
	for range 10 {
		f.step(100*ms, 10)
	}
	assert.InDelta(t, 90, f.Rate(), 3)
}

// What went at the present rate is not reported yet, so the ceiling is half of it at least. Reports
// come in bunches, so the higher measure counts.
func TestCutBehindTheReports(t *testing.T) {
	for _, tt := range []struct {
		name         string
		rate         float64
		first, later int // calls in each 100 ms, of 100 steps and of ten
		want         float64
	}{
		{"half of the rate", 100, 1, 1, 50},
		{"what was delivered", 12, 1, 1, 10 / .95},
		{"the last calls, if they were faster", 60, 3, 5, 50},
		{"the calls before, if those were", 60, 5, 3, 128 / 2.96 / .95},
		{"no more than the rate", 40, 5, 5, 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(tt.rate, tt.rate)
			for k := range 110 {
				f.rate = tt.rate // whatever it grew to
				f.step(100*ms, map[bool]int{true: tt.first, false: tt.later}[k < 100])
			}
			f.rate = tt.rate
			f.tell(Attempt{Kind: Throttle})
			assert.InEpsilon(t, tt.want, f.Ceiling(), .05)
		})
	}
}

// Where news of a throttle are late, probing takes ten times as long, or as long as the ceiling was
// measured if that is less.
func TestProbingWaitsForNews(t *testing.T) {
	for _, tt := range []struct {
		lag, measured float64 // seconds
		want          time.Duration
	}{{0, 1000, 4 * time.Second}, {1, 1000, 10 * time.Second}, {5, 1000, 50 * time.Second}, {5, 20, 20 * time.Second}} {
		f := newFleet(100, 100)
		f.Lag, f.measured = tt.lag, int(100*tt.measured)
		assert.InEpsilon(t, .1*100/tt.want.Seconds(), f.slope(100), .01)
	}
}

// Calls that are told together count as many as they are.
func TestCallsToldTogether(t *testing.T) {
	one, all := newFleet(10, 20), newFleet(10, 20)
	for range 6 {
		for range 10 {
			one.step(100*ms, 1)
		}
		all.step(time.Second, 10)
	}
	assert.InEpsilon(t, one.Rate(), all.Rate(), .05)
	assert.Equal(t, one.delivered.n, all.delivered.n)
	assert.InEpsilon(t, one.Delivered(one.now), all.Delivered(all.now), .1)
	one.tell(Attempt{Kind: Throttle})
	all.tell(Attempt{Kind: Throttle})
	assert.InEpsilon(t, one.Rate(), all.Rate(), .1)
}

// A law that is encoded and decoded after each step decides as one that is not.
func TestEncodedLawGoesOn(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		f, copied := newFleet(10, inf), newFleet(10, inf)
		for range 500 {
			d, n := time.Duration(1+random.Int64N(int64(time.Second))), random.IntN(20)
			attempts := []Attempt{{Kind: Passed, Count: 1 + random.IntN(3)}}
			switch random.IntN(20) {
			case 0, 1:
				attempts = append(attempts, Attempt{Kind: Throttle, RetryAfter: time.Duration(random.IntN(2)) * time.Minute})
			case 2, 3, 4, 5:
				q := &Quota{Limit: 100, Remaining: random.IntN(100), Reset: time.Duration(random.Int64N(int64(time.Hour)))}
				attempts = append(attempts, Attempt{Kind: Denied, Count: 5, Quota: q, Sent: f.now})
			}
			for _, x := range []*fleet{f, copied} {
				x.step(d, n)
				for _, a := range attempts {
					x.tell(a)
				}
			}
			b := copied.Append([]byte("before"))
			copied.Law = New(config())
			require.NoError(t, copied.Decode(b[len("before"):]))
			copied.Config = f.Config
			require.Equal(t, f.Rate(), copied.Rate())
		}
		f.start, f.latency, f.undo = copied.start, copied.latency, copied.undo // which are not encoded
		require.Equal(t, f.Law, copied.Law)
		assert.Less(t, len(f.Append(nil)), 2048)
	}
}

func TestDecodeRefuses(t *testing.T) {
	f := newFleet(10, inf)
	for range 200 {
		f.step(100*ms, 10)
	}
	good := f.Append(nil)
	require.NoError(t, New(config()).Decode(good))
	for n := range good {
		assert.Error(t, New(config()).Decode(good[:n]), "the first %d bytes", n)
		bad := append([]byte{}, good...)
		bad[n] ^= 1 << (n % 8)
		assert.Error(t, New(config()).Decode(bad), "byte %d", n)
	}
	assert.Error(t, New(config()).Decode(nil))
}

// The calls in flight are a guess where many processes make them, so the pace of a window's rest is
// corrected in both directions. Its end is known late.
func TestSpreadIsCorrected(t *testing.T) {
	f := newFleet(10, 10)
	end := f.now.Add(time.Minute)
	tell := func(left, inflight int) {
		f.now = f.now.Add(time.Second)
		f.Used(f.now-clock.Instant(time.Second), f.now, inflight+1, true) // with the call that tells
		f.tell(Attempt{Kind: Denied, Quota: &Quota{Limit: 100, Remaining: left, Reset: end.Sub(f.now)}})
	}
	tell(90, 0)
	assert.InDelta(t, 10, f.Rate(), 1)
	tell(40, 40) // all that is left is under way
	assert.InEpsilon(t, 1/58.1, f.Rate(), .01)
	tell(30, 10)
	assert.InEpsilon(t, 20/57.1, f.Rate(), .01, "some of these calls never came")
	tell(25, 20)
	assert.InEpsilon(t, 5/56.1, f.Rate(), .01)
	f.now = end
	end = end.Add(time.Minute)
	tell(99, 0)
	assert.InDelta(t, 10, f.Rate(), 1, "the next window")
}
