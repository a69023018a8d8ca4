package shared

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
		assert.Zero(t, s.Row)
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
				Law: law, Epoch: s.Epoch, Count: s.Count, Want: int(cost), Least: int(cost), Successes: succeeded,
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
