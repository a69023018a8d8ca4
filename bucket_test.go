package cruise

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// What a limit of many a nanosecond leaves lacking is not waited for at a lower one.
func TestBucketAfterAHugeLimit(t *testing.T) {
	for _, limit := range []rate.Limit{1e12, 1e300, math.MaxFloat64 / 2} {
		for name, tt := range map[string]struct {
			before func(*TokenBucket)
			want   time.Duration
		}{
			"a pause": {func(b *TokenBucket) { b.Pause(time.Minute) }, time.Minute},
			"calls at one moment": {func(b *TokenBucket) {
				for range 1000 {
					_ = b.WaitN(t.Context(), 1)
				}
			}, 2 * time.Second},
		} {
			t.Run(fmt.Sprintf("%s at %v", name, float64(limit)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := Must(NewTokenBucket(limit, 1))
					start := time.Now()
					tt.before(b)
					require.NoError(t, b.SetLimit(1))
					require.NoError(t, b.WaitN(within(t, time.Hour), 1))
					assert.Equal(t, tt.want, time.Since(start))
				})
			})
		}
	}
}
