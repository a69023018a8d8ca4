package shared

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/limits"
)

// An Option tunes a [Limiter]. Every [cruise.LimiterOption] is one.
type Option interface{ limits.Tuning }

type config struct {
	check.Errors
	limits.Options
	timeout   time.Duration
	fallback  Fallback
	pauseOnly bool
}

type option struct {
	limits.Tunes
	set func(*config)
}

func tuning(set func(*config)) Option { return option{set: set} }

// DefaultStoreTimeout is the default of [WithStoreTimeout].
const DefaultStoreTimeout = 100 * time.Millisecond

// WithStoreTimeout bounds a sync with the store, of one or two round trips, together with its second
// try after an error: 1 ms to 10 s. After that the limiter goes on alone, by its [Fallback]. A call
// waits for the store twice as long at most, where a sync for another call is under way when it
// comes. Default [DefaultStoreTimeout].
func WithStoreTimeout(d time.Duration) Option {
	return tuning(func(c *config) {
		c.Check(d >= time.Millisecond && d <= 10*time.Second, "WithStoreTimeout(%v): want 1ms to 10s", d)
		c.timeout = d
	})
}

// Fallback says how a [Limiter] goes on while its store cannot be reached. It keeps to pauses in
// any case.
type Fallback uint8

const (
	// FallbackShare goes on at the last known rate divided by the last known number of workers,
	// and adapts that alone, up to the whole of the last known rate. It divides the Burst of
	// [cruise.Tuning] likewise. A worker that never knew the rate begins as a [cruise.AdaptiveLimiter] does.
	FallbackShare Fallback = iota
	// FallbackClosed lets no call go. If a call that is under way is throttled, the store hears of
	// it when it is back.
	FallbackClosed
	// FallbackOpen lets every call go at once, except after a throttle: then the worker pauses as
	// a [cruise.TokenBucket] does.
	FallbackOpen
)

// WithFallback chooses how the limiter goes on while the store cannot be reached. Default
// [FallbackShare].
func WithFallback(f Fallback) Option {
	return tuning(func(c *config) {
		c.Check(f <= FallbackOpen, "WithFallback(%d): want FallbackShare, FallbackClosed or FallbackOpen", f)
		c.fallback = f
	})
}

// WithPauseOnly shares pauses and nothing else: each worker finds its rate alone, as a
// [cruise.AdaptiveLimiter] does, and a Retry-After that one of them is given stops them all until
// then. It takes one sync in half a second for each worker that makes calls. A worker pauses alone
// for throttles that name no wait, and its rates bind no other worker. A [Fallback] has no effect.
func WithPauseOnly() Option {
	return tuning(func(c *config) { c.pauseOnly = true })
}

// The bounds of a shared rate, in calls per second, and its default beginning.
const (
	leastRate   = 1e-4
	mostRate    = 1e6
	initialRate = 10
	mostCost    = 10_000
	mostEpoch   = 1 << 52 // more than congestions in the life of a scope; 2^53 ends whole numbers in Redis
)

// checkRates checks the bounds of a shared rate.
func (c *config) checkRates() {
	if c.pauseOnly {
		return
	}
	const bounds = "want %v to %.0f calls per second for a shared rate"
	c.Check(c.Min >= leastRate && c.Min <= mostRate, "WithTuning: MinRate %v: "+bounds, check.LimitText(c.Min), leastRate, mostRate)
	c.Check(c.Max == rate.Inf || c.Max <= mostRate, "WithMaxRate(%v): "+bounds, check.LimitText(c.Max), leastRate, mostRate)
	c.Check(c.Initial == rate.Inf || c.Initial <= mostRate, "WithInitialRate(%v): "+bounds, check.LimitText(c.Initial), leastRate, mostRate)
	c.Check(c.Burst <= mostCost, "WithTuning: Burst %d: want 1 to %d for a shared rate", c.Burst, mostCost)
	c.Check(c.Decrease >= 1e-6 && c.Decrease <= 1-1e-6, "WithTuning: DecreaseFactor %v: want 0.000001 to 0.999999 for a shared rate", c.Decrease)
	c.Check(c.Increase >= 1e-6, "WithTuning: Increase %v: want 0.000001 to 1 for a shared rate", c.Increase)
}

// law returns the options as a store is told them.
func (c *config) law() Law {
	law := Law{
		Min: microRate(c.Min), Max: microRate(c.Max), Initial: microRate(min(c.Initial, c.Max)),
		Decrease: int64(math.Round(c.Decrease * 1e6)), Increase: int64(math.Round(c.Increase * 1e6)),
		Burst: int64(max(1, c.Burst)), Forgive: int64(c.Forgive), PauseBase: c.PauseBase,
	}
	switch {
	case c.pauseOnly: // workers of the scope that share a rate keep to theirs
		law.Min, law.Max, law.Initial = 1, mostRate*1e6, initialRate*1e6
	case c.Initial == rate.Inf:
		law.Initial = min(max(initialRate*1e6, law.Min), law.Max)
	}
	return law
}

// sane returns n as a count that a store can reckon with.
func sane(n int) int { return min(max(0, n), math.MaxInt32) }

// microRate returns a limit in millionths of a call per second, 1 at least, since 0 stands for
// none. It rounds down, as calls slightly faster than a slow limit would be throttled every other
// time, but makes up for the arithmetic of floats.
func microRate(l rate.Limit) int64 {
	return max(1, int64(math.Floor(min(float64(l), mostRate)*1e6+.001)))
}

func limitOfMicro(r int64) rate.Limit { return rate.Limit(float64(r) / 1e6) }
