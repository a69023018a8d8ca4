package cruise

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// events notes what an observer is told.
type events struct {
	mu  sync.Mutex // guards all
	all []Event
}

func (e *events) Observe(_ context.Context, event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// since returns what was told since the last time it was called.
func (e *events) since() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

func TestAdaptiveEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		a := Must(NewAdaptiveLimiter(WithInitialRate(100), WithMaxRate(1000), WithTuning(Tuning{Burst: 2}), WithObserver(&seen)))
		pausedFor := func(d time.Duration) Paused { return Paused{Until: time.Now().Add(d), For: d} }

		letGo(t, a, 1).ends(OutcomeSuccess, 0)
		assert.Empty(t, seen.since(), "nobody was held back, so nothing changes")

		time.Sleep(time.Second)
		first, second := letGo(t, a, 1), letGo(t, a, 1)
		time.Sleep(ms)
		was := a.Limit()
		first.l.Learn(Feedback{Outcome: OutcomeThrottled, Sent: first.sent.Time(), Cost: 1, RetryAfter: time.Second, Scope: "ACCOUNT"})
		is := a.Limit()
		assert.Equal(t, []Event{
			ThrottleSeen{RetryAfter: time.Second, Scope: "ACCOUNT"},
			RateChanged{From: was, To: is, Why: CauseThrottle},
			pausedFor(time.Second),
		}, seen.since())

		second.ends(OutcomeThrottled, 500*ms)
		assert.Equal(t, []Event{ThrottleSeen{RetryAfter: 500 * ms, Late: true}}, seen.since(),
			"late, so no cut; shorter, so no pause")

		time.Sleep(500 * ms)
		a.Pause(100 * ms)
		assert.Empty(t, seen.since(), "a pause within another")
		a.Pause(time.Minute)
		assert.Equal(t, []Event{pausedFor(time.Minute)}, seen.since())
		time.Sleep(10 * time.Second)
		a.Resume()
		assert.Equal(t, []Event{Resumed{Left: 50 * time.Second}}, seen.since())
		a.Resume()
		assert.Empty(t, seen.since(), "there is no pause")

		require.NoError(t, a.SetLimit(10))
		assert.Equal(t, []Event{RateChanged{From: is, To: 10, Why: CauseSet}}, seen.since())
		require.NoError(t, a.SetLimit(10))
		assert.Empty(t, seen.since(), "the same rate")
		require.Error(t, a.SetLimit(-1))
		assert.Empty(t, seen.since(), "refused")
		require.NoError(t, a.SetLimit(rate.Inf))
		assert.Equal(t, []Event{RateChanged{From: 10, To: 1000, Why: CauseSet}}, seen.since())

		require.NoError(t, a.SetLimit(10))
		seen.since()
		time.Sleep(time.Second)
		for range 5 {
			letGo(t, a, 1).ends(OutcomeSuccess, 0) // the third is held back
		}
		grown := seen.since()
		require.NotEmpty(t, grown)
		from := rate.Limit(10)
		for _, e := range grown {
			change := e.(RateChanged)
			assert.Equal(t, CauseSuccess, change.Why)
			assert.Equal(t, from, change.From)
			assert.Greater(t, change.To, change.From)
			from = change.To
		}
		assert.Equal(t, from, a.Limit())

		q := Quota{Limit: 100, Remaining: 100}
		c := letGo(t, a, 1)
		a.Learn(Feedback{Outcome: OutcomeSuccess, Sent: c.sent.Time(), Cost: 1, Quota: &q})
		for _, e := range seen.since() {
			assert.Equal(t, RateChanged{From: from, To: a.Limit(), Why: CauseQuota}, e)
		}
	})
}

// Successes tell what the law makes of throttles and quotas, too: only growth is said to be
// their own.
func TestAdaptiveEventsOfASuccessTellWhyTheRateChanged(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, a *AdaptiveLimiter)
		why  Cause
		fell bool
	}{
		{"a closed time has shown what the server gives in the long run", func(t *testing.T, a *AdaptiveLimiter) {
			for range 20 {
				letGo(t, a, 1).ends(OutcomeSuccess, 0)
			}
			for range 3 {
				letGo(t, a, 1).ends(OutcomeThrottled, 20*time.Second)
			}
			letGo(t, a, 1).ends(OutcomeSuccess, 0)
		}, CauseThrottle, true},
		{"a quota is that of a new window", func(t *testing.T, a *AdaptiveLimiter) {
			reset := time.Now().Add(time.Hour)
			for _, left := range []int{100, 40, 0, 99} {
				if left == 99 {
					reset = reset.Add(time.Hour)
				}
				c := letGo(t, a, 1)
				a.Learn(Feedback{Outcome: OutcomeSuccess, Sent: c.sent.Time(), Cost: 1,
					Quota: &Quota{Limit: 100, Remaining: left, Reset: time.Until(reset)}})
			}
		}, CauseQuota, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last RateChanged
				a := Must(NewAdaptiveLimiter(WithInitialRate(10), WithObserver(ObserverFunc(func(_ context.Context, event Event) {
					if e, ok := event.(RateChanged); ok {
						last = e
					}
				}))))
				tt.do(t, a)
				assert.Equal(t, tt.fell, last.To < last.From, "%+v", last)
				assert.Equal(t, tt.why, last.Why, "%+v", last)
			})
		})
	}
}

// What takes an observer long moves no later event.
func TestASlowObserverIsToldWhenAPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var until time.Time
		a := Must(NewAdaptiveLimiter(WithObserver(ObserverFunc(func(_ context.Context, event Event) {
			if e, ok := event.(Paused); ok {
				until = e.Until
			}
			time.Sleep(2 * time.Second)
		}))))
		began := time.Now()
		letGo(t, a, 1).ends(OutcomeThrottled, 10*time.Second)
		assert.Equal(t, 10*time.Second, until.Sub(began))
	})
}

// An observer is called without a lock, so it may call back; its panics go
// nowhere, and do no harm.
func TestAdaptiveObserverMayDoAnything(t *testing.T) {
	for _, tt := range []struct {
		name    string
		observe func(a *AdaptiveLimiter)
	}{
		{"reads", func(a *AdaptiveLimiter) { a.Stats(); a.Limit() }},
		{"sets the limit", func(a *AdaptiveLimiter) { _ = a.SetLimit(7) }},
		{"makes a free call", func(a *AdaptiveLimiter) { _ = a.WaitN(context.Background(), 0) }},
		{"pauses and resumes", func(a *AdaptiveLimiter) { a.Pause(time.Minute); a.Resume() }},
		{"learns", func(a *AdaptiveLimiter) { a.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1}) }},
		{"panics", func(*AdaptiveLimiter) { panic("observer") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a *AdaptiveLimiter
				told := 0
				a = Must(NewAdaptiveLimiter(WithInitialRate(10), WithObserver(ObserverFunc(func(context.Context, Event) {
					told++
					if told < 10 {
						tt.observe(a)
					}
				}))))
				letGo(t, a, 1).ends(OutcomeSuccess, 0)
				letGo(t, a, 1).ends(OutcomeThrottled, time.Second)
				a.Pause(2 * time.Second)
				require.NoError(t, a.SetLimit(5))
				assert.GreaterOrEqual(t, told, 3)
				// It still works.
				letGo(t, a, 1).ends(OutcomeSuccess, 0)
				checkEmpty(t, &a.queue)
			})
		})
	}
}
