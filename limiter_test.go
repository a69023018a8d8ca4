package cruise

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

func TestTokenBucketOptions(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit rate.Limit
		burst int
		want  string
	}{
		{"rate", 10, 1, ""},
		{"every", rate.Every(800 * ms), 1, ""},
		{"no limit, said so", rate.Inf, 1, ""},
		{"smallest rate", math.SmallestNonzeroFloat64, 1, ""},
		{"largest burst", 10, math.MaxInt32, ""},
		{"rate of 0", 0, 1, "cruise: limit 0: want calls per second above 0, or rate.Inf"},
		{"negative rate", -1, 1, "cruise: limit -1: want calls per second above 0, or rate.Inf"},
		{"NaN", rate.Limit(math.NaN()), 1, "cruise: limit NaN: want calls per second above 0, or rate.Inf"},
		{"infinity", rate.Limit(math.Inf(1)), 1, "cruise: limit +Inf: want calls per second above 0, or rate.Inf"},
		{"negative infinity", rate.Limit(math.Inf(-1)), 1, "cruise: limit -Inf: want calls per second above 0, or rate.Inf"},
		{"burst of 0", 10, 0, "cruise: burst 0: want 1 to 2147483647"},
		{"negative burst", 10, -5, "cruise: burst -5: want 1 to 2147483647"},
		{"both", 0, 0, "cruise: limit 0: want calls per second above 0, or rate.Inf\ncruise: burst 0: want 1 to 2147483647"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := NewTokenBucket(tt.limit, tt.burst)
			if tt.want == "" {
				require.NoError(t, err)
				assert.Equal(t, tt.limit, b.Limit())
				return
			}
			assert.EqualError(t, err, tt.want)
			assert.Nil(t, b)
			// SetLimit refuses what the constructor refuses, and changes nothing.
			if tt.burst == 1 {
				b := Must(NewTokenBucket(7, 1))
				assert.EqualError(t, b.SetLimit(tt.limit), tt.want)
				assert.Equal(t, rate.Limit(7), b.Limit())
			}
		})
	}
}

func TestTokenBucketCost(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit rate.Limit
		n     int
		want  string
		is    error
	}{
		{"nothing", 10, 0, "", nil},
		{"the whole burst", 10, 5, "", nil},
		{"above the burst", 10, 6, "cruise: call not made: cost above what the limiter ever admits at once: cost 6, at most 5", ErrCost},
		{"above the burst, without a limit", rate.Inf, 6, "cruise: call not made: cost above what the limiter ever admits at once: cost 6, at most 5", ErrCost},
		{"most", 10, math.MaxInt, fmt.Sprintf("cruise: call not made: cost above what the limiter ever admits at once: cost %d, at most 5", math.MaxInt), ErrCost},
		{"negative", 10, -1, "cruise: cost -1: want 0 or more", nil},
		{"most negative", 10, math.MinInt, fmt.Sprintf("cruise: cost %d: want 0 or more", math.MinInt), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := Must(NewTokenBucket(tt.limit, 5))
				start := time.Now()
				err := b.WaitN(t.Context(), tt.n)
				if tt.want == "" {
					require.NoError(t, err)
					return
				}
				assert.EqualError(t, err, tt.want)
				if tt.is != nil {
					assert.ErrorIs(t, err, tt.is)
				}
				// Nothing was taken, and nothing minted.
				require.NoError(t, b.WaitN(t.Context(), 5))
				assert.Zero(t, time.Since(start))
				if tt.limit != rate.Inf {
					require.NoError(t, b.WaitN(t.Context(), 1))
					assert.Equal(t, 100*ms, time.Since(start))
				}
			})
		})
	}
}

// A pause holds whoever costs something until it is lifted, and nobody else.
func TestPauseHoldsAllButFreeCalls(t *testing.T) {
	type limiter interface {
		Limiter
		Pause(time.Duration)
		Resume()
	}
	for name, newLimiter := range map[string]func() limiter{
		"token bucket":   func() limiter { return Must(NewTokenBucket(1, 1)) },
		"adaptive":       func() limiter { return Must(NewAdaptiveLimiter(WithInitialRate(1))) },
		"before a rate":  func() limiter { return Must(NewAdaptiveLimiter()) },
		"sliding window": func() limiter { return Must(NewSlidingWindow(Window{1, time.Second})) },
		"shared":         func() limiter { return NewShared(false, WithInitialRate(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter()
				l.Pause(time.Hour)
				start := time.Now()
				require.NoError(t, l.WaitN(t.Context(), 0))
				assert.ErrorIs(t, l.WaitN(within(t, time.Minute), 1), ErrDeadline)
				assert.Zero(t, time.Since(start))
				time.AfterFunc(time.Minute, l.Resume)
				require.NoError(t, l.WaitN(t.Context(), 1))
				assert.GreaterOrEqual(t, time.Since(start), time.Minute)
				assert.LessOrEqual(t, time.Since(start), time.Minute+2*time.Second)
			})
		})
	}
}

