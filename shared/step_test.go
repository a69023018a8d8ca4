package shared

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

// stepLaw has the options of a worker with defaults.
func stepLaw() Law {
	return Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: 300 * ms}
}

// called returns the state of a scope whose workers have made ten calls a second for a minute, and
// the time.
func called() (s *State, now time.Duration) {
	s = &State{}
	for range 600 {
		s.Sync(now, Request{Law: stepLaw(), Epoch: 1, Rate: 10e6, Ceiling: 12e6, Count: s.Count, Want: 2, Least: 1, Successes: 1})
		now += 100 * ms
	}
	return s, now
}

// One worker at a time takes a step. If it does not end the step in time, the next one may.
func TestOneStepAtATime(t *testing.T) {
	s, now := called()
	ask := func(successes int64) Request {
		return Request{Law: stepLaw(), Epoch: s.Epoch, Count: s.Count, Want: 1, Least: 1, Successes: successes}
	}
	_, first := s.Report(now, ask(5))
	require.NotNil(t, first)
	assert.EqualValues(t, 5, first.Oks)
	for _, after := range []time.Duration{0, stepTime*time.Microsecond - 1} {
		r, other := s.Report(now+after, ask(3))
		assert.Nil(t, other, "after %v", after)
		assert.NoError(t, r.check(ask(3)))
	}
	_, second := s.Report(now+stepTime*time.Microsecond, ask(0))
	require.NotNil(t, second)
	assert.EqualValues(t, 6, second.Oks, "the news since then")

	steps := s.Steps
	s.Commit(now, ask(0), second.Decide(ask(0)))
	assert.Equal(t, steps+1, s.Steps)
	was := *s
	s.Commit(now, ask(0), Decision{Step: first.Step, Rate: 1e6, Pause: time.Hour, Void: true})
	assert.Equal(t, []int64{was.Rate, was.Until, was.Epoch, was.Steps}, []int64{s.Rate, s.Until, s.Epoch, s.Steps}, "it comes too late")
}

// A throttle makes the slots void at once, and its step waits for no gap, only for a step under way.
func TestThrottleIsAStepAtOnce(t *testing.T) {
	s, now := called()
	q := Request{Law: stepLaw(), Epoch: 1, Count: s.Count, Successes: 1}
	_, news := s.Report(now, q)
	require.NotNil(t, news)
	_, other := s.Report(now, Request{Law: stepLaw(), Epoch: 1, Count: s.Count, Throttled: true, Backoff: time.Second})
	assert.Nil(t, other)
	assert.EqualValues(t, 2, s.Epoch)
	_, news = s.Commit(now, q, news.Decide(q))
	require.NotNil(t, news, "the worker takes that step too")
	assert.True(t, news.Throttled)
	now += stepTime * time.Microsecond
	_, news = s.Report(now, q)
	require.NotNil(t, news)
	assert.True(t, news.Throttled, "the worker has not ended it")
	rate := s.Rate
	r, news := s.Commit(now, q, news.Decide(q))
	assert.Nil(t, news)
	assert.Less(t, r.Rate, rate*6/10)
	assert.Equal(t, cruise.CauseThrottle, r.Why)
	assert.Positive(t, r.Pause)
}

// Only the first throttle of a congestion is a step. The next step is told how many followed.
func TestLateThrottlesAreNews(t *testing.T) {
	s, now := called()
	throttled := func(epoch, late int64) *News {
		q := Request{Law: stepLaw(), Epoch: epoch, Count: s.Count, Throttled: true, Backoff: time.Second, Late: late}
		_, news := s.Report(now, q)
		if news != nil {
			s.Commit(now, q, news.Decide(q))
		}
		return news
	}
	assert.EqualValues(t, 2, throttled(1, 2).Late)
	now += 2 * time.Second
	assert.Nil(t, throttled(1, 4), "sent before the cut")
	assert.EqualValues(t, 5, s.Late)
	assert.EqualValues(t, 5, throttled(2, 0).Late)
	now += time.Millisecond
	assert.Nil(t, throttled(3, 0), "too soon to be another one")
	assert.EqualValues(t, 1, s.Late)

	n, q := News{Rate: 10e6, Most: 1e12, Elapsed: 100 * ms, Used: 100 * ms, Oks: 1}, Request{Law: stepLaw(), Least: 1}
	none := n.Decide(q)
	n.Late = 3
	assert.NotEqual(t, none.Law, n.Decide(q).Law, "the law remembers them")
}

