package cruise

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

// steadyPause is a pause backoff without chance: 1 s, doubled to 8 s.
var steadyPause = Must(NewBackoff(WithBase(time.Second), WithMaxDelay(8*time.Second), NoJitter()))

func TestAdaptiveOptions(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name string
		opts []LimiterOption
		want string
	}{
		{"none", nil, ""},
		{"all at their bounds", []LimiterOption{WithInitialRate(1), WithTuning(Tuning{MinRate: 1}), WithMaxRate(1), WithTuning(Tuning{Burst: 1}), WithTuning(Tuning{Increase: 1}), WithTuning(Tuning{ForgiveAfter: 1})}, ""},
		{"no limit, said so", []LimiterOption{WithInitialRate(rate.Inf), WithMaxRate(rate.Inf)}, ""},
		{"initial rate 0", []LimiterOption{WithInitialRate(0)}, "cruise: WithInitialRate(0): want calls per second above 0, or rate.Inf"},
		{"initial rate negative", []LimiterOption{WithInitialRate(-1)}, "cruise: WithInitialRate(-1): want calls per second above 0, or rate.Inf"},
		{"initial rate NaN", []LimiterOption{WithInitialRate(rate.Limit(nan))}, "cruise: WithInitialRate(NaN): want calls per second above 0, or rate.Inf"},
		{"initial rate +Inf", []LimiterOption{WithInitialRate(rate.Limit(inf))}, "cruise: WithInitialRate(+Inf): want calls per second above 0, or rate.Inf"},
		{"minimum rate negative", []LimiterOption{WithTuning(Tuning{MinRate: -1})}, "cruise: WithTuning: MinRate -1: want calls per second above 0 and finite"},
		{"minimum rate NaN", []LimiterOption{WithTuning(Tuning{MinRate: rate.Limit(nan)})}, "cruise: WithTuning: MinRate NaN: want calls per second above 0 and finite"},
		{"minimum rate +Inf", []LimiterOption{WithTuning(Tuning{MinRate: rate.Limit(inf)})}, "cruise: WithTuning: MinRate +Inf: want calls per second above 0 and finite"},
		{"minimum rate unlimited", []LimiterOption{WithTuning(Tuning{MinRate: rate.Inf})}, "cruise: WithTuning: MinRate rate.Inf: want calls per second above 0 and finite"},
		{"maximum rate 0", []LimiterOption{WithMaxRate(0)}, "cruise: WithMaxRate(0): want calls per second above 0, or rate.Inf"},
		{"maximum rate negative", []LimiterOption{WithMaxRate(-1)}, "cruise: WithMaxRate(-1): want calls per second above 0, or rate.Inf"},
		{"maximum rate NaN", []LimiterOption{WithMaxRate(rate.Limit(nan))}, "cruise: WithMaxRate(NaN): want calls per second above 0, or rate.Inf"},
		{"maximum rate +Inf", []LimiterOption{WithMaxRate(rate.Limit(inf))}, "cruise: WithMaxRate(+Inf): want calls per second above 0, or rate.Inf"},
		{"below the default minimum", []LimiterOption{WithMaxRate(rate.Every(time.Hour)), WithInitialRate(rate.Every(2 * time.Hour))}, ""},
		{"minimum above maximum", []LimiterOption{WithTuning(Tuning{MinRate: 2}), WithMaxRate(1)}, "cruise: WithTuning: MinRate 2: want at most 1, the maximum rate"},
		{"initial below minimum", []LimiterOption{WithInitialRate(1), WithTuning(Tuning{MinRate: 2}), WithMaxRate(3)}, "cruise: WithInitialRate(1): want 2 to 3, the minimum and maximum rate"},
		{"initial above maximum", []LimiterOption{WithInitialRate(4), WithTuning(Tuning{MinRate: 2}), WithMaxRate(3)}, "cruise: WithInitialRate(4): want 2 to 3, the minimum and maximum rate"},
		{"burst negative", []LimiterOption{WithTuning(Tuning{Burst: -1})}, "cruise: WithTuning: Burst -1: want 1 to 2147483647"},
		{"decrease negative", []LimiterOption{WithTuning(Tuning{DecreaseFactor: -1})}, "cruise: WithTuning: DecreaseFactor -1: want above 0 and below 1"},
		{"decrease 1", []LimiterOption{WithTuning(Tuning{DecreaseFactor: 1})}, "cruise: WithTuning: DecreaseFactor 1: want above 0 and below 1"},
		{"decrease NaN", []LimiterOption{WithTuning(Tuning{DecreaseFactor: nan})}, "cruise: WithTuning: DecreaseFactor NaN: want above 0 and below 1"},
		{"increase negative", []LimiterOption{WithTuning(Tuning{Increase: -1})}, "cruise: WithTuning: Increase -1: want above 0 and at most 1"},
		{"increase above 1", []LimiterOption{WithTuning(Tuning{Increase: 1.5})}, "cruise: WithTuning: Increase 1.5: want above 0 and at most 1"},
		{"increase NaN", []LimiterOption{WithTuning(Tuning{Increase: nan})}, "cruise: WithTuning: Increase NaN: want above 0 and at most 1"},
		{"increase +Inf", []LimiterOption{WithTuning(Tuning{Increase: inf})}, "cruise: WithTuning: Increase +Inf: want above 0 and at most 1"},
		{"forgive negative", []LimiterOption{WithTuning(Tuning{ForgiveAfter: -10})}, "cruise: WithTuning: ForgiveAfter -10: want 1 or more"},
		{"observer nil", []LimiterOption{WithObserver(nil)}, "cruise: WithObserver(nil): want an Observer"},
		{"option nil", []LimiterOption{WithTuning(Tuning{Burst: 1}), nil}, "cruise: option 2 is nil"},
		{"all that is wrong at once", []LimiterOption{WithTuning(Tuning{Burst: -1}), WithTuning(Tuning{ForgiveAfter: -1})}, "cruise: WithTuning: Burst -1: want 1 to 2147483647\ncruise: WithTuning: ForgiveAfter -1: want 1 or more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := NewAdaptiveLimiter(tt.opts...)
			if tt.want == "" {
				require.NoError(t, err)
				assert.NotNil(t, a)
				return
			}
			assert.EqualError(t, err, tt.want)
			assert.Nil(t, a)
		})
	}
}

