package shared

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

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

// Where little is left of a quota the shared rate falls while less is left each time, and
// grows again with what is left.
func TestStateFollowsTheRest(t *testing.T) {
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
		{"it stays low", 5, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.HintSame = hintSame }, heedless, 20},
		{"it stays low, a moment later", 5, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.HintSame, s.HintAt = hintSame, s.At }, heedless, 20},
		{"it stayed low, and is less now", 9, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.HintSame = hintSame }, 7.5, 10},
		{"it has stayed low not long enough", 5, cruise.Quota{Limit: 100, Remaining: 5}, func(s *State) { s.HintSame = hintSame - 1 }, 7.5, 20},
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
	for left, want := range map[int]int64{4: 0, 5: 4, 6: 3, 7: 0, 50: 0} {
		s := calledState(1e15)
		s.HintLeft, s.HintSame = 5, 3
		s.Sync(time.Duration(s.At+500_000)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Successes: 5, Quota: &cruise.Quota{Limit: 100, Remaining: left}})
		assert.Equal(t, want, s.HintSame, "%d is left", left)
	}
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
	pass(10*time.Second, 4)
	assert.Less(t, s.Rate, was, "it falls again")
}

// Workers that come late to a window spread the rest of it until its very end.
func TestStateSpreadsTheRestUntilTheReset(t *testing.T) {
	for _, left := range []int{100, 200, 400, 900} {
		law := Law{Min: 1000, Max: 1e12, Initial: 20e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
		s := State{}
		const reset = 61 * time.Second
		rest, sent := left, 0
		for at := time.Second; at < reset; at += 500 * ms {
			q := Request{Law: law, Epoch: s.Epoch, Count: s.Count, Want: 1000, Least: 1, Successes: int64(sent)}
			if sent > 0 {
				q.Quota = &cruise.Quota{Limit: 1000, Remaining: max(0, rest), Reset: reset - at}
			}
			sent = s.Sync(at, q).Slots
			rest -= sent
		}
		assert.InDelta(t, 0, rest, 2+.05*float64(left), "of %d", left)
	}
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
func TestStateRationsForUntoldWorkers(t *testing.T) {
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

// A throttle just before the reset of a window whose rest was spread says that this is used
// up, and nothing of the next one.
func TestStateSpentWindow(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for _, tt := range []struct {
		name     string
		reset    time.Duration // from now
		unspread int64
		cut      bool
	}{
		{"just before the reset", time.Second, 40e6, false},
		{"just after it", -time.Second, 40e6, false},
		{"before that", time.Second + time.Microsecond, 40e6, true},
		{"long after it", -time.Second - time.Microsecond, 40e6, true},
		{"the rest was not spread", time.Second, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calledState(1e15)
			s.Unspread, s.ResetAt = tt.unspread, s.At+tt.reset.Microseconds()
			was := s
			r := s.Sync(time.Duration(s.At)*time.Microsecond, Request{Law: law, Epoch: 1, Count: s.Count, Throttled: true, Backoff: time.Second})
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
