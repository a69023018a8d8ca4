package cruise

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What an uncontended call may allocate.
func TestAllocations(t *testing.T) {
	ctx := context.Background()
	ok := func(context.Context) error { return nil }
	do := func(r *Retrier) func() { return func() { _ = r.Do(ctx, ok) } }
	wait := func(l Limiter) func() { return func() { _ = l.WaitN(ctx, 1) } }
	learn := Must(NewAdaptiveLimiter(WithInitialRate(1e9), WithTuning(Tuning{Burst: 1 << 30})))
	for _, tt := range []struct {
		name string
		most float64
		call func()
	}{
		{"Do without a limiter", 0, do(Must(New(WithoutLimiter())))},
		{"Do with an adaptive limiter", 1, do(Must(New()))},
		{"Do with an adaptive limiter that has a rate", 1, do(Must(New(WithInitialRate(1e9), WithTuning(Tuning{Burst: 1 << 30}))))},
		{"Do with a token bucket", 1, do(Must(New(WithLimiter(Must(NewTokenBucket(1e9, 1<<30))))))},
		{"WaitN of a token bucket", 0, wait(Must(NewTokenBucket(1e9, 1<<30)))},
		{"WaitN and Learn of an adaptive limiter", 0, func() {
			_ = learn.WaitN(ctx, 1)
			learn.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.LessOrEqual(t, testing.AllocsPerRun(1000, tt.call), tt.most)
		})
	}
}
