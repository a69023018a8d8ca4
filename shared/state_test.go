package shared

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The way back to the ceiling leads up, also for a factor of decrease above what it
// leads to: a success never lowers the rate.
func TestRateGrowsForEveryDecrease(t *testing.T) {
	for _, decrease := range []int64{1, 500_000, 899_999, 900_000, 950_000, 999_999} {
		at := int64(1e15)
		s := State{
			At: at, Tat: at, Until: at, Credit: at, CutAt: at - 10e6, Born: at - 100e6,
			Epoch: 1, Rate: 10e6, Ceiling: 100e6, Flow: 10e6, Busy: 1e6, CountEnd: at + 1,
		}
		law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: decrease, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
		for range 100 {
			was := s.Rate
			at += 500_000
			s.Sync(time.Duration(at)*time.Microsecond, Request{Law: law, Epoch: 1, Want: 50, Least: 1, Successes: 50})
			assert.GreaterOrEqual(t, s.Rate, was, "decrease %d", decrease)
		}
		assert.Greater(t, s.Rate, int64(11e6), "decrease %d", decrease)
	}
}

// Pauses are bounded by two distances of slots until nothing gets through between two
// throttles, also where what did get through has just forgiven a level.
func TestPauseIsShortWhileCallsGetThrough(t *testing.T) {
	const forgive = 10
	law := Law{Min: 1e6, Max: 1e6, Initial: 1e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: forgive, PauseBase: 10 * time.Second}
	for between, want := range map[int64]time.Duration{0: 10 * time.Second, forgive - 1: 2 * time.Second, forgive: 2 * time.Second} {
		var s State
		at := time.Duration(0)
		throttle := func() time.Duration {
			at += time.Minute
			return s.Sync(at, Request{Law: law, Epoch: s.Epoch, Throttled: true, Backoff: time.Hour}).Pause
		}
		s.Sync(at, Request{Law: law})
		throttle()
		throttle()
		s.Sync(at+30*time.Second, Request{Law: law, Epoch: s.Epoch, Successes: 1 + forgive})
		throttle()
		if between > 0 {
			s.Sync(at+30*time.Second, Request{Law: law, Epoch: s.Epoch, Successes: between})
		}
		assert.Equal(t, want, throttle(), "%d successes", between)
	}
}