// Calls that were sent before the last throttle were let through, but show nothing since.
func TestLateSuccessesAreNoAnswer(t *testing.T) {
	s, now := called()
	sync := func(q Request) {
		q.Law, q.Count = stepLaw(), s.Count
		now += 2 * time.Second
		s.Sync(now, q)
	}
	sync(Request{Epoch: 1, Throttled: true, Backoff: time.Second})
	rate := s.Rate
	sync(Request{Epoch: 1, Successes: 20})
	assert.Equal(t, []int64{1, rate}, []int64{s.Row, s.Rate})
	sync(Request{Epoch: 2, Successes: 1})
	assert.Zero(t, s.Row)
}

// A law of another version begins anew, with the rate and the ceiling in force.
func TestLawOfAnotherVersion(t *testing.T) {
	for name, law := range map[string][]byte{"none": nil, "short": {1, 2, 3}, "long": make([]byte, 2000)} {
		n := News{Law: law, Rate: 10e6, Ceiling: 40e6, Most: 1e12, Elapsed: 100 * ms, Used: 100 * ms, Oks: 1}
		q := Request{Law: stepLaw(), Least: 1}
		d := n.Decide(q)
		assert.EqualValues(t, 40e6, d.Ceiling, name)
		assert.Greater(t, d.Rate, int64(10e6), name)
		n.Law, n.Rate, n.Ceiling = d.Law, 1, 1
		assert.EqualValues(t, 40e6, n.Decide(q).Ceiling, name)
	}
}

// If nothing is left of a window, all workers pause until its reset, if that is near: slots were
// given out. A new window makes the slots of the old one void, as they may be far away.
func TestStepAtTheEndOfAWindow(t *testing.T) {
	s, now := called()
	end := now + time.Minute
	sync := func(left int) Reply {
		now += time.Second
		for end < now {
			end += time.Minute
		}
		return s.Sync(now, Request{
			Law: stepLaw(), Epoch: s.Epoch, Count: s.Count, Want: 2, Least: 1, Successes: 1,
			Quota: &cruise.Quota{Limit: 100, Remaining: left, Reset: end - now},
		})
	}
	sync(90)
	r := sync(4)
	assert.Less(t, r.Rate, int64(.1e6), "the rest is spread")
	assert.Equal(t, cruise.CauseQuota, r.Why)
	assert.Zero(t, sync(0).Pause, "the reset is far away")
	now = end - 6*time.Second
	assert.Equal(t, 5*time.Second, sync(0).Pause)
	epoch := s.Epoch
	now = end
	r = sync(99)
	assert.Greater(t, r.Rate, int64(9e6))
	assert.Equal(t, epoch+1, r.Epoch)
	assert.Equal(t, 2, r.Slots)
}

// Slots count as under way until their calls are reported, for three seconds at most: they are void
// by then.
func TestSlotsUnderWay(t *testing.T) {
	s, now := called()
	now += time.Minute
	sync := func(after time.Duration, want int, successes int64) int64 {
		now += after
		s.Sync(now, Request{Law: stepLaw(), Epoch: s.Epoch, Count: s.Count, Want: want, Least: 1, Successes: successes})
		return s.Out + s.OutBefore
	}
	require.EqualValues(t, 5, sync(0, 5, 0))
	assert.EqualValues(t, 3, sync(100*ms, 0, 2))
	assert.EqualValues(t, 7, sync(1500*ms, 4, 0), "the old and the new")
	assert.EqualValues(t, 5, sync(100*ms, 0, 2), "the old first")
	assert.EqualValues(t, 4, sync(1500*ms, 0, 0), "the new")
	assert.EqualValues(t, 0, sync(time.Minute, 0, 0))
	assert.EqualValues(t, 0, sync(0, 0, 5), "never less than none")
}