// Pauses that are lifted let calls go however slow the limit is: an adaptive limiter a
// second or so later each, as it takes what was saved by the first pause after a call.
func TestLiftedPausesLetSlowLimitersGo(t *testing.T) {
	type limiter interface {
		Learner
		Pause(time.Duration)
		Resume()
	}
	const interval = 64 * time.Second
	slow := []LimiterOption{WithInitialRate(1. / 64), WithMaxRate(1. / 64)}
	for name, tt := range map[string]struct {
		limiter func() limiter
		late    time.Duration
	}{
		"token bucket":       {func() limiter { return Must(NewTokenBucket(1./64, 1)) }, 0},
		"adaptive":           {func() limiter { return Must(NewAdaptiveLimiter(slow...)) }, time.Second + 200*ms},
		"sliding window":     {func() limiter { return Must(NewSlidingWindow(Window{1, interval})) }, 0},
		"shared, pause only": {func() limiter { return NewShared(true, slow...) }, time.Second + 200*ms},
		"shared":             {func() limiter { return NewShared(false, slow...) }, time.Second + 200*ms},
	} {
		for _, lasts := range []time.Duration{0, 500 * ms} {
			t.Run(fmt.Sprint(name, ", each ", lasts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := tt.limiter()
					var went []time.Duration
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					start := time.Now()
					go func() {
						for l.WaitN(ctx, 1) == nil {
							went = append(went, time.Since(start))
							l.Learn(Feedback{Outcome: OutcomeTransient, Sent: time.Now(), Cost: 1})
						}
					}()
					time.Sleep(200 * ms)
					for time.Since(start) < 200*time.Second {
						l.Pause(time.Hour)
						time.Sleep(lasts)
						l.Resume()
						time.Sleep(time.Second - lasts)
					}
					synctest.Wait()
					require.Len(t, went, 4)
					for i, at := range went {
						late := at - time.Duration(i)*interval
						assert.GreaterOrEqual(t, late, 0*time.Second)
						assert.LessOrEqual(t, late, tt.late*time.Duration(i))
					}
				})
			})
		}
	}
}

// However soon a throttle comes after calls got through, there is a pause that is worth the name.
func TestTokenBucketPausesAtLeastShortly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(1000, 1))
		for range 20 {
			b.Resume()
			time.Sleep(ms)
			b.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1})
			b.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
			assert.InDelta(t, .225, b.PauseLeft().Seconds(), .0751)
		}
	})
}

// A limiter pauses for what its calls learn, and keeps its limit.
func TestTokenBucketLearns(t *testing.T) {
	const second = time.Second
	fixed := Must(NewBackoff(WithBase(300*ms), WithMaxDelay(time.Minute), NoJitter()))
	throttled := Feedback{Outcome: OutcomeThrottled, Cost: 1}
	asked := func(d time.Duration) Feedback {
		return Feedback{Outcome: OutcomeThrottled, Cost: 1, RetryAfter: d}
	}
	success := Feedback{Outcome: OutcomeSuccess, Cost: 1}
	repeat := func(f Feedback, n int) (fs []Feedback) {
		for range n {
			fs = append(fs, f)
		}
		return fs
	}
	join := func(parts ...[]Feedback) (fs []Feedback) {
		for _, p := range parts {
			fs = append(fs, p...)
		}
		return fs
	}
	for _, tt := range []struct {
		name string
		fs   []Feedback
		want time.Duration // of the pause after the last
	}{
		{"success", []Feedback{success}, 0},
		{"transient", []Feedback{{Outcome: OutcomeTransient, Cost: 1}}, 0},
		{"permanent", []Feedback{{Outcome: OutcomePermanent, Cost: 1}}, 0},
		{"dropped", []Feedback{{Outcome: OutcomeDropped, Cost: 1, RetryAfter: second}}, 0},
		{"throttled", []Feedback{throttled}, 300 * ms},
		{"throttled thrice", repeat(throttled, 3), 1200 * ms},
		{"throttled ever again", repeat(throttled, 1000), time.Minute},
		{"Retry-After, to the nanosecond", []Feedback{asked(1234567891)}, 1234567891},
		{"a later, shorter Retry-After does not shorten", []Feedback{asked(10 * second), asked(second)}, 10 * second},
		{"a later, longer one extends", []Feedback{asked(second), asked(10 * second)}, 10 * second},
		{"negative Retry-After is none", []Feedback{asked(-second)}, 300 * ms},
		{"a Retry-After of centuries saturates", []Feedback{asked(math.MaxInt64)}, clock.Farthest},
		{"quota exhausted until", []Feedback{{Outcome: OutcomeQuotaExhausted, Cost: 1, RetryAfter: second}}, second},
		{"quota exhausted, until unknown", []Feedback{{Outcome: OutcomeQuotaExhausted, Cost: 1}}, 0},
		{"success does not end a pause", []Feedback{asked(second), success}, second},
		{"10 calls forgive one of three", join(repeat(throttled, 3), repeat(success, 10), repeat(throttled, 1)), 1200 * ms},
		{"9 calls forgive nothing", join(repeat(throttled, 3), repeat(success, 9), repeat(throttled, 1)), 2400 * ms},
		{"a throttle between makes the count begin anew", join(repeat(throttled, 2), repeat(success, 9), repeat(throttled, 1), repeat(success, 9), repeat(throttled, 1)), 2400 * ms},
		{"20 calls forgive two of two", join(repeat(throttled, 2), repeat(success, 20), repeat(throttled, 1)), 300 * ms},
		{"20 calls forgive two of a thousand, as of the nine that are the longest pause", join(repeat(throttled, 1000), repeat(success, 20), repeat(throttled, 1)), 38400 * ms},
		{"90 calls forgive a thousand that asked for a wait", join(repeat(asked(second), 1000), repeat(success, 90), repeat(throttled, 1)), 300 * ms},
		{"what is dropped forgives nothing", join(repeat(throttled, 1), repeat(Feedback{Outcome: OutcomeDropped, Cost: 1}, 10), repeat(throttled, 1)), 600 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := Must(NewTokenBucket(1000, 1))
				b.brake.backoff = fixed
				for i, f := range tt.fs {
					if i == len(tt.fs)-1 && f.Outcome == OutcomeThrottled && f.RetryAfter == 0 {
						time.Sleep(time.Hour) // earlier pauses are over, and calls got through for longer than any
					}
					b.Learn(f)
				}
				assert.Equal(t, rate.Limit(1000), b.Limit())
				assert.Equal(t, tt.want, b.PauseLeft())
			})
		})
	}
}