// What went through since the server last opened, the closed time included, is what it
// gives in the long run. It opens halfway between the last throttle and the first success.
func TestClosingTellsTheLongRun(t *testing.T) {
	law := Law{Min: 1000, Max: 10e6, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	var s State
	now := time.Second
	pass := func(d time.Duration, q Request) int64 {
		now += d
		q.Law, q.Epoch, q.Count, q.Want, q.Least = law, s.Epoch, s.Count, 5, 1
		return s.Sync(now, q).Ceiling
	}
	for _, c := range []struct {
		calls int64 // in each half second of a minute
		given float64
	}{
		{5, 601. / 95},
		{2, 241. / 95}, // with no regard to the first minute
	} {
		for range 120 {
			pass(500*ms, Request{Successes: c.calls})
		}
		pass(0, Request{Throttled: true})
		pass(30*time.Second, Request{Throttled: true})
		assert.InEpsilon(t, 1e6*c.given, pass(10*time.Second, Request{Successes: 1}), .02)
	}
}

// What was under way when the door closed does not open it, and one call alone since the last
// opening is no measure: else a server that closes again and again would seem ever slower
// because a call of before ends late.
func TestDoorOpensForWhoKnocks(t *testing.T) {
	law := Law{Min: 1000, Max: 15e6, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	closed := func() (s *State, pass func(d time.Duration, q Request)) {
		s = new(State)
		now := time.Second
		pass = func(d time.Duration, q Request) {
			now += d
			q.Law, q.Count, q.Want, q.Least = law, s.Count, 5, 1
			s.Sync(now, q)
		}
		for range 240 {
			pass(500*ms, Request{Epoch: s.Epoch, Successes: 5})
		}
		pass(1500*ms, Request{Epoch: s.Epoch, Throttled: true})
		pass(1500*ms, Request{Epoch: s.Epoch, Throttled: true})
		require.EqualValues(t, 2, s.Row)
		return s, pass
	}
	for _, tt := range []struct {
		name      string
		epoch     int64 // of the success, from that in which the door closed on
		throttles int   // meanwhile
		after     time.Duration
		row       int64
	}{
		{"sent before the throttles", -2, 0, time.Second, 2},
		{"sent before the last of them", -1, 0, time.Second, 2},
		{"sent since", 0, 0, time.Second, 0},
		{"sent since, while others were throttled", 0, 3, time.Second, 0},
		{"sent before, while others were throttled", -1, 3, time.Second, 5},
		{"sent by a worker that has not asked for long", -2, 0, keptFor, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, pass := closed()
			epoch := s.Epoch + tt.epoch
			for range tt.throttles {
				pass(1500*ms, Request{Epoch: s.Epoch, Throttled: true})
			}
			pass(tt.after, Request{Epoch: epoch, Successes: 1})
			assert.Equal(t, tt.row, s.Row)
		})
	}

	t.Run("closed again and again", func(t *testing.T) {
		s, pass := closed()
		pass(time.Second, Request{Epoch: s.Epoch - 2, Successes: 1})
		for range 2 {
			epoch := s.Epoch
			pass(1500*ms, Request{Epoch: s.Epoch, Throttled: true})
			pass(1500*ms, Request{Epoch: s.Epoch, Throttled: true})
			pass(time.Second, Request{Epoch: epoch, Successes: 1})
		}
		assert.Greater(t, s.Ceiling, int64(1.5e6), "no lower than three cuts take it")
	})

	t.Run("one call alone", func(t *testing.T) {
		s, pass := closed()
		pass(time.Second, Request{Epoch: s.Epoch, Successes: 1})
		total, open := s.Total, s.OpenTotal
		require.Equal(t, total, open)
		for n, want := range []int64{open, total + 2} { // the second counts with the first
			pass(1500*ms, Request{Epoch: s.Epoch, Throttled: true})
			pass(1500*ms, Request{Epoch: s.Epoch, Throttled: true})
			ceiling := s.Ceiling
			pass(20*time.Second, Request{Epoch: s.Epoch, Successes: 1})
			assert.Zero(t, s.Row)
			assert.Equal(t, want, s.OpenTotal)
			assert.Equal(t, n == 0, s.Ceiling == ceiling)
		}
	})

	t.Run("nothing had succeeded before", func(t *testing.T) {
		var s State
		for n := range 2 {
			s.Sync(time.Duration(n)*2*time.Second, Request{Law: law, Epoch: max(1, s.Epoch), Throttled: true})
		}
		require.EqualValues(t, 2, s.Row)
		s.Sync(5*time.Minute, Request{Law: law, Epoch: 1, Successes: 1})
		assert.Equal(t, []int64{0, 1, 0, 0}, []int64{s.Row, s.OpenTotal, s.OpenTime, s.Ceiling})
	})
}

// What a closing of minutes taught is doubted until the next throttle, and bounded: it may
// have been an outage. Another one soon after is that of a window.
func TestDoubtsWhatMayHaveBeenAnOutage(t *testing.T) {
	law := Law{Min: 1000, Max: 10e6, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	var s State
	now := time.Second
	pass := func(d time.Duration, q Request) {
		now += d
		q.Law, q.Epoch, q.Count, q.Want, q.Least = law, s.Epoch, s.Count, 5, 1
		s.Sync(now, q)
	}
	opens := func(after time.Duration) {
		pass(2*time.Second, Request{Throttled: true})
		pass(after, Request{Throttled: true})
		pass(time.Second, Request{Successes: 1})
	}
	closing := func(lasts time.Duration) {
		s.Rate, s.Ceiling = 10e6, 10e6
		for range 20 {
			pass(500*ms, Request{Successes: 5})
		}
		opens(lasts)
	}
	closing(outageLeast - time.Minute)
	assert.Zero(t, s.Doubted, "too short")
	closing(12 * time.Hour)
	assert.EqualValues(t, 1, s.Doubted)
	assert.InEpsilon(t, 1e6/outageGap.Seconds(), s.Ceiling, .01)
	pass(time.Minute, Request{Successes: 1})
	assert.EqualValues(t, 1, s.Doubted)
	closing(time.Hour)
	assert.Zero(t, s.Doubted, "soon after")
	now += 2 * outageApart * time.Hour
	closing(time.Hour)
	assert.EqualValues(t, 1, s.Doubted, "long after")
	closing(2 * time.Second)
	now += 2 * outageApart * time.Hour
	pass(0, Request{})
	was := s.Ceiling
	opens(time.Hour)
	assert.Equal(t, []int64{0, s.Total, s.At}, []int64{s.OpenTime, s.OpenTotal, s.OutageAt}, "one call ends it")
	assert.Greater(t, s.Ceiling, was/2, "and measures nothing")
	now += 2 * outageApart * time.Hour
	closing(time.Hour)
	doubted, sure := s, s
	sure.Doubted = 0
	for _, s := range []*State{&doubted, &sure} {
		s.Rate = s.Ceiling
		s.Sync(now+time.Minute, Request{Law: law, Epoch: s.Epoch, Successes: 5})
	}
	assert.Greater(t, doubted.Rate-doubted.Ceiling, 2*(sure.Rate-sure.Ceiling), "it grows faster")
	pass(2*time.Second, Request{Throttled: true})
	assert.Zero(t, s.Doubted, "a throttle ends it")
}

// A request that names no rate leaves a state that goes on: nothing is divided by zero.
func TestRateIsNeverZero(t *testing.T) {
	for name, q := range map[string]Request{"a new state": {}, "a newer epoch": {Epoch: 5}} {
		var s State
		q.Law = Law{Min: 1000, Max: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10}
		for at := range 3 {
			q.Successes, q.Want = int64(at), 1
			r := s.Sync(time.Duration(at)*time.Second, q)
			assert.GreaterOrEqual(t, r.Rate, int64(1000), name)
			assert.GreaterOrEqual(t, s.Flow, int64(0), name)
			assert.GreaterOrEqual(t, s.Busy, int64(0), name)
		}
	}
}

// A hundred times dearer calls at a hundred times the rate are the same to the law, which
// goes by calls, a hundred in a second or one in twenty seconds.
func TestStateGoesByCalls(t *testing.T) {
	run := func(rate float64, cost int64) (replies []Reply) {
		at, call := int64(1e15), float64(cost*1_000_000)
		law := Law{
			Min: int64(call / 1000), Max: int64(1000 * call), Initial: int64(rate * call), Decrease: 500_000, Increase: 100_000,
			Burst: 1, Forgive: 10 * cost, PauseBase: 300 * time.Millisecond,
		}
		var s State
		for n, succeeded := 0, int64(0); n < 500; n++ {
			r := s.Sync(time.Duration(at)*time.Microsecond, Request{
				Law: law, Epoch: s.Epoch, Want: int(cost), Least: int(cost), Successes: succeeded,
				Throttled: n == 20 || n == 250 || n == 450 || n == 451, Backoff: time.Hour,
			})
			replies = append(replies, r)
			succeeded = int64(r.Slots)
			at += max(r.Wait, r.Pause).Microseconds() + int64(call/float64(r.Rate)*1e6)
		}
		return replies
	}
	for _, rate := range []float64{100, 10, 1, .05} {
		one, hundred := run(rate, 1), run(rate, 100)
		for n := range one {
			require.InEpsilon(t, 100*one[n].Rate, hundred[n].Rate, .05, "%v a second, step %d", rate, n)
			require.Equal(t, 100*one[n].Slots, hundred[n].Slots, "%v a second, step %d", rate, n)
			require.InDelta(t, one[n].Pause, hundred[n].Pause, .05*float64(time.Millisecond+one[n].Pause), "%v a second, step %d", rate, n)
		}
	}
}

// Slots that were made void are used until their owners hear of it. Throttles that they
// bring about cut nothing.
func TestVoidSlotsCutNothing(t *testing.T) {
	law := Law{Min: 1000, Max: 100e6, Initial: 100e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	lower := law
	lower.Max = 10e6
	var s State
	sync := func(at time.Duration, law Law, throttled bool) Reply {
		return s.Sync(at, Request{Law: law, Epoch: s.Epoch, Successes: 1, Throttled: throttled})
	}
	before := sync(10*time.Second, law, false)
	after := sync(11*time.Second, lower, false)
	assert.Equal(t, before.Epoch+1, after.Epoch)
	assert.EqualValues(t, 10e6, after.Rate)
	for at, want := range map[time.Duration]int64{11500 * time.Millisecond: 10e6, 12 * time.Second: 5e6} {
		was := s
		assert.Equal(t, want, sync(at, lower, true).Rate, "a throttle at %v", at)
		s = was
	}
}

// A throttle cuts to half of what the server gave while slots were in use: no more than
// the rate, and no less than half of it, as news lag behind.
func TestStateCut(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for _, tt := range []struct {
		name                                string
		flow, busy, unspread                int64
		wantCeiling, wantRate, wantUnspread int64
	}{
		{"less than the rate", 8e6, 1e6, 0, 8e6, 4e6, 0},
		{"in half of the time", 4e6, 500_000, 0, 8e6, 4e6, 0},
		{"in too little of the time to tell", 2e6, 249_999, 0, 10e6, 5e6, 0},
		{"more than the rate", 20e6, 1e6, 0, 10e6, 5e6, 0},
		{"far less than the rate", 1e6, 1e6, 0, 5e6, 2.5e6, 0},
		{"the rest of a window is spread", 10e6, 1e6, 40e6, 40e6, 10e6, 20e6},
		{"the rest of a window is spread, by little", 10e6, 1e6, 12e6, 12e6, 6e6, 6e6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.Flow, s.Busy, s.Unspread = tt.flow, tt.busy, tt.unspread
			s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Throttled: true})
			assert.Equal(t, []int64{tt.wantCeiling, tt.wantRate, tt.wantUnspread}, []int64{s.Ceiling, s.Rate, s.Unspread})
		})
	}
}

