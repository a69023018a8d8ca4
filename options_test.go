package cruise_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

func TestNewErrors(t *testing.T) {
	var noBucket *cruise.TokenBucket
	var noXTime *rate.Limiter
	bucket := cruise.WithLimiter(rate.NewLimiter(1, 1))
	for _, tt := range []struct {
		name string
		opts []cruise.Option
		want string
	}{
		{"nil option", []cruise.Option{cruise.WithoutBudget(), nil}, "cruise: option 2 is nil"},
		{"nil limiter", []cruise.Option{cruise.WithLimiter(nil)}, "cruise: WithLimiter(nil): want a Limiter, or WithoutLimiter"},
		{"nil bucket", []cruise.Option{cruise.WithLimiter(noBucket)}, "cruise: WithLimiter(nil *cruise.TokenBucket): want what its constructor returns without an error"},
		{"nil limiter of x/time", []cruise.Option{cruise.WithLimiter(noXTime)}, "cruise: WithLimiter(nil *rate.Limiter): want what its constructor returns without an error"},
		{"no attempts", []cruise.Option{cruise.WithMaxAttempts(0)}, "cruise: WithMaxAttempts(0): want 1 or more"},
		{"fewer", []cruise.Option{cruise.WithMaxAttempts(-1)}, "cruise: WithMaxAttempts(-1): want 1 or more"},
		{"no time", []cruise.Option{cruise.WithMaxElapsed(0)}, "cruise: WithMaxElapsed(0s): want above 0"},
		{"less time", []cruise.Option{cruise.WithMaxElapsed(-time.Second)}, "cruise: WithMaxElapsed(-1s): want above 0"},
		{"no server delay", []cruise.Option{cruise.WithMaxServerDelay(0)}, "cruise: WithMaxServerDelay(0s): want above 0"},
		{"no attempt timeout", []cruise.Option{cruise.WithAttemptTimeout(0)}, "cruise: WithAttemptTimeout(0s): want above 0"},
		{"nil budget", []cruise.Option{cruise.WithBudget(nil)}, "cruise: WithBudget(nil): want a Budget, or WithoutBudget"},
		{"zero budget", []cruise.Option{cruise.WithBudget(new(cruise.Budget))}, "cruise: WithBudget(zero Budget): want one made by NewBudget"},
		{"nil classifier", []cruise.Option{cruise.WithClassifier(nil)}, "cruise: WithClassifier(nil): want a function"},
		{"nil observer", []cruise.Option{cruise.WithObserver(nil)}, "cruise: WithObserver(nil): want an Observer"},
		{"nil function to observe", []cruise.Option{cruise.WithObserver(cruise.ObserverFunc(nil))}, "cruise: WithObserver(nil): want an Observer"},
		{
			"tuning a limiter that is not ours to make", []cruise.Option{cruise.WithTuning(cruise.Tuning{MinRate: 1}), bucket},
			"cruise: WithLimiter(*rate.Limiter) beside an option such as WithMaxRate, which tunes limiters that New makes: want it left out, or given to NewAdaptiveLimiter or shared.New, or WithScopeLimiter for those of scopes",
		},
		{
			"tuning only those of scopes", []cruise.Option{cruise.WithoutLimiter(), cruise.WithTuning(cruise.Tuning{Burst: -1})},
			"cruise: WithTuning: Burst -1: want 1 to 2147483647",
		},
		{
			"tuning none at all", []cruise.Option{cruise.WithoutLimiter(), cruise.WithMaxRate(1),
				cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return cruise.NewTokenBucket(1, 1) })},
			"cruise: WithScopeLimiter makes all limiters, so that an option such as WithMaxRate tunes none: want it given to their constructor",
		},
		{
			"several", []cruise.Option{cruise.WithMaxAttempts(-7), nil, cruise.WithAttemptTimeout(-1)},
			"cruise: WithMaxAttempts(-7): want 1 or more\ncruise: option 2 is nil\ncruise: WithAttemptTimeout(-1ns): want above 0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := cruise.New(tt.opts...)
			assert.EqualError(t, err, tt.want)
			assert.Nil(t, r)
		})
	}
}

