package shared

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
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

// Of what workers were told of a quota, the newest counts, not what comes last.
func TestQuotaNewestCounts(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	var s State
	told := func(at time.Duration, left int, age time.Duration) int64 {
		q := cruise.Quota{Limit: 100, Remaining: left, Reset: time.Minute - (at - age)}
		return s.Sync(at, Request{Law: law, Epoch: s.Epoch, Successes: 10, Quota: &q, QuotaAge: age}).Rate
	}
	told(time.Second, 100, 0)
	slow := told(10*time.Second, 10, 0)
	assert.EqualValues(t, 200_000, slow, "10 in 50 s")
	assert.Equal(t, slow, told(11*time.Second, 2, 5*time.Second), "of five seconds ago")
	assert.Less(t, told(12*time.Second, 2, 0), slow)
}

// Where what was used of a limit is back already, the shared rate doubles as that of one
// process does. Of a window nothing comes back before its end, when everything does.
func TestRateFollowsWhatComesBack(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	grown := func(elsewhere bool, limit int, left func(used int) int) float64 {
		at, used := int64(1e15), 0
		s := State{
			At: at, Tat: at, Until: at, Credit: at, CutAt: at - 10e6, Born: at - 100e6,
			Epoch: 1, Rate: 10e6, Ceiling: 10e6, Flow: 10e6, Busy: 1e6, CountEnd: at + 1,
		}
		s.Sync(time.Duration(at)*time.Microsecond, Request{Law: law, Epoch: 1, Throttled: true, Elsewhere: elsewhere})
		for range 20 {
			at += 500_000
			calls := int(s.Rate / 2e6)
			used += calls
			q := Request{Law: law, Epoch: 2, Want: calls, Least: 1, Successes: int64(calls)}
			if limit > 0 {
				q.Quota = &cruise.Quota{Limit: limit, Remaining: left(used)}
			}
			s.Sync(time.Duration(at)*time.Microsecond, q)
		}
		return float64(s.Rate) / 10e6
	}
	assert.InDelta(t, 28, grown(false, 100, func(int) int { return 90 }), 8)
	assert.Less(t, grown(false, 100, func(int) int { return 50 }), 1.5, "half of it is in use")
	assert.Less(t, grown(false, 100, func(used int) int { return 99 - used%70 }), 1.5, "a window")
	assert.Equal(t, grown(false, 0, nil), grown(true, 100, func(int) int { return 90 }), "something else limits calls")
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

// calledState is that of a scope whose workers make ten calls a second, as the rate allows.
func calledState(at int64) State {
	return State{
		At: at, Tat: at, Until: at, Credit: at, CutAt: at - 10e6, Born: at - 100e6, CountEnd: at + sharedCount,
		HintAt: at - 10e6, Epoch: 1, Rate: 10e6, Ceiling: 20e6, Flow: 10e6, Busy: 1e6, Oks: 1, Answers: 100, Refused: 30_000,
	}
}

// Where little is left of a quota the shared rate falls while less is left each time, and
// grows again with what is left.
func TestStateFollowsWhatIsLeft(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	const heedless = -1 // it grows as if nothing was told
	for _, tt := range []struct {
		name        string
		was         int64 // left before
		told        cruise.Quota
		change      func(s *State)
		want        float64 // rate, of ten before
		wantCeiling int64   // of twenty before
	}{
		{"less than before", 9, cruise.Quota{Limit: 100, Remaining: 5}, nil, 7.5, 10},
		{"less than before, of an unknown limit", 9, cruise.Quota{Remaining: 5}, nil, 7.5, 10},
		{"as much as before", 5, cruise.Quota{Limit: 100, Remaining: 5}, nil, 7.5, 20},
		{"one more", 4, cruise.Quota{Limit: 100, Remaining: 5}, nil, 10, 20},
		{"some more", 3, cruise.Quota{Limit: 100, Remaining: 5}, nil, 10.332, 20},
		{"some more, for the first time in long", 3, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.HintAt -= 1e9 }, 12.5, 20},
		{"less, a moment ago", 9, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.HintAt = s.At - 499_999 }, 10, 20},
		{"less, a second ago", 9, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.HintAt = s.At - 500_000 }, 7.5, 10},
		{"before the first throttle, at once", 3, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.Ceiling, s.HintAt = 0, s.At }, 7.5, 10},
		{"enough", 20, cruise.Quota{Limit: 100, Remaining: 12}, nil, heedless, 20},
		{"not quite enough", 20, cruise.Quota{Limit: 100, Remaining: 11}, nil, 7.5, 10},
		{"a quarter of a low limit", 20, cruise.Quota{Limit: 20, Remaining: 5}, nil, heedless, 20},
		{"less than that", 20, cruise.Quota{Limit: 20, Remaining: 4}, nil, 7.5, 10},
		{"a limit that is used up and whole again within a period", 9, cruise.Quota{Limit: 11, Remaining: 1}, nil, heedless, 20},
		{"a window that is over when this is known", 9, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.ResetLeft = -1 }, heedless, 20},
		{"it stays low", 5, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.LeftStays, s.LeftFlat = 5, flatAfter }, heedless, 20},
		{"it stayed low, and is more now", 9, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.LeftStays, s.LeftFlat = 4, flatAfter }, 7.5, 10},
		{"it has stayed low not long enough", 5, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.LeftStays, s.LeftFlat = 5, flatAfter-1 }, 7.5, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.HintLeft = tt.was
			if tt.change != nil {
				tt.change(&s)
			}
			s.Sync(time.Duration(s.At+500_000)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Successes: 5, Quota: &tt.told})
			if tt.want == heedless {
				assert.Greater(t, s.Rate, int64(10e6))
			} else {
				assert.InDelta(t, tt.want, float64(s.Rate)/1e6, .001)
			}
			assert.Equal(t, tt.wantCeiling*1e6, s.Ceiling)
		})
	}
	for left, want := range map[int64][]int64{4: {5, flatAfter - 1}, 6: {6, flatAfter - 1}, hintLeast: {hintLeast, 0}} {
		s := calledState(1e15)
		s.LeftStays, s.LeftFlat = 5, flatAfter-1
		assert.False(t, s.flat(left, hintLeast))
		assert.Equal(t, want, []int64{s.LeftStays, s.LeftFlat}, "%d is left", left)
	}
	s := calledState(1e15)
	s.LeftStays, s.LeftFlat = 4, flatAfter-1
	s.Sync(time.Duration(s.At+500_000)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Successes: 5, Quota: &cruise.Quota{Limit: 20, Remaining: 5}})
	assert.Zero(t, s.LeftFlat, "a quarter of the limit is enough")
}