// Fields that are zero change nothing, whoever set them before.
func TestTuningChangesWhatItNames(t *testing.T) {
	all := func(a *AdaptiveLimiter) []any {
		return []any{a.min, a.burst, a.law.Config, a.brake.backoff, a.brake.forgive, a.cold}
	}
	plain := Must(NewAdaptiveLimiter())
	assert.Equal(t, all(plain), all(Must(NewAdaptiveLimiter(WithTuning(Tuning{})))))

	whole := Tuning{MinRate: 2, Burst: 3, DecreaseFactor: .4, Increase: .5, PauseBackoff: steadyPause, ForgiveAfter: 7}
	tuned := all(Must(NewAdaptiveLimiter(WithTuning(whole))))
	for i, field := range tuned {
		assert.NotEqual(t, all(plain)[i], field, i)
	}
	assert.Equal(t, tuned, all(Must(NewAdaptiveLimiter(
		WithTuning(Tuning{MinRate: 2, Burst: 9, ForgiveAfter: 7}),
		WithTuning(Tuning{Burst: 3, DecreaseFactor: .4, Increase: .5}),
		WithTuning(Tuning{PauseBackoff: steadyPause}), WithTuning(Tuning{})))))
	_, err := NewAdaptiveLimiter(WithTuning(Tuning{MinRate: -1, Burst: -1}))
	assert.ErrorContains(t, err, "MinRate -1")
	assert.ErrorContains(t, err, "Burst -1")
}

func ExampleWithTuning() {
	// A server that counts bursts against its clients, and is never slower than 2 calls a second.
	api := Must(New(WithTuning(Tuning{Burst: 1, MinRate: 2})))
	fmt.Println(api.Do(context.Background(), func(context.Context) error { return nil }))
	// Output: <nil>
}