// Few throttles may come by chance, whatever the rate: from below the ceiling they take it down by
// a fiftieth at most. Many, or one from above it, tell of the limit.
func TestStateIsNotTakenFarDownByFewThrottles(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for _, tt := range []struct {
		name      string
		successes int64
		ceiling   int64
		want      int64
	}{
		{"few", 33, 20e6, 19.6e6},
		{"few, far below the ceiling", 33, 200e6, 196e6},
		{"many", 32, 20e6, 10e6},
		{"few, at the ceiling", 33, 10e6, 10e6},
		{"few, just below the ceiling", 33, 10.1e6, 10e6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.Answers, s.Refused, s.Ceiling = 0, 0, tt.ceiling
			at := time.Duration(s.At) * time.Microsecond
			s.Sync(at, Request{Law: law, Epoch: 1, Count: s.Count, Successes: tt.successes})
			s.Flow, s.Rate, s.Ceiling = 10e6, 10e6, tt.ceiling
			s.Sync(at, Request{Law: law, Epoch: 1, Count: s.Count, Throttled: true, Throttles: 1})
			assert.Equal(t, tt.want, s.Ceiling)
			assert.Equal(t, tt.want/2, s.Rate)
		})
	}
}

// The share of throttles is that among the last 300 calls, or all while there are fewer, by their
// cost, and whatever else is told.
func TestStateCountsThrottles(t *testing.T) {
	q := func(through, throttles int64) Request {
		return Request{Successes: through, Throttles: throttles}
	}
	for _, tt := range []struct {
		name    string
		cost    int
		told    []Request
		answers int64
		refused int64
	}{
		{"nothing", 1, []Request{{}}, 0, 0},
		{"one of four", 1, []Request{q(3, 0), q(0, 1)}, 4, 250_000},
		{"at once", 1, []Request{q(3, 1)}, 4, 250_000},
		{"failures, too", 1, []Request{{Failed: 3, Throttles: 1}}, 4, 250_000},
		{"half of the last 300", 1, []Request{q(1000, 0), q(0, 150)}, 300, 500_000},
		{"more than 300 at once", 1, []Request{q(0, 300), q(900, 100)}, 1000, 100_000},
		{"of cost ten", 10, []Request{q(10_000, 0), q(0, 1500)}, 3000, 500_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.Answers, s.Refused = 0, 0
			for _, q := range tt.told {
				q.Law, q.Epoch, q.Count, q.Least = Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10}, 1, s.Count, tt.cost
				s.Sync(time.Duration(s.At)*time.Microsecond, q)
			}
			assert.Equal(t, []int64{tt.answers, tt.refused}, []int64{s.Answers, s.Refused})
		})
	}
}

