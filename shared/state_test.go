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

// A call that was under way when the server closed does not open it: else a server that closes
// again and again would seem ever slower because a call of before ends late.
func TestDoorOpensForACallThatKnocks(t *testing.T) {
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

// The peak is the highest ceiling after 250 calls or more, but not the first one, which a full
// bucket flatters. It fades with each cut at the ceiling or above.
func TestStatePeak(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for _, tt := range []struct {
		name       string
		was        int64 // ceiling; 10 a second are given now
		calls      int64 // since then
		cost       int
		peak, want int64
	}{
		{"the first cut", 0, 250, 1, 0, 0},
		{"a higher ceiling", 5e6, 250, 1, 5e6, 10e6},
		{"a higher ceiling after fewer calls", 5e6, 249, 1, 5e6, 5e6},
		{"a higher ceiling after calls that cost three", 5e6, 750, 3, 5e6, 10e6},
		{"fewer of these", 5e6, 749, 3, 5e6, 5e6},
		{"a cut below the ceiling", 10e6 + 1, 250, 1, 110e6, 110e6},
		{"a cut at the ceiling", 10e6, 250, 1, 110e6, 90e6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.Ceiling, s.Oks, s.Peak = tt.was, tt.calls, tt.peak
			s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Least: tt.cost, Epoch: 1, Count: s.Count, Throttled: true})
			assert.Equal(t, tt.want, s.Peak)
		})
	}
}

// What a window gives at first is no peak: a closing after 250 calls takes it to what went through.
// One after fewer leaves it. A long one teaches nothing. Calls that cost three each are as few.
func TestClosingBoundsThePeak(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for _, tt := range []struct {
		name        string
		calls, want int64
		cost        int
		lasts       time.Duration
	}{
		{"enough", 250, 2.5e6, 1, 10 * time.Second},
		{"fewer", 249, 40e6, 1, 10 * time.Second},
		{"enough that cost three", 750, 7.5e6, 3, 10 * time.Second},
		{"fewer that cost three", 749, 40e6, 3, 10 * time.Second},
		{"as long as a window", 250, 2.5e6, 1, 3 * time.Minute},
		{"an outage", 250, 40e6, 1, 3*time.Minute + time.Microsecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.Row, s.Peak, s.Epoch, s.ClosedAt = closedRow, 40e6, 5, s.At-tt.lasts.Microseconds()
			s.Total, s.OpenTime = tt.calls-1, 105e6 // of which the server was closed for the last half of ten seconds
			was := s.Ceiling
			s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Least: tt.cost, Epoch: 5, Count: s.Count, Successes: 1})
			assert.Equal(t, tt.want, s.Peak)
			assert.Equal(t, tt.lasts > 3*time.Minute, s.Ceiling == was)
		})
	}
}

// Far below the peak the shared rate grows by the mean of it and the ceiling.
func TestRateReturnsToThePeak(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	grown := func(peak, flow int64) float64 {
		s := calledState(1e15)
		s.Rate, s.Ceiling, s.Flow, s.Peak = 1e6, 1e6, flow, peak
		was := s.Rate
		s.Sync(time.Duration(s.At+500_000)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Successes: 1})
		return float64(s.Rate-was) / 1e6
	}
	const probe = .1 * .5 / 100 // of one call a second, for half a second
	assert.InEpsilon(t, probe, grown(0, 1e6), .01)
	assert.InEpsilon(t, probe, grown(1.4e6, 1e6), .01, "little below")
	assert.InEpsilon(t, 4*probe, grown(4e6, 1e6), .01, "by twice the ceiling, in half of the time")
	assert.InEpsilon(t, 10*5*probe, grown(100e6, 1e6), .01, "by ten times the ceiling, in a fifth of the time at least")
	assert.Positive(t, grown(4e6, .55e6), "half of it in use")
	assert.Zero(t, grown(4e6, .45e6), "less")
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