func TestAdaptiveDefaults(t *testing.T) {
	a := Must(NewAdaptiveLimiter())
	assert.Equal(t, Stats{Limit: rate.Inf}, a.Stats())
	assert.Equal(t, rate.Every(10*time.Minute), a.min)
	assert.Equal(t, rate.Inf, a.max)
	assert.Equal(t, rate.Limit(8), Must(NewAdaptiveLimiter(WithMaxRate(8))).Limit(), "a maximum paces from the first call on")
	assert.Equal(t, rate.Limit(5), Must(NewAdaptiveLimiter(WithInitialRate(5), WithMaxRate(8))).Limit())
}

func TestAdaptiveSetLimit(t *testing.T) {
	a := Must(NewAdaptiveLimiter(WithTuning(Tuning{MinRate: 2}), WithMaxRate(8)))
	for _, tt := range []struct {
		name      string
		set, want rate.Limit // want 0: refused
	}{
		{"within", 4, 4},
		{"the minimum", 2, 2},
		{"the maximum", 8, 8},
		{"unlimited, up to the maximum", rate.Inf, 8},
		{"below the minimum", 1, 0},
		{"above the maximum", 9, 0},
		{"zero", 0, 0},
		{"negative", -1, 0},
		{"NaN", rate.Limit(math.NaN()), 0},
		{"+Inf", rate.Limit(math.Inf(1)), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.NoError(t, a.SetLimit(5))
			err := a.SetLimit(tt.set)
			if tt.want == 0 {
				want := fmt.Sprintf("cruise: limit %v: want 2 to 8, the minimum and maximum rate, or rate.Inf", float64(tt.set))
				assert.EqualError(t, err, want)
				assert.Equal(t, rate.Limit(5), a.Limit())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, a.Limit())
		})
	}
	synctest.Test(t, func(t *testing.T) {
		free := Must(NewAdaptiveLimiter(WithInitialRate(3)))
		require.NoError(t, free.SetLimit(rate.Inf))
		assert.Equal(t, rate.Inf, free.Limit())
		first, start := letGo(t, free, 1), time.Now()
		time.AfterFunc(200*ms, func() { first.ends(OutcomeSuccess, 0) })
		letGo(t, free, 1)
		assert.Equal(t, 200*ms, time.Since(start), "it begins anew, with one call in flight")
	})
}

// A call is an attempt that was let go.
type call struct {
	l    Learner
	sent clock.Instant
	cost int
}

func letGo(t *testing.T, l Learner, cost int) call {
	t.Helper()
	_, sent, err := admit(limits.QueueOf(l), t.Context(), cost)
	require.NoError(t, err)
	return call{l, sent, cost}
}

func (c call) ends(o Outcome, asked time.Duration) {
	q := limits.QueueOf(c.l)
	limits.Apply(q, Feedback{Outcome: o, Sent: c.sent.Time(), Cost: c.cost, RetryAfter: asked})
}

// calls lets n calls go, one after another, and succeed.
func calls(t *testing.T, l Learner, n int) {
	t.Helper()
	for range n {
		letGo(t, l, 1).ends(OutcomeSuccess, 0)
	}
}

// Six throttles of one burst are one congestion: they cut the rate once.
func TestAdaptiveCutsOnceForOneCongestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(100), WithTuning(Tuning{Burst: 6})))
		calls(t, a, 20)
		time.Sleep(time.Second)
		var burst []call
		for range 6 {
			burst = append(burst, letGo(t, a, 1))
		}
		time.Sleep(50 * ms)
		was := a.Limit()
		burst[0].ends(OutcomeThrottled, 0)
		is := a.Limit()
		assert.LessOrEqual(t, is, was/2)
		for _, c := range burst[1:] {
			time.Sleep(ms)
			c.ends(OutcomeThrottled, 0)
		}
		assert.Equal(t, is, a.Limit())
		assert.EqualValues(t, 6, a.Stats().Throttles)
	})
}

