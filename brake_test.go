package cruise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Pauses keep to their bound, by chance within its upper half, while calls get through
// between the throttles. Where none does, the backoff begins anew.
func TestBrakeKeepsToItsBound(t *testing.T) {
	const most = 100 * ms
	throttled, ok := Feedback{Outcome: OutcomeThrottled}, Feedback{Outcome: OutcomeSuccess}
	for range 200 {
		b := brake{backoff: Must(NewBackoff(WithBase(10*time.Second), WithMaxDelay(time.Minute), NoJitter())), forgive: 1}
		now := clock.Instant(0)
		for throttle := range 4 {
			now = now.Add(time.Second)
			wait := b.pauseAfter(now, 0, throttled, 0, most)
			assert.GreaterOrEqual(t, wait, most/2, "throttle %d", throttle)
			assert.LessOrEqual(t, wait, most, "throttle %d", throttle)
			b.pauseAfter(now, 0, ok, 0, most) // the server isn't closed
		}
		b.pauseAfter(now.Add(time.Second), 0, throttled, 0, most)
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
			now = now.Add(time.Hour) // in which nobody wanted anything
			assert.Equal(t, want, b.pauseAfter(now, 0, throttled, 0, most))
		}
	}
}

// At a closed server pauses grow from the time between two attempts where the rate, and
// not the pause, held up the second, in the way of the backoff.
func TestBrakeGrowsFromThePauseThatPassed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		backoff Backoff
		gap     time.Duration // from one throttle to the next attempt, at least
		want    []time.Duration
	}{
		{"the pause is longer", Must(NewBackoff(WithBase(time.Second), WithMaxDelay(10*time.Second), NoJitter())), ms, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second}},
		{"the rate is slower", Must(NewBackoff(WithBase(time.Second), WithMaxDelay(10*time.Second), NoJitter())), 1500 * ms, []time.Duration{3 * time.Second, 6 * time.Second, 10 * time.Second}},
		{"nobody wanted anything", Must(NewBackoff(WithBase(time.Second), WithMaxDelay(time.Minute), NoJitter())), time.Hour, []time.Duration{20 * time.Second, 40 * time.Second, time.Minute}},
		{"it grows threefold", Must(NewBackoff(WithBase(ms), WithMultiplier(3), WithMaxDelay(10*time.Second), NoJitter())), time.Second, []time.Duration{3 * time.Second, 9 * time.Second, 10 * time.Second}},
		{"it grows by steps", Must(LinearBackoff(time.Second, time.Minute)), 5 * time.Second, []time.Duration{6 * time.Second, 7 * time.Second, 8 * time.Second}},
		{"it stays as it is", Must(ConstantBackoff(3 * time.Second)), time.Second, []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}},
		{"none at all", Backoff{}, time.Second, []time.Duration{0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, now := brake{backoff: tt.backoff, forgive: 1}, clock.Instant(time.Hour)
			b.pauseAfter(now, now, Feedback{Outcome: OutcomeThrottled}, 0, 10*time.Second)
			wait := time.Duration(0) // say that the first one was short
			b.lastPause = wait
			for _, want := range tt.want {
				sent := now.Add(max(wait, tt.gap))
				now = sent.Add(time.Minute) // its answer takes long, which says nothing
				wait = b.pauseAfter(now, sent, Feedback{Outcome: OutcomeThrottled}, 0, 10*time.Second)
				assert.Equal(t, want, wait)
			}
		})
	}
}

// Where pauses have no bound, the backoff goes by the throttles alone, however far apart.
func TestBrakeWithoutABound(t *testing.T) {
	b := brake{backoff: Must(NewBackoff(WithBase(time.Second), WithMaxDelay(time.Minute), NoJitter())), forgive: 1}
	now := clock.Instant(0)
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		now = now.Add(time.Hour)
		assert.Equal(t, want, b.pauseAfter(now, now, Feedback{Outcome: OutcomeThrottled}, 0, clock.Never))
	}
}

// Calls while all is well are no credit against the throttles to come.
func TestBrakeForgivesNothingAhead(t *testing.T) {
	b := brake{backoff: Must(LinearBackoff(time.Second, time.Minute)), forgive: 2}
	for range 10 {
		b.pauseAfter(1, 0, Feedback{Outcome: OutcomeSuccess}, 0, clock.Never)
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
		assert.Equal(t, want, b.pauseAfter(clock.Instant(i+2), 0, Feedback{Outcome: OutcomeThrottled}, 0, clock.Never))
	}
	b.pauseAfter(9, 0, Feedback{Outcome: OutcomeSuccess}, 0, clock.Never)
	assert.Equal(t, 4*time.Second, b.pauseAfter(9, 0, Feedback{Outcome: OutcomeThrottled}, 0, clock.Never))
}