// A rest that stays where it is however slowly calls come means nothing, though more was seen
// before: while all succeed the rate comes back to where it was.
func TestStateHeedsNoRestThatStays(t *testing.T) {
	law := Law{Min: 1000, Max: 20e6, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	var s State
	at, sent := time.Second, 0
	pass := func(d time.Duration, left int) {
		for end := at + d; at < end; at += 500 * ms {
			q := Request{Law: law, Epoch: s.Epoch, Count: s.Count, Want: 100, Least: 1, Successes: int64(sent)}
			if sent > 0 {
				q.Quota = &cruise.Quota{Limit: 100, Remaining: left}
			}
			sent = s.Sync(at, q).Slots
		}
	}
	pass(5*time.Minute, 60)
	was := s.Rate
	require.Greater(t, was, int64(10e6))
	pass(3*time.Second, 5)
	assert.Less(t, s.Rate, was/2, "heeded at first")
	pass(5*time.Minute, 5)
	assert.GreaterOrEqual(t, s.Rate, was)
	pass(4*time.Hour, 5)
	assert.GreaterOrEqual(t, s.Rate, was)
	pass(10*time.Second, 6)
	assert.Less(t, s.Rate, was, "more is seen")
}

// What is left of a window is spread over the time until its reset, once half of it is used.
// Where nothing is left and the reset is near, nobody goes before.
func TestStateRations(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	const free = -1 // no slower than before
	for _, tt := range []struct {
		name  string
		first int64 // left when it was first told
		told  cruise.Quota
		want  float64
		pause time.Duration
	}{
		{"half", 100, cruise.Quota{Limit: 100, Remaining: 50, Reset: time.Minute}, 50. / 60, 0},
		{"more than half", 100, cruise.Quota{Limit: 100, Remaining: 51, Reset: time.Minute}, free, 0},
		{"of an unknown limit", 100, cruise.Quota{Remaining: 60, Reset: time.Minute}, 1, 0},
		{"more than the rate uses up", 100, cruise.Quota{Limit: 100, Remaining: 50, Reset: time.Second}, free, 0},
		{"a quarter used since it was told", 50, cruise.Quota{Limit: 100, Remaining: 25, Reset: time.Minute}, 25. / 60, 0},
		{"a quarter of what was left", 40, cruise.Quota{Limit: 100, Remaining: 30, Reset: time.Minute}, 30. / 60, 0},
		{"less than that: it may be a bucket", 50, cruise.Quota{Limit: 100, Remaining: 39, Reset: time.Minute}, free, 0},
		{"so little that a bucket's reset would not have moved", 8, cruise.Quota{Limit: 100, Remaining: 5, Reset: time.Minute}, free, 0},
		{"nothing, and the reset is near", 100, cruise.Quota{Limit: 100, Reset: usedUpMost}, .1, usedUpMost},
		{"nothing, and the reset is not near", 100, cruise.Quota{Limit: 100, Reset: usedUpMost + time.Second}, 1. / 11, 0},
		{"one, and the reset is near", 100, cruise.Quota{Limit: 100, Remaining: 1, Reset: usedUpMost}, .1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			at := s.At + 500_000
			s.ResetAt, s.ResetLeft = at+micros(tt.told.Reset), tt.first
			r := s.Sync(time.Duration(at)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Successes: 5, Quota: &tt.told})
			if tt.want == free {
				assert.GreaterOrEqual(t, s.Rate, int64(10e6))
			} else {
				assert.InEpsilon(t, tt.want, float64(s.Rate)/1e6, .001)
			}
			assert.Equal(t, tt.pause, r.Pause)
		})
	}
}