// A throttle of one call pauses all, for exactly as long as the server asked.
func TestAdaptivePausesEveryone(t *testing.T) {
	const asked = 1234567891 * time.Nanosecond
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(1000), WithTuning(Tuning{Burst: 5})))
		first := letGo(t, a, 1)
		late := letGo(t, a, 1)
		start := time.Now()
		first.ends(OutcomeThrottled, asked)
		late.ends(OutcomeThrottled, time.Second) // never shortens
		assert.Equal(t, asked, a.Stats().PauseLeft)
		assert.Equal(t, rate.Limit(1000), a.Limit(), "nothing got through yet: a pause is the answer")
		var wg sync.WaitGroup
		var mu sync.Mutex
		at := map[time.Duration]int{}
		for range 3 {
			wg.Go(func() {
				letGo(t, a, 1).ends(OutcomeDropped, 0)
				mu.Lock()
				defer mu.Unlock()
				at[time.Since(start)]++
			})
		}
		synctest.Wait()
		assert.Equal(t, 3, a.Stats().Waiting)
		wg.Wait()
		for d := range at {
			assert.GreaterOrEqual(t, d, asked)
		}
		assert.Equal(t, 1, at[asked], "one goes at its end, the others follow at the pace")
		assert.Zero(t, a.Stats().PauseLeft)
		checkEmpty(t, &a.queue)
	})
}

// Pauses double while throttles follow each other, and lose a level for every ten
// calls that were not throttled.
func TestAdaptivePauseBackoff(t *testing.T) {
	const second = time.Second
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(2), WithTuning(Tuning{MinRate: .1}), WithTuning(Tuning{PauseBackoff: steadyPause})))
		throttle := func() time.Duration {
			c := letGo(t, a, 1)
			time.Sleep(time.Nanosecond)
			c.ends(OutcomeThrottled, 0)
			return a.Stats().PauseLeft
		}
		for i, want := range []time.Duration{second, 2 * second, 4 * second, 8 * second, 8 * second} {
			assert.Equal(t, want, throttle(), "throttle %d", i+1)
		}
		a.SetLimit(.1) // so that two call intervals are longer than any of them
		calls(t, a, 30)
		assert.Equal(t, 2*second, throttle(), "three of four levels forgiven: a fifth pauses no longer")
		calls(t, a, 9)
		assert.Equal(t, 4*second, throttle(), "nine forgive nothing")
	})
}

func TestAdaptivePauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter())
		start := time.Now()
		a.Pause(time.Second)
		a.Pause(ms)
		assert.Equal(t, time.Second, a.Stats().PauseLeft)
		letGo(t, a, 1).ends(OutcomeSuccess, 0)
		assert.Equal(t, time.Second, time.Since(start))
		a.Pause(time.Hour)
		a.Resume()
		assert.Zero(t, a.Stats().PauseLeft)
		letGo(t, a, 1).ends(OutcomeSuccess, 0)
		assert.Equal(t, time.Second, time.Since(start))
		a.Pause(math.MaxInt64)
		assert.Equal(t, clock.Farthest, a.Stats().PauseLeft)
	})
}

// A pause takes the part of a token that was saved: the server has none of that.
func TestAdaptivePauseTakesWhatWasSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(.1)))
		calls(t, a, 1)
		time.Sleep(4 * time.Second)
		a.Pause(time.Second)
		start := time.Now()
		calls(t, a, 1)
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}

// Pauses that follow each other take it once, so that somebody goes between them.
func TestAdaptivePausesTakeWhatWasSavedOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every time.Duration
		pause func(*AdaptiveLimiter)
		want  int64 // of the 20 calls that go without
	}{
		{"short", 6 * time.Second, func(a *AdaptiveLimiter) { a.Pause(time.Second) }, 16},
		{"many", 20 * ms, func(a *AdaptiveLimiter) { a.Pause(10 * ms) }, 19},
		{"all but a call interval apart", 9900 * ms, func(a *AdaptiveLimiter) { a.Pause(100 * ms) }, 10},
		{"lifted", 6 * time.Second, func(a *AdaptiveLimiter) { a.Pause(time.Second); a.Resume() }, 16},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := Must(NewAdaptiveLimiter(WithInitialRate(.1), WithMaxRate(.1)))
				calls(t, a, 1)
				var went atomic.Int64
				go func() {
					for a.WaitN(t.Context(), 1) == nil {
						went.Add(1)
						a.Learn(Feedback{Outcome: OutcomeSuccess, Sent: time.Now(), Cost: 1})
					}
				}()
				for end := time.Now().Add(200 * time.Second); time.Now().Before(end); {
					time.Sleep(tt.every)
					tt.pause(a)
				}
				assert.Equal(t, tt.want, went.Load())
			})
		})
	}
}

