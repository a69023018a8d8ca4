package cruise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A bound on the first pause of a series doubles from one to the next, and the
// pauses keep to it, by chance within its upper half.
func TestBrakeKeepsToItsBound(t *testing.T) {
	const first = 100 * ms
	for range 200 {
		b := brake{backoff: Must(NewBackoff(WithBase(10*time.Second), WithMaxDelay(time.Minute), WithJitter(NoJitter()))), forgive: defaultForgive}
		now := instant(0)
		for throttle := range 4 {
			now = now.after(time.Second)
			bound := first << throttle
			wait := b.learn(now, ending{outcome: OutcomeThrottled, cost: 1}, 0, first)
			assert.GreaterOrEqual(t, wait, bound/2, "throttle %d", throttle)
			assert.LessOrEqual(t, wait, bound, "throttle %d", throttle)
			b.learn(now, ending{outcome: OutcomeSuccess, cost: 1}, 0, first) // the server isn't closed
		}
		// Closed it is: nothing got through, so the backoff's base is the least bound.
		b.learn(now.after(time.Second), ending{outcome: OutcomeThrottled, cost: 1}, 0, first)
		wait := b.learn(now.after(2*time.Second), ending{outcome: OutcomeThrottled, cost: 1}, 0, first)
		assert.GreaterOrEqual(t, wait, 5*time.Second)
		assert.LessOrEqual(t, wait, 10*time.Second)
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