// What is left of a window lasts until its reset, though few answers tell of it.
func TestStateRationsForWhoIsToldNothing(t *testing.T) {
	const limit, window = 5000, time.Hour
	law := Law{Min: 1000, Max: 20e6, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	var s State
	used, sent := 0, 0
	pass := func(at time.Duration) {
		q := Request{Law: law, Epoch: s.Epoch, Count: s.Count, Want: 100, Least: 1, Successes: int64(sent)}
		if used/5 < (used+sent)/5 { // every fifth tells
			q.Quota = &cruise.Quota{Limit: limit, Remaining: limit - used - sent, Reset: window - at}
		}
		used += sent
		sent = s.Sync(at, q).Slots
	}
	last := window - time.Second
	for at := time.Second; at < last; at += 500 * ms {
		pass(at)
		require.LessOrEqual(t, used+sent, limit, "used up after %v", at)
	}
	assert.Greater(t, used, limit*95/100)
	assert.Positive(t, s.Unspread)

	slow := s.Rate
	sent = 1
	used = 0 // it tells nothing
	pass(last)
	assert.Equal(t, slow, s.Rate)
	for at := window; at < window+10*time.Second; at += 500 * ms {
		s.Sync(at, Request{Law: law, Epoch: s.Epoch, Count: s.Count, Want: 1, Least: 1, Successes: int64(s.Rate/2e6 + 1)})
	}
	assert.Greater(t, s.Rate, 2*slow, "after the reset")
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

// A throttle just before the reset of a window whose rest was spread says that this is used
// up, and nothing of the next one.
func TestStateSpentWindow(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for _, tt := range []struct {
		name      string
		reset     time.Duration // from now
		unspread  int64
		elsewhere bool
		cut       bool
	}{
		{"just before the reset", time.Second, 40e6, false, false},
		{"just after it", -time.Second, 40e6, false, false},
		{"before that", time.Second + time.Microsecond, 40e6, false, true},
		{"long after it", -time.Second - time.Microsecond, 40e6, false, true},
		{"the rest was not spread", time.Second, 0, false, true},
		{"enough was left", time.Second, 40e6, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.Unspread, s.ResetAt = tt.unspread, s.At+tt.reset.Microseconds()
			was := s
			r := s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Throttled: true, Elsewhere: tt.elsewhere, Backoff: time.Second})
			assert.EqualValues(t, 2, s.Epoch)
			assert.Positive(t, r.Pause)
			if !tt.cut {
				assert.Equal(t, []int64{was.Ceiling, was.Rate, was.Unspread}, []int64{s.Ceiling, s.Rate, s.Unspread})
				return
			}
			assert.Less(t, max(s.Rate, s.Unspread), max(was.Rate, was.Unspread))
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
		took       time.Duration
		peak, want int64
	}{
		{"as many as allowed", false, 300, 30 * time.Second, 5e6, 10e6},
		{"fewer", false, 300, 60 * time.Second, 2e6, 5e6},
		{"more, by chance", false, 600, 30 * time.Second, 5e6, 10e6},
		{"fewer than before", false, 300, 60 * time.Second, 7e6, 7e6},
		{"too few to tell", false, 249, 20 * time.Second, 5e6, 5e6},
		{"in too short a time to tell", false, 300, 4999 * ms, 5e6, 5e6},
		{"before the first cut", true, 300, 30 * time.Second, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.Total, s.OpenTime = 1000+tt.calls, 60e6+tt.took.Microseconds()
			s.PeakTotal, s.PeakTime, s.Peak = 1000, 60e6, tt.peak
			if tt.first {
				s.PeakTotal, s.PeakTime = 0, 0
			}
			s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Throttled: true})
			assert.Equal(t, tt.want, s.Peak)
			if told := s.Total == s.PeakTotal; told != (tt.calls >= 250 && tt.took >= 5*time.Second) {
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
// through, one after fewer leaves it.
func TestClosingBoundsThePeak(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for calls, want := range map[int64]int64{250: 2.5e6, 249: 40e6} {
		s := calledState(1e15)
		s.Row, s.Peak, s.Epoch, s.ClosedAt = closedRow, 40e6, 5, s.At-10e6
		s.Total, s.OpenTime = calls-1, 105e6 // of which the server was closed for the last half of ten seconds
		s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Epoch: 5, Count: s.Count, Successes: 1})
		assert.Equal(t, want, s.Peak, "%d calls", calls)
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
		assert.Equal(t, tt.want.Microseconds(), sharedTurn(tt.workers, int64(tt.rate*1e6)), "%d workers, %v calls a second", tt.workers, tt.rate)
	}
}

// A state that no sync leaves behind, as a store may be damaged, is begun anew by what the
// worker knows.
func TestStateThatIsDamaged(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for name, damage := range map[string]func(s *State){
		"rate":       func(s *State) { s.Rate = 0 },
		"ceiling":    func(s *State) { s.Ceiling = -1 },
		"peak":       func(s *State) { s.Peak = -1 },
		"answers":    func(s *State) { s.Answers = -1 },
		"refused":    func(s *State) { s.Refused = -1 },
		"too many":   func(s *State) { s.Refused = sharedMillion + 1 },
		"cause":      func(s *State) { s.Why = whyQuota + 1 },
		"no cause":   func(s *State) { s.Why = -1 },
		"level":      func(s *State) { s.Level = -1 },
		"resumes":    func(s *State) { s.Resumes = -1 },
		"cap":        func(s *State) { s.Cap = -1 },
		"cap before": func(s *State) { s.CapBefore = -1 },
		"pause":      func(s *State) { s.Until = s.At + micros(MaxPause) + 1 },
		"lifted":     func(s *State) { s.Lifted = s.At + micros(MaxPause) + 1 },
		"next slot":  func(s *State) { s.Tat = s.At + 100*sharedYear + 1 },
		"count":      func(s *State) { s.CountEnd = s.At + sharedCount + 1 },
		"credit":     func(s *State) { s.Credit = s.At + 1 },
		"cut":        func(s *State) { s.CutAt = s.At + 1 },
		"born":       func(s *State) { s.Born = s.At + 1 },
		"closed":     func(s *State) { s.ClosedAt = s.At + 1 },
		"outage":     func(s *State) { s.OutageAt = s.At + 1 },
		"quota":      func(s *State) { s.QuotaAt = s.At + 1 },
		"hint":       func(s *State) { s.HintAt = s.At + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			at := time.Duration(1e15) * time.Microsecond
			known := s.Sync(at, Request{Law: law, Epoch: 7, Rate: 20e6})
			s.Total = 1000
			damage(&s)
			r := s.Sync(at, Request{Law: law, Epoch: known.Epoch, Rate: known.Rate, Count: known.Count, Want: 1, Least: 1})
			assert.Zero(t, s.Total)
			assert.NoError(t, r.check(Request{Want: 1, Least: 1}))
			assert.Equal(t, []int64{7, 20e6, 0}, []int64{r.Epoch, r.Rate, int64(r.Pause)})
		})
	}
}