// A pause that is lifted when it is all but over delays nobody.
func TestAdaptiveResumeTakesNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(1)))
		start := time.Now()
		a.Pause(10 * time.Second)
		time.AfterFunc(9900*ms, a.Resume)
		calls(t, a, 1)
		assert.Equal(t, 9900*ms, time.Since(start))
	})
}

// Each success lets the next one go at once, to the last.
func TestAdaptiveSuccessLetsGoWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter())
		start := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, sent, err := admit(&a.queue, t.Context(), 1)
				assert.NoError(t, err)
				time.Sleep(10 * ms)
				call{a, sent, 1}.ends(OutcomeSuccess, 0)
			})
		}
		wg.Wait()
		assert.Equal(t, 30*ms, time.Since(start))
	})
}

// At a closed door one attempt goes at a time, however many the rate would let go.
func TestAdaptiveKnocksOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(100), WithTuning(Tuning{Burst: 5}), WithTuning(Tuning{PauseBackoff: Must(ConstantBackoff(ms))})))
		calls(t, a, 20)
		for range 2 { // after which the door is closed
			c := letGo(t, a, 1)
			time.Sleep(ms)
			c.ends(OutcomeThrottled, 0)
		}
		time.Sleep(time.Second)
		first, start := letGo(t, a, 1), time.Now()
		time.AfterFunc(500*ms, func() { first.ends(OutcomeDropped, 0) })
		letGo(t, a, 1)
		assert.Equal(t, 500*ms, time.Since(start))
	})
}

// Without a chosen burst, any cost is admitted in the end; with one, what can
// never be admitted is refused.
func TestAdaptiveCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(10)))
		letGo(t, a, 1)
		start := time.Now()
		letGo(t, a, 50).ends(OutcomeSuccess, 0)
		assert.Equal(t, 5*time.Second, time.Since(start), "it waits for all its tokens")
		time.Sleep(time.Minute)
		start = time.Now()
		letGo(t, a, 50).ends(OutcomeSuccess, 0)
		assert.Zero(t, time.Since(start), "and the bucket has grown to hold them")
		time.Sleep(time.Minute)
		start = time.Now()
		letGo(t, a, 1).ends(OutcomeSuccess, 0)
		letGo(t, a, 49).ends(OutcomeSuccess, 0)
		assert.Zero(t, time.Since(start), "for good")

		if math.MaxInt > math.MaxInt32 {
			assert.ErrorIs(t, a.WaitN(t.Context(), math.MaxInt), ErrCost, "more than any rate could save up")
		}
		b := Must(NewAdaptiveLimiter(WithTuning(Tuning{Burst: 5})))
		assert.ErrorIs(t, b.WaitN(t.Context(), 6), ErrCost)
		assert.ErrorIs(t, Must(NewAdaptiveLimiter(WithTuning(Tuning{Burst: 1}))).WaitN(t.Context(), 2), ErrCost)
		assert.NoError(t, b.WaitN(t.Context(), 5))
		assert.EqualError(t, b.WaitN(t.Context(), -1), "cruise: cost -1: want 0 or more")
		assert.NoError(t, b.WaitN(t.Context(), 0))
		assert.EqualValues(t, 1, b.Stats().Admitted)
	})
}

// What Resume has ended does not come back with the next rate, whatever came between.
func TestAdaptiveResumeEndsAPauseForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(10)))
		call := func(o Outcome, retryAfter time.Duration) (waited time.Duration) {
			start := time.Now()
			sent := letGo(t, a, 1)
			waited = time.Since(start)
			time.Sleep(100 * ms)
			sent.ends(o, retryAfter)
			return waited
		}
		for range 20 {
			call(OutcomeSuccess, 0)
		}
		call(OutcomeThrottled, time.Hour)
		require.NoError(t, a.SetLimit(rate.Inf))
		a.Resume()
		for range 20 {
			assert.Less(t, call(OutcomeSuccess, 0), time.Second)
		}
		call(OutcomeThrottled, time.Second)
		assert.InDelta(t, 5, float64(a.Limit()), 1, "half of what ten calls a second came to")
		assert.LessOrEqual(t, call(OutcomeSuccess, 0), time.Second)
	})
}