func TestNewPassesOptionsToItsLimiter(t *testing.T) {
	r, err := cruise.New(cruise.WithInitialRate(5), cruise.WithMaxRate(10), cruise.WithMaxAttempts(0), cruise.WithTuning(cruise.Tuning{Burst: -1}))
	assert.Nil(t, r)
	assert.ErrorContains(t, err, "WithMaxAttempts(0)")
	assert.ErrorContains(t, err, "WithTuning: Burst -1")

	r, err = cruise.New(cruise.WithInitialRate(5), cruise.WithObserver(cruise.ObserverFunc(func(context.Context, cruise.Event) {})))
	require.NoError(t, err)
	assert.Equal(t, rate.Limit(5), r.Limiter().(*cruise.AdaptiveLimiter).Limit())
}

func TestNewDefaults(t *testing.T) {
	a, b := cruise.Must(cruise.New()), cruise.Must(cruise.New())
	assert.IsType(t, &cruise.AdaptiveLimiter{}, a.Limiter())
	assert.NotSame(t, a.Limiter(), b.Limiter())
	assert.NotSame(t, a.Budget(), b.Budget())
	assert.Equal(t, budgetCapacity, a.Budget().Left())

	bare := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithoutBudget()))
	assert.Nil(t, bare.Limiter())
	assert.Nil(t, bare.Budget())
}

func TestLastOptionWins(t *testing.T) {
	l := rate.NewLimiter(1, 1)
	assert.Nil(t, cruise.Must(cruise.New(cruise.WithLimiter(l), cruise.WithoutLimiter())).Limiter())
	assert.Same(t, l, cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithLimiter(l))).Limiter())
}

func TestMustPanics(t *testing.T) {
	_, err := cruise.New(cruise.WithMaxAttempts(0))
	assert.PanicsWithError(t, err.Error(), func() { cruise.Must(cruise.New(cruise.WithMaxAttempts(0))) })
}

// New makes a Retrier that works, or says what is wrong; in no case both or neither.
func FuzzRetrierOptions(f *testing.F) {
	f.Add(uint16(0), 1, int64(1), int64(1), 1.0, 1.0)
	f.Add(uint16(math.MaxUint16), -1, int64(math.MinInt64), int64(math.MaxInt64), math.NaN(), math.Inf(1))
	f.Add(uint16(1<<9-1), math.MaxInt, int64(math.MaxInt64), int64(math.MaxInt64), 1e300, 1e-300)
	f.Fuzz(func(t *testing.T, which uint16, n int, d, e int64, x, y float64) {
		budget, _ := cruise.NewBudget(x, y, float64(n))
		backoff, _ := cruise.NewBackoff(cruise.WithBase(time.Duration(d)), cruise.WithMaxDelay(time.Duration(e)), cruise.WithRetries(n))
		var opts []cruise.Option
		for i, opt := range []cruise.Option{
			cruise.WithMaxAttempts(n), cruise.WithMaxElapsed(time.Duration(d)), cruise.WithMaxServerDelay(time.Duration(e)),
			cruise.WithAttemptTimeout(time.Duration(e)), cruise.WithBudget(budget), cruise.WithBackoff(backoff),
			cruise.WithThrottleBackoff(backoff), cruise.WithoutLimiter(), cruise.WithUncountedThrottles(),
			cruise.WithInitialRate(rate.Limit(x)), cruise.WithTuning(cruise.Tuning{MinRate: rate.Limit(y)}), cruise.WithMaxRate(rate.Limit(x)),
			cruise.WithTuning(cruise.Tuning{Burst: n}), cruise.WithTuning(cruise.Tuning{DecreaseFactor: x}), cruise.WithTuning(cruise.Tuning{Increase: y}), cruise.WithTuning(cruise.Tuning{ForgiveAfter: n}),
		} {
			if which>>i&1 == 1 {
				opts = append(opts, opt)
			}
		}
		r, err := cruise.New(opts...)
		if err != nil {
			if r != nil || !strings.HasPrefix(err.Error(), "cruise: ") {
				t.Errorf("%v with %v", r, err)
			}
			return
		}
		called := 0
		err = r.Do(t.Context(), func(context.Context) error { called++; return cruise.Permanent(errBoom) })
		if called == 1 && err == nil || called > 1 {
			t.Errorf("called %d times: %v", called, err)
		}
	})
}

func TestOptionsTuneLimitersOfScopesAlone(t *testing.T) {
	r := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithMaxRate(7)))
	assert.Nil(t, r.Limiter())
	limiter, ok := r.Scope("ACCOUNT", "1").Limiter().(*cruise.AdaptiveLimiter)
	if assert.True(t, ok) {
		assert.Equal(t, rate.Limit(7), limiter.Limit())
	}
}