// The peak is the most that was let through from one cut to another one, 250 calls and five
// seconds apart at least, at the rate of the cut at most. It fades with a cut at the ceiling or
// above, and what came before the first cut is none.
func TestStatePeak(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for _, tt := range []struct {
		name       string
		first      bool // cut
		calls      int64
		cost       int
		took       time.Duration
		peak, want int64
	}{
		{"as many as allowed", false, 300, 1, 30 * time.Second, 5e6, 10e6},
		{"fewer", false, 300, 1, 60 * time.Second, 2e6, 5e6},
		{"more, by chance", false, 600, 1, 30 * time.Second, 5e6, 10e6},
		{"fewer than before", false, 300, 1, 60 * time.Second, 7e6, 7e6},
		{"too few to tell", false, 249, 1, 20 * time.Second, 5e6, 5e6},
		{"too few, as each costs three", false, 749, 3, 60 * time.Second, 5e6, 5e6},
		{"enough of three", false, 750, 3, 100 * time.Second, 5e6, 7.5e6},
		{"in too short a time to tell", false, 300, 1, 4999 * ms, 5e6, 5e6},
		{"before the first cut", true, 300, 1, 30 * time.Second, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.Total, s.OpenTime = 1000+tt.calls, 60e6+tt.took.Microseconds()
			s.PeakTotal, s.PeakTime, s.Peak = 1000, 60e6, tt.peak
			if tt.first {
				s.PeakTotal, s.PeakTime = 0, 0
			}
			s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Least: tt.cost, Epoch: 1, Count: s.Count, Throttled: true})
			assert.Equal(t, tt.want, s.Peak)
			if told := s.Total == s.PeakTotal; told != (tt.calls >= 250*int64(tt.cost) && tt.took >= 5*time.Second) {
				t.Errorf("counting began anew: %v", told)
			}
		})
	}
	for name, tt := range map[string]struct{ ceiling, want int64 }{
		"a cut above the ceiling": {9e6, 82e6},
		"a cut at the ceiling":    {10e6, 82e6},
		"a cut below the ceiling": {10e6 + 1, 100e6},
	} {
		s := calledState(1e15)
		s.Ceiling, s.Peak = tt.ceiling, 100e6
		s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Throttled: true})
		assert.Equal(t, tt.want, s.Peak, name)
	}
}