// A burst for a call that never went would let as many others go at once.
func TestAdaptiveBurstIsNotThatOfCallsThatNeverWent(t *testing.T) {
	const dear = 1_000_000
	leave := map[string]func(ctx context.Context, l *AdaptiveLimiter) error{
		"refused for its deadline": func(ctx context.Context, l *AdaptiveLimiter) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return l.WaitN(ctx, dear)
		},
		"cancelled": func(ctx context.Context, l *AdaptiveLimiter) error {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return l.WaitN(ctx, dear)
		},
		"cancelled before others in line": func(ctx context.Context, l *AdaptiveLimiter) error {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			others := context.WithoutCancel(ctx)
			for range 5 {
				time.AfterFunc(500*ms, func() { _ = l.WaitN(others, 1) })
			}
			err := l.WaitN(ctx, dear)
			return err
		},
	}
	for name, leave := range leave {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := Must(NewAdaptiveLimiter(WithMaxRate(10)))
				assert.Error(t, leave(t.Context(), l))
				time.Sleep(time.Hour)
				letGo(t, l, 1).ends(OutcomeSuccess, 0)
				start := time.Now()
				letGo(t, l, 1).ends(OutcomeSuccess, 0)
				assert.Equal(t, 100*ms, time.Since(start))
			})
		})
	}
}

// The burst is ten milliseconds' worth of the rate: it shrinks when that is cut.
func TestAdaptiveBurstFollowsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(1000)))
		assert.Equal(t, 10, a.tokens.Burst())
		time.Sleep(time.Second)
		require.NoError(t, a.SetLimit(200))
		assert.Equal(t, 2, a.tokens.Burst())
		start := time.Now()
		calls(t, a, 3)
		assert.Equal(t, 5*ms, time.Since(start), "of the ten tokens saved, two are left")
		require.NoError(t, a.SetLimit(99))
		assert.Equal(t, 1, a.tokens.Burst())
	})
}

// A burst has to be saved up first.
func TestAdaptiveBeginsWithASingleToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(10), WithTuning(Tuning{Burst: 5})))
		start := time.Now()
		calls(t, a, 2)
		assert.Equal(t, 100*ms, time.Since(start))
		time.Sleep(time.Second)
		start = time.Now()
		calls(t, a, 5)
		assert.Zero(t, time.Since(start))
	})
}

func TestBurstAboveTheHighest(t *testing.T) {
	n := math.MaxInt
	if n == math.MaxInt32 {
		t.Skip("no int is above the highest burst")
	}
	_, err := NewAdaptiveLimiter(WithTuning(Tuning{Burst: n}))
	assert.EqualError(t, err, fmt.Sprintf("cruise: WithTuning: Burst %d: want 1 to 2147483647", n))
	_, err = NewTokenBucket(1, n)
	assert.EqualError(t, err, fmt.Sprintf("cruise: burst %d: want 1 to 2147483647", n))
	_, err = NewSlidingWindow(Window{n, time.Second})
	assert.EqualError(t, err, fmt.Sprintf("cruise: window 1: Calls %d: want 1 to 2147483647", n))
}

// An attempt that claims to be sent in the future, or centuries ago, is taken as
// it is: the first is not late, the second is, and neither moves a clock.
func TestFeedbackFromAnotherTime(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent time.Time
		cuts bool
	}{
		{"the far future", time.Unix(1<<60, 0), true},
		{"an hour ahead", time.Now().Add(time.Hour), true},
		{"no time", time.Time{}, true},
		{"centuries ago", time.Unix(-1<<40, 0), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := Must(NewAdaptiveLimiter(WithInitialRate(100)))
				calls(t, a, 20)
				time.Sleep(time.Second)
				letGo(t, a, 1).ends(OutcomeThrottled, time.Second)
				calls(t, a, 5)
				was := a.Limit()
				require.NoError(t, a.WaitN(t.Context(), 1))
				a.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, Sent: tt.sent, RetryAfter: time.Second})
				assert.Equal(t, tt.cuts, a.Limit() < was)
				assert.Equal(t, time.Second, a.Stats().PauseLeft)
				start := time.Now()
				calls(t, a, 2)
				assert.Less(t, time.Since(start), 2*time.Second)
			})
		})
	}
}