// Where a short wait that the server asked for was not enough, others were told the same moment. So
// the next ones grow as the backoff does, differ by chance, and are never shorter than asked.
func TestBrakeSpreadsCallsThatWaitedInVain(t *testing.T) {
	type wait struct{ asked, least, most time.Duration }
	const s = time.Second
	doubling := defaultPause
	for _, tt := range []struct {
		name    string
		backoff Backoff
		sent    func(now clock.Instant) clock.Instant // nil for after the wait
		want    []wait
	}{
		{"it doubles", doubling, nil, []wait{{30 * ms, 30 * ms, 30 * ms}, {30 * ms, 30 * ms, 60 * ms}, {30 * ms, 60 * ms, 120 * ms}, {30 * ms, 120 * ms, 240 * ms}}},
		{"up to a second", doubling, nil, []wait{{300 * ms, 300 * ms, 300 * ms}, {300 * ms, 300 * ms, 600 * ms}, {300 * ms, 500 * ms, s}, {300 * ms, 500 * ms, s}}},
		{"a second and more is as asked", doubling, nil, []wait{{s, s, s}, {s, s, s}, {90 * s, 90 * s, 90 * s}}},
		{"from what is asked now", doubling, nil, []wait{{60 * s, 60 * s, 60 * s}, {10 * ms, 10 * ms, 20 * ms}, {200 * ms, 400 * ms, 800 * ms}}},
		{"as the backoff grows", Must(NewBackoff(WithBase(ms), WithMultiplier(3), WithMaxDelay(time.Minute))), nil, []wait{{30 * ms, 30 * ms, 30 * ms}, {30 * ms, 45 * ms, 90 * ms}, {30 * ms, 135 * ms, 270 * ms}}},
		{"no longer than the backoff", Must(NewBackoff(WithBase(ms), WithMaxDelay(50*ms))), nil, []wait{{30 * ms, 30 * ms, 30 * ms}, {30 * ms, 30 * ms, 50 * ms}, {30 * ms, 30 * ms, 50 * ms}, {80 * ms, 80 * ms, 80 * ms}}},
		{"a backoff that is constant", Must(ConstantBackoff(time.Minute)), nil, []wait{{ms, ms, ms}, {ms, ms, ms}, {ms, ms, ms}}},
		{"no backoff", Backoff{}, nil, []wait{{ms, ms, ms}, {ms, ms, ms}, {ms, ms, ms}}},
		{"sent before the last throttle was known", doubling, func(clock.Instant) clock.Instant { return 1 }, []wait{{ms, ms, ms}, {2 * ms, 2 * ms, 2 * ms}, {ms, ms, ms}}},
		{"sent at an unknown time", doubling, func(clock.Instant) clock.Instant { return 0 }, []wait{{ms, ms, ms}, {ms, ms, ms}, {ms, ms, ms}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := map[wait]map[time.Duration]bool{}
			for range 100 {
				b, now := newBrake(), clock.Instant(time.Hour)
				b.backoff = tt.backoff
				throttled := func(w wait, sent clock.Instant) {
					got := b.pauseAfter(now, sent, Feedback{Outcome: OutcomeThrottled, RetryAfter: w.asked}, 0, ms)
					if seen[w] == nil {
						seen[w] = map[time.Duration]bool{}
					}
					seen[w][got] = true
					assert.GreaterOrEqual(t, got, w.least)
					assert.LessOrEqual(t, got, w.most)
					now = now.Add(got)
				}
				for _, w := range tt.want {
					sent := now
					if tt.sent != nil {
						sent = tt.sent(now)
					}
					throttled(w, sent)
				}
				b.pauseAfter(now, now, Feedback{Outcome: OutcomeSuccess}, 0, ms)
				throttled(wait{ms, ms, ms}, now.Add(ms)) // what got through ends the series
			}
			for w, waits := range seen {
				assert.Equal(t, w.least < w.most, len(waits) > 1, "%v differs by chance", w)
			}
		})
	}
}

// A pause that no server asks for grows from the last one, whoever asked for that.
func TestBrakeGrowsFromTheServersWait(t *testing.T) {
	b := brake{backoff: Must(NewBackoff(WithBase(time.Second), WithMaxDelay(time.Minute), NoJitter())), forgive: 1}
	now := clock.Instant(time.Hour)
	for _, tt := range []struct{ asked, want time.Duration }{
		{3 * time.Second, 3 * time.Second}, {0, 6 * time.Second}, {0, 12 * time.Second}, {time.Hour, time.Hour}, {0, time.Minute},
	} {
		wait := b.pauseAfter(now, now, Feedback{Outcome: OutcomeThrottled, RetryAfter: tt.asked}, 0, ms)
		assert.Equal(t, tt.want, wait)
		now = now.Add(wait)
	}
}

// The server's own wait is neither bounded nor changed by chance, as long as it is enough.
func TestBrakeHeedsTheServersWait(t *testing.T) {
	b := newBrake()
	throttled := Feedback{Outcome: OutcomeThrottled, RetryAfter: time.Hour}
	assert.Equal(t, time.Hour, b.pauseAfter(2, 0, throttled, 0, ms))
	assert.Equal(t, time.Hour, b.pauseAfter(2, 1, throttled, 0, ms), "late")
	assert.Equal(t, time.Hour, b.pauseAfter(2, 0, Feedback{Outcome: OutcomeQuotaExhausted, RetryAfter: time.Hour}, 0, ms))
	assert.Equal(t, 1, b.level)
}