// The burst of throttles that one congestion sends is one throttle, however many
// attempts it hits.
func TestTokenBucketLateThrottles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(1000, 1))
		b.brake.backoff = Must(NewBackoff(WithBase(300*ms), NoJitter()))
		sent := clock.Now()
		time.Sleep(100 * ms)
		for range 6 {
			b.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, Sent: sent.Time()})
		}
		assert.Equal(t, 300*ms, b.PauseLeft())
		b.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, Sent: sent.Time(), RetryAfter: time.Second})
		assert.Equal(t, time.Second, b.PauseLeft(), "a late throttle's Retry-After counts")
	})
}

// What was never admitted pauses nobody, whichever limiter is told of it.
func TestLearnIgnoresWhatWasNeverAdmitted(t *testing.T) {
	for name, limiter := range map[string]func() (Learner, error){
		"bucket":   func() (Learner, error) { return NewTokenBucket(1, 1) },
		"window":   func() (Learner, error) { return NewSlidingWindow(Window{1, time.Second}) },
		"adaptive": func() (Learner, error) { return NewAdaptiveLimiter() },
		"shared":   func() (Learner, error) { return NewShared(false), nil },
	} {
		for _, outcome := range []Outcome{OutcomeThrottled, OutcomeQuotaExhausted} {
			t.Run(fmt.Sprintf("%s, %v", name, outcome), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := Must(limiter())
					for _, cost := range []int{0, -1} {
						l.Learn(Feedback{Outcome: outcome, Cost: cost, RetryAfter: time.Hour})
					}
					start := time.Now()
					assert.NoError(t, l.WaitN(t.Context(), 1))
					assert.Zero(t, time.Since(start))
					l.Learn(Feedback{Outcome: outcome, Cost: 1, RetryAfter: time.Hour})
					assert.Equal(t, time.Hour, pauseLeft(l))
				})
			})
		}
	}
}

// Whoever cannot wait for the end of a pause that a throttle brings is told at once.
func TestThrottleRefusesWhoWaits(t *testing.T) {
	for name, limiter := range map[string]func() (Learner, error){
		"bucket":   func() (Learner, error) { return NewTokenBucket(.1, 1) },
		"window":   func() (Learner, error) { return NewSlidingWindow(Window{1, 10 * time.Second}) },
		"adaptive": func() (Learner, error) { return NewAdaptiveLimiter(WithInitialRate(.1)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := Must(limiter())
				start := time.Now()
				require.NoError(t, l.WaitN(t.Context(), 1))
				time.AfterFunc(time.Second, func() {
					l.Learn(Feedback{Outcome: OutcomeThrottled, Sent: start, Cost: 1, RetryAfter: time.Hour})
				})
				assert.ErrorIs(t, l.WaitN(within(t, time.Minute), 1), ErrDeadline)
				assert.Equal(t, time.Second, time.Since(start))
			})
		})
	}
}