// A quota that runs out slows the rate before the server throttles.
func TestAdaptiveHeedsQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter())
		start := time.Now()
		left := 100
		for left > 5 {
			c := letGo(t, a, 1)
			time.Sleep(10 * ms)
			left--
			q := Quota{Limit: 100, Remaining: left, Reset: time.Minute - time.Since(start)}
			a.Learn(Feedback{Outcome: OutcomeSuccess, Sent: c.sent.Time(), Cost: 1, Quota: &q})
			q.Remaining = 1000 // ours again
		}
		assert.Zero(t, a.Stats().Throttles)
		assert.Greater(t, time.Since(start), 25*time.Second, "the last tenth lasts until the reset")
		assert.Less(t, time.Since(start), time.Minute, "and is used")
		assert.Equal(t, 5, a.Stats().Quota.Remaining)
	})
}

// What was saved is not taken by the steps in which a quota slows down.
func TestAdaptiveKeepsWhatWasSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(100), WithTuning(Tuning{Burst: 8})))
		for left := range 3 {
			time.Sleep(time.Second)
			c := letGo(t, a, 1)
			a.Learn(Feedback{Outcome: OutcomeSuccess, Sent: c.sent.Time(), Cost: 1, Quota: &Quota{Limit: 1000, Remaining: 9 - left}})
		}
		assert.Less(t, a.Limit(), rate.Limit(100))
		start := time.Now()
		calls(t, a, 7)
		assert.Zero(t, time.Since(start))
	})
}

// What was never admitted teaches nothing.
func TestAdaptiveIgnoresFreeCalls(t *testing.T) {
	a := Must(NewAdaptiveLimiter())
	a.Learn(Feedback{Outcome: OutcomeThrottled, RetryAfter: time.Hour})
	a.Learn(Feedback{Outcome: OutcomeThrottled, RetryAfter: time.Hour, Cost: -1})
	assert.Equal(t, Stats{Limit: rate.Inf}, a.Stats())
}

func TestAdaptiveStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(1000)))
		calls(t, a, 3)
		for _, o := range []Outcome{OutcomeTransient, OutcomePermanent, OutcomeDropped, OutcomeQuotaExhausted} {
			letGo(t, a, 1).ends(o, 0)
		}
		letGo(t, a, 1).ends(OutcomeThrottled, time.Second)
		s := a.Stats()
		s.Limit = 0
		assert.Equal(t, Stats{PauseLeft: time.Second, Admitted: 8, Successes: 3, Throttles: 1}, s)
		underWay := letGo(t, a, 1)
		assert.EqualValues(t, 9, a.Stats().Admitted, "counted when it goes, not when it has ended")
		underWay.ends(OutcomeSuccess, 0)
	})
}

// Whoever reports a quota or looks at one has it alone.
func TestAdaptiveStatsOfAQuota(t *testing.T) {
	a := Must(NewAdaptiveLimiter())
	c := letGo(t, a, 1)
	q := Quota{Limit: 100, Remaining: 90}
	a.Learn(Feedback{Outcome: OutcomeSuccess, Sent: c.sent.Time(), Cost: 1, Quota: &q})
	q.Remaining = 1
	a.Stats().Quota.Remaining = 2
	assert.Equal(t, &Quota{Limit: 100, Remaining: 90}, a.Stats().Quota)
}

