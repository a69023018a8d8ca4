package cruise_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
)

// Calls within calls: retries must not multiply.
func TestNested(t *testing.T) {
	throttled := cruise.Throttled(errBoom)
	paced := func(opts ...cruise.Option) *cruise.Retrier {
		return cruise.Must(cruise.New(append(opts, cruise.WithInitialRate(1e6))...))
	}
	asAnyServerError := cruise.WithClassifier(func(err error) cruise.Verdict {
		if errors.Is(err, errBoom) {
			return cruise.Verdict{Outcome: cruise.OutcomeTransient}
		}
		return cruise.Verdict{}
	})
	for _, tt := range []struct {
		name         string
		outer, inner *cruise.Retrier
		returns      error
		calls        int
		reason       error
	}{
		{"the outer retries", paced(), plain(), errBoom, 5, cruise.ErrAttemptsExhausted},
		{"the outer retries throttles", paced(), plain(), throttled, 5, cruise.ErrAttemptsExhausted},
		{"each has a limiter", paced(), paced(), errBoom, 5, cruise.ErrAttemptsExhausted},
		{"the inner retries if told to", paced(), plain(cruise.WithNestedRetries()), errBoom, 5, cruise.ErrAttemptsExhausted},
		{"the inner retries throttles if told to", paced(), plain(cruise.WithNestedRetries()), throttled, 5, cruise.ErrAttemptsExhausted},
		{"the inner retries, and the outer would know the error", paced(asAnyServerError), plain(cruise.WithNestedRetries()), errBoom, 5, cruise.ErrAttemptsExhausted},
		{"the outer makes calls at once", plain(), plain(), errBoom, 5, cruise.ErrAttemptsExhausted},
		{"the outer makes calls at once, throttled", plain(), plain(), throttled, 5, cruise.ErrAttemptsExhausted},
		{"permanent within", paced(), plain(), cruise.Permanent(errBoom), 1, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := tt.outer.Do(t.Context(), func(ctx context.Context) error {
					return tt.inner.Do(ctx, func(context.Context) error { calls++; return tt.returns })
				})
				assert.Equal(t, tt.calls, calls)
				assert.ErrorIs(t, err, errBoom)
				if tt.reason == nil {
					assert.True(t, err == tt.returns)
				} else {
					assert.ErrorIs(t, err, tt.reason)
				}
			})
		})
	}
}

// A Retrier for pace alone, within one for retries alone.
func TestNestedWithOneAttempt(t *testing.T) {
	known := cruise.WithClassifier(func(err error) cruise.Verdict {
		if errors.Is(err, errBoom) {
			return cruise.Verdict{Outcome: cruise.OutcomeTransient}
		}
		return cruise.Verdict{Outcome: cruise.OutcomePermanent}
	})
	for name, outer := range map[string]*cruise.Retrier{
		"without limiter":               plain(),
		"without limiter, observed":     plain(cruise.WithObserver(cruise.ObserverFunc(func(context.Context, cruise.Event) {}))),
		"by a classifier for the error": plain(known),
	} {
		for name, inner := range map[string]func(context.Context, func(context.Context) error) error{
			"of one attempt": func(ctx context.Context, fn func(context.Context) error) error {
				return cruise.Must(cruise.New(cruise.WithMaxAttempts(1))).Do(ctx, fn)
			},
			"without retries": func(ctx context.Context, fn func(context.Context) error) error {
				return plain().Do(ctx, fn, cruise.WithoutRetries())
			},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					calls := 0
					assert.NoError(t, outer.Do(t.Context(), func(ctx context.Context) error {
						return inner(ctx, func(context.Context) error {
							if calls++; calls < 3 {
								return errBoom
							}
							return nil
						})
					}))
					assert.Equal(t, 3, calls)
				})
			})
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				assert.Error(t, outer.Do(t.Context(), func(ctx context.Context) error {
					return plain(cruise.WithMaxAttempts(2), cruise.WithNestedRetries()).Do(ctx, func(context.Context) error { calls++; return errBoom })
				}))
				assert.Equal(t, 2, calls, "what has been retried is not")
			})
		})
	}
}

func TestNestedTellsWhetherOthersRetry(t *testing.T) {
	assert.False(t, cruise.Nested(t.Context()))
	var none context.Context
	assert.False(t, cruise.Nested(none))
	for name, r := range map[string]*cruise.Retrier{"paced": cruise.Must(cruise.New()), "bare": plain()} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := r.Do(t.Context(), func(ctx context.Context) error {
				outer := cruise.Nested(ctx)
				_ = plain(cruise.WithBackoff(cruise.Backoff{})).Do(ctx, func(context.Context) error { calls++; return errBoom })
				assert.Equal(t, outer, calls == 1)
				return nil
			})
			assert.NoError(t, err)
		})
	}
}

func TestThreeLayersDoNotMultiply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := plain(), plain(cruise.WithAttemptTimeout(1<<40)), plain(cruise.WithUncountedThrottles())
		calls := 0
		err := a.Do(t.Context(), func(ctx context.Context) error {
			return b.Do(ctx, func(ctx context.Context) error {
				return c.Do(ctx, func(context.Context) error { calls++; return errBoom })
			})
		})
		assert.ErrorIs(t, err, errBoom)
		assert.Equal(t, 5, calls)
	})
}

func TestInnerErrorMarkedAnewIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := plain(cruise.WithNestedRetries(), cruise.WithMaxAttempts(2))
		calls := 0
		err := plain(cruise.WithMaxAttempts(3)).Do(t.Context(), func(ctx context.Context) error {
			return cruise.Transient(inner.Do(ctx, func(context.Context) error { calls++; return errBoom }))
		})
		assert.ErrorIs(t, err, errBoom)
		assert.Equal(t, 6, calls)
	})
}

func TestSameRetrierWithinItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1, 1)))))
		calls := 0
		err := r.Do(t.Context(), func(ctx context.Context) error {
			return r.Do(ctx, func(context.Context) error { calls++; return nil })
		})
		assert.NoError(t, err)
		assert.Equal(t, 1, calls)
	})
}

// What must not be sent twice is not, whatever is around and within the Retrier that was told
// so.
func TestNestedWithoutRetries(t *testing.T) {
	for name, outer := range map[string]*cruise.Retrier{
		"without limiter": plain(),
		"one attempt":     plain(cruise.WithMaxAttempts(1)),
		"adaptive":        cruise.Must(cruise.New()),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				innermost, inner, calls := plain(), plain(), 0
				err := outer.Do(t.Context(), func(ctx context.Context) error {
					return inner.Do(ctx, func(ctx context.Context) error {
						return innermost.Do(ctx, func(context.Context) error { calls++; return errBoom })
					})
				}, cruise.WithoutRetries())
				assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
				assert.Equal(t, 1, calls)
			})
		})
	}
}
