package cruise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Pauses keep to their bound, by chance within its upper half, while calls get through
// between the throttles. Where none does, the backoff begins anew.
func TestBrakeKeepsToItsBound(t *testing.T) {
	const most = 100 * ms
	throttled, ok := ending{outcome: OutcomeThrottled, cost: 1}, ending{outcome: OutcomeSuccess, cost: 1}
	for range 200 {
		b := brake{backoff: Must(NewBackoff(WithBase(10*time.Second), WithMaxDelay(time.Minute), WithJitter(NoJitter()))), forgive: 1}
		now := instant(0)
		for throttle := range 4 {
			now = now.after(time.Second)
			wait := b.learn(now, throttled, 0, most)
			assert.GreaterOrEqual(t, wait, most/2, "throttle %d", throttle)
			assert.LessOrEqual(t, wait, most, "throttle %d", throttle)
			b.learn(now, ok, 0, most) // the server isn't closed
		}
		b.learn(now.after(time.Second), throttled, 0, most)
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
			now = now.after(time.Hour) // in which nobody wanted anything
			assert.Equal(t, want, b.learn(now, throttled, 0, most))
		}
	}
}

// At a closed server pauses grow from the time between two attempts where the rate, and
// not the pause, held up the second, in the way of the backoff.
func TestBrakeGrowsFromWhatWentBy(t *testing.T) {
	for _, tt := range []struct {
		name    string
		backoff Backoff
		gap     time.Duration // from one throttle to the next attempt, at least
		want    []time.Duration
	}{
		{"the pause is longer", Must(NewBackoff(WithBase(time.Second), WithMaxDelay(10*time.Second), WithJitter(NoJitter()))), ms, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second}},
		{"the rate is slower", Must(NewBackoff(WithBase(time.Second), WithMaxDelay(10*time.Second), WithJitter(NoJitter()))), 1500 * ms, []time.Duration{3 * time.Second, 6 * time.Second, 10 * time.Second}},
		{"nobody wanted anything", Must(NewBackoff(WithBase(time.Second), WithMaxDelay(time.Minute), WithJitter(NoJitter()))), time.Hour, []time.Duration{20 * time.Second, 40 * time.Second, time.Minute}},
		{"it grows threefold", Must(NewBackoff(WithBase(ms), WithMultiplier(3), WithMaxDelay(10*time.Second), WithJitter(NoJitter()))), time.Second, []time.Duration{3 * time.Second, 9 * time.Second, 10 * time.Second}},
		{"it grows by steps", Must(LinearBackoff(time.Second, time.Minute)), 5 * time.Second, []time.Duration{6 * time.Second, 7 * time.Second, 8 * time.Second}},
		{"it stays as it is", Must(ConstantBackoff(3 * time.Second)), time.Second, []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}},
		{"none at all", Backoff{}, time.Second, []time.Duration{0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, now := brake{backoff: tt.backoff, forgive: 1}, instant(time.Hour)
			b.learn(now, ending{outcome: OutcomeThrottled, cost: 1, sent: now}, 0, 10*time.Second)
			wait := time.Duration(0) // say that the first one was short
			b.last = wait
			for _, want := range tt.want {
				sent := now.after(max(wait, tt.gap))
				now = sent.after(time.Minute) // its answer takes long, which says nothing
				wait = b.learn(now, ending{outcome: OutcomeThrottled, cost: 1, sent: sent}, 0, 10*time.Second)
				assert.Equal(t, want, wait)
			}
		})
	}
}

// Where pauses have no bound, the backoff goes by the throttles alone, however far apart.
func TestBrakeWithoutABound(t *testing.T) {
	b := brake{backoff: Must(NewBackoff(WithBase(time.Second), WithMaxDelay(time.Minute), WithJitter(NoJitter()))), forgive: 1}
	now := instant(0)
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		now = now.after(time.Hour)
		assert.Equal(t, want, b.learn(now, ending{outcome: OutcomeThrottled, cost: 1, sent: now}, 0, never))
	}
}

// Calls while all is well are no credit against the throttles to come.
func TestBrakeForgivesNothingAhead(t *testing.T) {
	b := brake{backoff: Must(LinearBackoff(time.Second, time.Minute)), forgive: 2}
	for range 10 {
		b.learn(1, ending{outcome: OutcomeSuccess, cost: 1}, 0, never)
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
		assert.Equal(t, want, b.learn(instant(i+2), ending{outcome: OutcomeThrottled, cost: 1}, 0, never))
	}
	b.learn(9, ending{outcome: OutcomeSuccess, cost: 1}, 0, never)
	assert.Equal(t, 4*time.Second, b.learn(9, ending{outcome: OutcomeThrottled, cost: 1}, 0, never))
}

// The server's own wait is neither bounded nor changed by chance.
func TestBrakeHeedsTheServersWait(t *testing.T) {
	b := newBrake()
	for _, e := range []ending{
		{outcome: OutcomeThrottled, cost: 1, retryAfter: time.Hour},
		{outcome: OutcomeThrottled, cost: 1, retryAfter: time.Hour, sent: 1}, // late
		{outcome: OutcomeQuotaExhausted, cost: 1, retryAfter: time.Hour},
	} {
		assert.Equal(t, time.Hour, b.learn(2, e, 0, ms))
	}
	assert.Equal(t, 1, b.level)
}
