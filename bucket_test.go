package cruise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A bucket decides as x/time does, whatever is asked of it, and counts its tokens
// alike.
func TestBucketAsXTime(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		anyLimit := func() rate.Limit {
			if random.IntN(8) == 0 {
				return rate.Inf
			}
			return rate.Limit(math.Pow(10, 9*random.Float64()-3))
		}
		limit, burst := anyLimit(), 1+random.IntN(20)
		b, x := newBucket(limit, burst), rate.NewLimiter(limit, burst)
		now := clock.Now()
		for step := range 500 {
			if b.limit < rate.Inf { // by up to two tokens' time
				now = now.Add(clock.CeilSeconds(2 * random.Float64() / float64(b.limit)))
			}
			switch random.IntN(20) {
			case 0:
				limit := anyLimit()
				b.setLimit(now, limit)
				x.SetLimitAt(now.Time(), limit)
			case 1:
				burst := 1 + random.IntN(20)
				b.setBurst(now, burst)
				x.SetBurstAt(now.Time(), burst)
			default:
				n := 1 + random.IntN(3)
				if got, want := b.pass(now, n) == 0, x.AllowN(now.Time(), n); got != want {
					t.Fatalf("seed %d, step %d: pass of %d: %v, want %v", seed, step, n, got, want)
				}
			}
			if got, want := b.at(now), x.TokensAt(now.Time()); math.Abs(got-want) > 1e-9 {
				t.Fatalf("seed %d, step %d: %v tokens, want %v", seed, step, got, want)
			}
		}
	}
}

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
