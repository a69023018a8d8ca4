package cruise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Pauses keep to their bound, by chance within its upper half, while calls get through
// between the throttles. Where none does, it is the backoff's base at least, and doubles.
func TestBrakeKeepsToItsBound(t *testing.T) {
	const most = 100 * ms
	throttled, ok := ending{outcome: OutcomeThrottled, cost: 1}, ending{outcome: OutcomeSuccess, cost: 1}
	for range 200 {
		b := brake{backoff: Must(NewBackoff(WithBase(10*time.Second), WithMaxDelay(time.Minute), WithJitter(NoJitter()))), forgive: defaultForgive}
		now := instant(0)
		for throttle := range 4 {
			now = now.after(time.Second)
			wait := b.learn(now, throttled, 0, most)
			assert.GreaterOrEqual(t, wait, most/2, "throttle %d", throttle)
			assert.LessOrEqual(t, wait, most, "throttle %d", throttle)
			b.learn(now, ok, 0, most) // the server isn't closed
		}
		b.learn(now.after(time.Second), throttled, 0, most)
		for _, bound := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
			now = now.after(time.Minute)
			wait := b.learn(now, throttled, 0, most)
			assert.GreaterOrEqual(t, wait, bound/2)
			assert.LessOrEqual(t, wait, bound)
		}
	}
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