// A throttle of which nobody knows when it was sent is not late, after a change of clocks
// either.
func TestThrottlesOfAnUnknownTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(1000, 1))
		b.brake.backoff = Must(NewBackoff(WithBase(300*ms), NoJitter()))
		require.Zero(t, b.PauseLeft())
		time.Sleep(11 * clock.Year) // which the limiter takes for another clock
		require.Zero(t, b.PauseLeft())
		for _, want := range []time.Duration{300 * ms, 600 * ms, 1200 * ms} {
			b.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
			assert.Equal(t, want, b.PauseLeft())
			time.Sleep(want)
		}
	})
}

// Limiters that were not made by their constructors say so.
func TestZeroLimiters(t *testing.T) {
	type limiter interface {
		Learner
		Limit() rate.Limit
		SetLimit(rate.Limit) error
		Pause(time.Duration)
		Resume()
	}
	for name, l := range map[string]limiter{"TokenBucket": new(TokenBucket), "AdaptiveLimiter": new(AdaptiveLimiter)} {
		t.Run(name, func(t *testing.T) {
			const want = "cruise: limiter not made by its constructor"
			assert.EqualError(t, l.WaitN(t.Context(), 1), want)
			assert.EqualError(t, l.WaitN(t.Context(), 0), want)
			assert.EqualError(t, l.SetLimit(1), want)
			assert.Zero(t, l.Limit())
			l.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, RetryAfter: time.Second})
			l.Pause(time.Second)
			l.Resume()
		})
	}
	assert.Zero(t, new(TokenBucket).Waiting())
	assert.Zero(t, new(AdaptiveLimiter).Stats())
}

// go vet reports copies of what holds a lock by value.
func TestWhatMustNotBeCopiedCannotBe(t *testing.T) {
	locker := reflect.TypeFor[sync.Locker]()
	var holdsLock func(reflect.Type) bool
	holdsLock = func(typ reflect.Type) bool {
		if reflect.PointerTo(typ).Implements(locker) {
			return true
		}
		if typ.Kind() == reflect.Struct {
			for i := range typ.NumField() {
				if holdsLock(typ.Field(i).Type) {
					return true
				}
			}
		}
		return false
	}
	for _, typ := range append([]reflect.Type{
		reflect.TypeFor[TokenBucket](), reflect.TypeFor[AdaptiveLimiter](), reflect.TypeFor[SlidingWindow](),
		reflect.TypeFor[Budget](), reflect.TypeFor[Retrier](),
	}, SharedTypes...) {
		assert.True(t, holdsLock(typ), "%v", typ)
	}
	assert.False(t, holdsLock(reflect.TypeFor[Backoff]()), "a value")
}

// The limiter of x/time is a Limiter as it is.
func TestRateLimiterIsALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithLimiter(rate.NewLimiter(10, 1))))
		start := time.Now()
		for range 3 {
			require.NoError(t, r.Do(t.Context(), func(context.Context) error { return nil }))
		}
		assert.Equal(t, 200*ms, time.Since(start))
		err := r.Do(within(t, 50*ms), func(context.Context) error { return nil })
		assert.ErrorIs(t, err, ErrDeadline)
	})
}

// A call that costs nothing does not wait behind those who have reserved.
func TestFreeCallsDoNotWaitForXTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithLimiter(rate.NewLimiter(1, 1))))
		call := func(context.Context) error { return nil }
		for range 5 {
			go func() { _ = r.Do(t.Context(), call) }()
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, r.Do(t.Context(), call, WithCost(0)))
		assert.Zero(t, time.Since(start))
		time.Sleep(time.Minute)
	})
}

// Callers that give up before their turn take it with them at x/time, which lets next to nobody
// through then: the docs of Limiter and migrating.md name the figures.
func TestImpatientCrowd(t *testing.T) {
	const callers, patience, end = 500, 10 * time.Second, 10 * time.Minute
	for name, tt := range map[string]struct {
		l           Limiter
		least, most int
	}{
		"bucket": {Must(NewTokenBucket(5, 10)), 3000, 3060},
		"x/time": {rate.NewLimiter(5, 10), 55, 65},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(WithLimiter(tt.l)))
				var done atomic.Int64
				began := time.Now()
				var group sync.WaitGroup
				for range callers {
					group.Go(func() {
						for time.Since(began) < end {
							ctx, cancel := context.WithCancel(t.Context()) // without a deadline that would refuse at once
							stop := time.AfterFunc(patience, cancel)
							_ = r.Do(ctx, func(context.Context) error { done.Add(1); return nil })
							stop.Stop()
							cancel()
						}
					})
				}
				group.Wait()
				assert.GreaterOrEqual(t, int(done.Load()), tt.least)
				assert.LessOrEqual(t, int(done.Load()), tt.most)
			})
		})
	}
}