// A time in which nobody may go says nothing of the rate, or where it may be a closed
// time not more than a little. Nor does one after it in which nobody wants to.
func TestAdaptiveDoesNotTakeAStopForSlowness(t *testing.T) {
	for name, limiter := range map[string]func() Steered{
		"adaptive":           func() Steered { return Must(NewAdaptiveLimiter(WithInitialRate(100))) },
		"shared, pause only": func() Steered { return NewShared(true, WithInitialRate(100)) },
	} {
		for _, tt := range []struct {
			name        string
			stop        func(t *testing.T, l Steered, c call)
			least, most rate.Limit // after the next cut
		}{
			{"paused", func(_ *testing.T, l Steered, c call) { l.Pause(time.Hour); c.ends(OutcomeSuccess, 0) }, 75, 120},
			{"paused and resumed", func(_ *testing.T, l Steered, c call) {
				l.Pause(10 * time.Hour)
				c.ends(OutcomeSuccess, 0)
				time.Sleep(time.Hour)
				l.Resume()
			}, 75, 120},
			{"quota used up", func(_ *testing.T, _ Steered, c call) { c.ends(OutcomeQuotaExhausted, time.Hour) }, 75, 120},
			{"a long Retry-After", func(_ *testing.T, _ Steered, c call) { c.ends(OutcomeThrottled, time.Hour) }, 5, 15},
			{"a short Retry-After", func(_ *testing.T, _ Steered, c call) { c.ends(OutcomeThrottled, time.Second) }, 33, 60},
			{"a long Retry-After, resumed", func(t *testing.T, l Steered, c call) {
				c.ends(OutcomeThrottled, time.Hour)
				time.Sleep(time.Second)
				l.Resume()
				calls(t, l, 10)
			}, 33, 60},
		} {
			check := func(t *testing.T, wait bool) {
				synctest.Test(t, func(t *testing.T) {
					l := limiter()
					callers := func(n int) {
						var all sync.WaitGroup
						for range 10 {
							all.Go(func() {
								for range n / 10 {
									call := letGo(t, l, 1)
									time.Sleep(10 * ms)
									call.ends(OutcomeSuccess, 0)
								}
							})
						}
						all.Wait()
					}
					callers(500)
					c := letGo(t, l, 1)
					var waiting sync.WaitGroup
					if wait {
						waiting.Go(func() { callers(10) })
						synctest.Wait()
					}
					tt.stop(t, l, c)
					waiting.Wait()
					if !wait {
						time.Sleep(3 * time.Hour)
					}
					callers(100)
					last := letGo(t, l, 1)
					last.ends(OutcomeThrottled, 0)
					assert.GreaterOrEqual(t, l.Limit(), tt.least)
					assert.LessOrEqual(t, l.Limit(), tt.most)
				})
			}
			t.Run(name+", "+tt.name, func(t *testing.T) { check(t, true) })
			t.Run(name+", "+tt.name+", and nobody waits", func(t *testing.T) { check(t, false) })
		}
	}
}

// Whoever ends while others begin to wait is heard: nobody waits for the patience of the law.
func TestAdaptiveHearsOfEverySuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter())
		const callers, each = 50, 200
		start := time.Now()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					letGo(t, a, 1).ends(OutcomeSuccess, 0)
				}
			})
		}
		all.Wait()
		assert.Zero(t, time.Since(start))
		s := a.Stats()
		assert.EqualValues(t, callers*each, s.Admitted)
		assert.EqualValues(t, callers*each, s.Successes)
		assert.Zero(t, a.law.InFlight())
	})
}

// A server of so many units a second is used as fully by calls of many units.
func TestAdaptiveLearnsTheCostOfCalls(t *testing.T) {
	for _, cost := range []int{1, 10, 100} {
		t.Run(fmt.Sprint(cost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := rate.NewLimiter(rate.Limit(100*cost), 10*cost)
				a := Must(NewAdaptiveLimiter())
				end := time.Now().Add(5 * time.Minute)
				var done atomic.Int64
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						for time.Now().Before(end) {
							call := letGo(t, a, cost)
							time.Sleep(50 * ms)
							if server.AllowN(time.Now(), cost) {
								done.Add(1)
								call.ends(OutcomeSuccess, 0)
							} else {
								call.ends(OutcomeThrottled, 0)
							}
						}
					})
				}
				all.Wait()
				assert.Greater(t, done.Load(), int64(.95*100*300))
				assert.InEpsilon(t, 100*cost, a.law.Soon(), .2) // the rate itself may have been cut just now
			})
		})
	}
}
