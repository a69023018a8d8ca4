package pacer

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// pass takes n if it may go, and returns how long it must wait.
func pass(p interface {
	Peek(now clock.Instant, n int) time.Duration
	Take(now clock.Instant, n int)
}, now clock.Instant, n int) time.Duration {
	wait := p.Peek(now, n)
	if wait == 0 {
		p.Take(now, n)
	}
	return wait
}

// A bucket makes the same decisions as x/time and has the same balance, after any sequence of
// operations.
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
		b, x := NewBucket(limit, burst), rate.NewLimiter(limit, burst)
		now := clock.Now()
		for step := range 500 {
			if b.limit < rate.Inf { // by up to two tokens' time
				now = now.Add(clock.CeilSeconds(2 * random.Float64() / float64(b.limit)))
			}
			switch random.IntN(20) {
			case 0:
				limit := anyLimit()
				b.SetLimit(now, limit)
				x.SetLimitAt(now.Time(), limit)
			case 1:
				burst := 1 + random.IntN(20)
				b.SetBurst(now, burst)
				x.SetBurstAt(now.Time(), burst)
			default:
				n := 1 + random.IntN(3)
				if got, want := pass(&b, now, n) == 0, x.AllowN(now.Time(), n); got != want {
					t.Fatalf("seed %d, step %d: pass of %d: %v, want %v", seed, step, n, got, want)
				}
			}
			if got, want := b.Tokens(now), x.TokensAt(now.Time()); math.Abs(got-want) > 1e-9 {
				t.Fatalf("seed %d, step %d: %v tokens, want %v", seed, step, got, want)
			}
		}
	}
}

// A pause leaves one token at its end, be it ended early or not.
func TestBucketPause(t *testing.T) {
	const second = clock.Instant(time.Second)
	for _, tt := range []struct {
		name   string
		change func(*Bucket)
		at     clock.Instant
		want   float64
	}{
		{"none", func(*Bucket) {}, 5 * second, 5},
		{"before its end", func(b *Bucket) { b.Pause(0, 10*second) }, 9 * second, 1 - 10},
		{"at its end", func(b *Bucket) { b.Pause(0, 10*second) }, 10 * second, 1},
		{"after its end", func(b *Bucket) { b.Pause(0, 10*second) }, 10*second + second/5, 3},
		{"lifted", func(b *Bucket) { b.Pause(0, 10*second); b.Pause(second, second) }, second, 1},
		{"drained", func(b *Bucket) { b.Drain() }, second / 10, 1},
		{"a lower limit", func(b *Bucket) { b.Drain(); b.SetLimit(0, 1) }, second, 1},
		{"a lower burst", func(b *Bucket) { b.SetBurst(0, 2) }, second, 2},
		{"another limit on a copy", func(b *Bucket) { b.Drain(); *b = b.WithLimit(2) }, second, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := NewBucket(10, 5)
			tt.change(&b)
			got := b.Tokens(tt.at)
			assert.InDelta(t, tt.want, got, 1e-9)
			assert.Equal(t, got < float64(b.Burst()), b.Counts(tt.at))
		})
	}
}

// A limit far above one token a nanosecond leaves no debt for a lower one.
func TestBucketAfterAHugeLimit(t *testing.T) {
	for _, limit := range []rate.Limit{1e12, 1e300, math.MaxFloat64 / 2} {
		b := NewBucket(limit, 1)
		for range 1000 {
			assert.Zero(t, pass(&b, 1, 1))
		}
		b.SetLimit(1, 1)
		assert.LessOrEqual(t, b.Peek(1, 1), 2*time.Second, "%v", float64(limit))
	}
}
