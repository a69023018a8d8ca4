// Package terms carries what a call asks of a limiter in the context that the limiter gets, so
// that limiters outside the root package can keep to it too.
package terms

import (
	"context"
	"math"
	"time"
)

// MaxPauseKey is the key of the longest pause that a call waits for, a time.Duration.
type MaxPauseKey struct{}

// MaxPause returns the longest pause that the call of ctx waits for. Without a Retrier around
// it a call waits for any.
func MaxPause(ctx context.Context) time.Duration {
	if d, ok := ctx.Value(MaxPauseKey{}).(time.Duration); ok {
		return d
	}
	return math.MaxInt64
}