// What a window gives at first is no peak: a closing after 250 calls takes it to what went
// through, one after fewer leaves it. Calls that cost three each are as few.
func TestClosingBoundsThePeak(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for _, tt := range []struct {
		calls, want int64
		cost        int
	}{{250, 2.5e6, 1}, {249, 40e6, 1}, {750, 7.5e6, 3}, {749, 40e6, 3}} {
		s := calledState(1e15)
		s.Row, s.Peak, s.Epoch, s.ClosedAt = closedRow, 40e6, 5, s.At-10e6
		s.Total, s.OpenTime = tt.calls-1, 105e6 // of which the server was closed for the last half of ten seconds
		s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Least: tt.cost, Epoch: 5, Count: s.Count, Successes: 1})
		assert.Equal(t, tt.want, s.Peak, "%d calls of cost %d", tt.calls, tt.cost)
	}
}

// Far below the peak the shared rate grows by the mean of it and the ceiling, also where
// only half of it is in use.
func TestRateReturnsToThePeak(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	from := func(ceiling, peak, flow, doubted int64) float64 {
		s := calledState(1e15)
		s.Rate, s.Ceiling, s.Flow, s.Peak, s.Doubted = 1e6, ceiling, flow, peak, doubted
		was := s.Rate
		s.Sync(time.Duration(s.At+500_000)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Successes: 1})
		return float64(s.Rate-was) / 1e6
	}
	grown := func(peak, flow, doubted int64) float64 { return from(1e6, peak, flow, doubted) }
	const probe = .1 * .5 / 100 // of one call a second, for half a second
	assert.InEpsilon(t, probe, grown(0, 1e6, 0), .01)
	assert.InEpsilon(t, probe, grown(1.4e6, 1e6, 0), .01, "little below")
	assert.InEpsilon(t, 4*probe, grown(4e6, 1e6, 0), .01, "by twice the ceiling, in half of the time")
	assert.InEpsilon(t, 10*5*probe, grown(100e6, 1e6, 0), .01, "by ten times the ceiling, in a fifth of the time at least")
	assert.InEpsilon(t, grown(0, 1e6, 1), grown(4e6, 1e6, 1), .01, "a ceiling that is doubted")
	assert.Positive(t, grown(4e6, .55e6, 0), "half of it in use")
	assert.Zero(t, grown(1.4e6, .55e6, 0))
	assert.InEpsilon(t, 1, from(100_000, 100e6, 1e6, 0), .01, "twice as much at most")
}

// Where slots are short a worker asks for them as often as it gets two, but neither all the
// time nor so rarely that those ahead would run out.
func TestTurn(t *testing.T) {
	for _, tt := range []struct {
		workers int64
		rate    float64 // calls a second
		want    time.Duration
	}{
		{1, 10, syncPeriod},
		{100, 1000, syncPeriod},
		{100, 100, 2 * time.Second},
		{10, 1, 1250 * ms},
		{100, 10, 5 * time.Second},
	} {
		assert.Equal(t, tt.want.Microseconds(), turnTime(tt.workers, int64(tt.rate*1e6)), "%d workers, %v calls a second", tt.workers, tt.rate)
	}
}
