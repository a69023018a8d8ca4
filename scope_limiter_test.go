package cruise

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/limits"
)

// stranger is a limiter that learns nothing.
type stranger struct{ err error }

func (s stranger) WaitN(context.Context, int) error { return s.err }

func TestScopeLimitersOfAllMakes(t *testing.T) {
	refuses := errors.New("refuses")
	shared := Must(NewTokenBucket(rate.Inf, 1))
	one := func(l Limiter, err error) Option {
		return WithScopeLimiter(func(string, string) (Limiter, error) { return l, err })
	}
	for _, tt := range []struct {
		name string
		opts []Option
		want error
	}{
		{"default", nil, nil},
		{"no outer limiter", []Option{WithoutLimiter()}, nil},
		{"x/time", []Option{WithLimiter(rate.NewLimiter(rate.Inf, 1))}, nil},
		{"x/time within", []Option{WithScopeLimiter(func(string, string) (Limiter, error) { return rate.NewLimiter(1, 1), nil })}, nil},
		{"stranger", []Option{one(stranger{}, nil)}, nil},
		{"refusing", []Option{one(stranger{refuses}, nil)}, refuses},
		{"failing function", []Option{one(nil, refuses)}, refuses},
		{"nil", []Option{one(nil, nil)}, errNilScopeLimiter},
		{"nil of a make", []Option{one((*TokenBucket)(nil), nil)}, errNilScopeLimiter},
		{"zero", []Option{one(&TokenBucket{}, nil)}, limits.ErrZero},
		{"below a zero one", []Option{WithLimiter(&AdaptiveLimiter{})}, limits.ErrZero},
		{"the same twice", []Option{one(shared, nil)}, errUsedScopeLimiter},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(tt.opts...))
				err := r.Scope("A", "a").Do(t.Context(), ok)
				if tt.name == "the same twice" && err == nil {
					err = r.Scope("A", "b").Do(t.Context(), ok)
				}
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				checkUnused(t, r)
			})
		})
	}
}

// checkUnused checks that nothing but scopes within keeps a scope from being forgotten.
func checkUnused(t *testing.T, r *Retrier) {
	t.Helper()
	uses := map[*node]int{}
	for _, e := range r.path.scopes.kept() {
		uses[e] += e.uses
		if p := e.id.parent; p != nil && p != r.path.scopes.root {
			uses[p]--
		}
	}
	for e, n := range uses {
		if n != 0 || r.path.scopes.nodes[e.id] != e {
			t.Errorf("%v: %d uses left, or none too many", e.scopePath(), n)
		}
	}
}

// Where the function that makes limiters fails there is none to show, and retries are paid
// from the budget around.
func TestScopeThatHasNoLimiter(t *testing.T) {
	r := Must(New(WithScopeLimiter(func(string, string) (Limiter, error) { return nil, errBusy })))
	s := r.Scope("A", "a")
	if l := s.Limiter(); l != nil {
		t.Errorf("limiter %v", l)
	}
	if s.Budget() != r.Budget() {
		t.Error("another budget")
	}
}

// A function that makes limiters may make calls that take its place, or its parent's.
func TestScopeLimiterThatCallsWhileItIsMade(t *testing.T) {
	var r *Retrier
	var twice Limiter
	made := map[string]int{}
	r = Must(New(WithoutLimiter(), WithMaxScopes(1), WithScopeLimiter(func(_, key string) (Limiter, error) {
		made[key]++
		switch {
		case key == "twice" && made[key] == 1:
			twice = r.Scope("A", "twice").Limiter()
		case key == "inner" && made[key] == 1:
			_ = r.Scope("A", "other").Do(t.Context(), ok) // which leaves no room for the outer
		}
		return NewTokenBucket(rate.Inf, 1)
	})))
	if got := r.Scope("A", "twice").Limiter(); got != twice || made["twice"] != 2 {
		t.Errorf("made %d times, and kept another one", made["twice"])
	}
	if err := r.Scope("A", "outer").Scope("B", "inner").Do(t.Context(), ok); err != nil || made["outer"] != 2 {
		t.Errorf("%v, made %d times", err, made["outer"])
	}
	checkUnused(t, r)
}

// A limiter that has others below it can't go below another one: they share its lock.
func TestScopeLimiterThatHasScopesItself(t *testing.T) {
	above := Must(NewTokenBucket(rate.Inf, 1))
	if err := Must(New(WithLimiter(above))).Scope("A", "a").Do(t.Context(), ok); err != nil {
		t.Fatal(err)
	}
	r := Must(New(WithScopeLimiter(func(string, string) (Limiter, error) { return above, nil })))
	if err := r.Scope("B", "b").Do(t.Context(), ok); !errors.Is(err, errUsedScopeLimiter) {
		t.Error(err)
	}
}

// A function that makes limiters may show them to others at once.
func TestScopeLimiterIsLookedAtWhileItIsMade(t *testing.T) {
	var latest atomic.Pointer[TokenBucket]
	latest.Store(Must(NewTokenBucket(rate.Inf, 1)))
	r := Must(New(WithScopeLimiter(func(_, _ string) (Limiter, error) {
		b, err := NewTokenBucket(rate.Inf, 1)
		latest.Store(b)
		return b, err
	})))
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() {
		for ctx.Err() == nil {
			_ = latest.Load().Waiting()
		}
	})
	for i := range 2000 {
		if err := r.Scope("A", strconv.Itoa(i)).Do(t.Context(), ok); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever waits for a scope's limiter by hand, and teaches it, leaves nothing in flight
// further out.
func TestScopeLimiterByHand(t *testing.T) {
	for name, limiter := range map[string]func() (Limiter, error){
		"adaptive": func() (Limiter, error) { return NewAdaptiveLimiter(WithInitialRate(1e6)) },
		"bucket":   func() (Limiter, error) { return NewTokenBucket(1e6, 1e6) },
		"window":   func() (Limiter, error) { return NewSlidingWindow(Window{Calls: 1e6, Per: time.Second}) },
		"shared":   func() (Limiter, error) { return NewShared(false, WithInitialRate(1e6), WithMaxRate(1e6)), nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(WithScopeLimiter(func(string, string) (Limiter, error) { return limiter() })))
				inner := r.Scope("A", "a").Scope("B", "b").Limiter().(Learner)
				for range 20 {
					require.NoError(t, inner.WaitN(t.Context(), 1))
					inner.Learn(Feedback{Outcome: OutcomeSuccess, Sent: time.Now(), Cost: 1})
				}
				require.NoError(t, inner.WaitN(t.Context(), 1))
				inner.Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: time.Hour})
				start := time.Now()
				for range 10 {
					assert.NoError(t, r.Do(t.Context(), ok))
				}
				assert.Zero(t, time.Since(start), "the root was held up")
				assert.Equal(t, time.Hour, pauseLeft(inner))
			})
		})
	}
}

// A Retrier whose limiter is that of another's scope leaves nothing in flight around that
// one, and nothing in line that is never let go there; nor do scopes of its own.
func TestScopeLimiterOfAnotherRetrier(t *testing.T) {
	for name, scoped := range map[string]func(*Retrier) *Retrier{
		"itself":  func(r *Retrier) *Retrier { return r },
		"a scope": func(r *Retrier) *Retrier { return r.Scope("B", "b").Scope("C", "c") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				around := Must(New(WithLimiter(Must(NewAdaptiveLimiter(WithTuning(Tuning{Burst: 2}))))))
				other := scoped(Must(New(WithLimiter(around.Scope("A", "a").Limiter()))))
				start := time.Now()
				for range 20 {
					require.NoError(t, other.Do(t.Context(), ok))
				}
				for range 20 {
					err := other.Do(t.Context(), func(context.Context) error { return Permanent(errBusy) })
					require.Equal(t, errBusy, errors.Unwrap(err))
				}
				inner := Must(New(WithLimiter(other.Limiter()), WithScopeLimiter(func(string, string) (Limiter, error) { return panickyLearner{}, nil })))
				for range 20 {
					assert.PanicsWithValue(t, "Learn", func() { _ = inner.Scope("panics", "p").Do(t.Context(), ok) })
				}
				require.NoError(t, around.Do(t.Context(), ok))
				assert.Zero(t, time.Since(start), "the limiter around was held up")

				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, other.Do(ctx, ok, WithCost(2)))
				assert.ErrorIs(t, other.Do(ctx, ok, WithCost(3)), ErrCost)
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

// A limiter that panics when it is told how a call ended keeps that from nobody else, and
// one that is told so of a call that another refused is forgotten in its turn.
func TestScopeLimiterThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := false
		r := Must(New(WithScopeLimiter(func(scope, _ string) (Limiter, error) {
			switch scope {
			case "embeds":
				return struct{ *AdaptiveLimiter }{Must(NewAdaptiveLimiter())}, nil
			case "panics":
				return panickyLearner{}, nil
			case "refuses":
				return refusing(func() bool { return refuse }), nil
			}
			return NewAdaptiveLimiter()
		})))
		s := r.Scope("A", "a").Scope("embeds", "e").Scope("panics", "p").Scope("B", "b").Scope("refuses", "r")
		for range 10 {
			start := time.Now()
			for _, fn := range []func(context.Context) error{ok, func(context.Context) error { panic("call") }} {
				refuse = false
				assert.PanicsWithValue(t, "Learn", func() { _ = s.Do(t.Context(), fn) })
				refuse = true
				assert.PanicsWithValue(t, "Learn", func() { _ = s.Do(t.Context(), fn) })
			}
			assert.Zero(t, time.Since(start))
		}
		checkUnused(t, r)
	})
}

type panickyLearner struct{}

func (panickyLearner) WaitN(context.Context, int) error { return nil }

func (panickyLearner) Learn(Feedback) { panic("Learn") }

// refusing is a limiter that says when it refuses.
type refusing func() bool

func (r refusing) WaitN(context.Context, int) error {
	if r() {
		return errBusy
	}
	return nil
}

// The limit around a scope holds whatever the limiter of the scope is.
func TestScopeOfAnotherMakeWithinALimit(t *testing.T) {
	for name, limiter := range map[string]func() (Limiter, error){
		"stranger": func() (Limiter, error) { return stranger{}, nil },
		"x/time":   func() (Limiter, error) { return rate.NewLimiter(rate.Inf, 1), nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(WithLimiter(Must(NewTokenBucket(1, 1))), WithScopeLimiter(func(string, string) (Limiter, error) { return limiter() })))
				start := time.Now()
				for i := range 3 {
					if err := r.Scope("A", "a").Do(t.Context(), ok); err != nil || time.Since(start) != time.Duration(i)*time.Second {
						t.Errorf("call %d: %v after %v", i+1, err, time.Since(start))
					}
				}
			})
		})
	}
}

// A call that its scope would keep past its deadline, or for longer than it may wait, is
// refused before it waits for limiters that have to be asked first, or takes of them.
func TestScopeRefusesBeforeOthersAreAsked(t *testing.T) {
	xtime := func() (Limiter, error) { return rate.NewLimiter(1, 2), nil }
	for _, tt := range []struct {
		name           string
		limiter        func() (Limiter, error)
		deadline, most time.Duration
		want           error
	}{
		{"x/time, the deadline", xtime, 10 * time.Second, time.Hour, ErrDeadline},
		{"x/time, the longest wait", xtime, time.Hour, 10 * time.Second, ErrServerDelay},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				around := Must(tt.limiter())
				r := Must(New(WithLimiter(around), WithMaxServerDelay(tt.most), buckets(10, 1)))
				s := r.Scope("A", "a")
				s.Limiter().(*TokenBucket).Pause(time.Minute)
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				start := time.Now()
				err := s.Do(ctx, ok)
				assert.ErrorIs(t, err, tt.want)
				assert.ErrorContains(t, err, "(try again in 1m0s)")
				assert.Zero(t, time.Since(start))
				if x, is := around.(*rate.Limiter); is {
					assert.EqualValues(t, 2, x.Tokens())
				}
				checkUnused(t, r)
			})
		})
	}
}

// A throttle of a limiter that does not learn is waited for by the call itself.
func TestScopeThrottleWithoutLearner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithScopeLimiter(func(string, string) (Limiter, error) { return stranger{}, nil }), WithoutBudget()))
		start, n := time.Now(), 0
		if err := r.Scope("A", "a").Do(t.Context(), func(context.Context) error {
			if n++; n == 1 {
				return Throttled(errBusy, RetryAfter(7*time.Second))
			}
			return nil
		}); err != nil || time.Since(start) != 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// What a limiter of x/time refuses has a reason within scopes too.
func TestScopeRefusedByXTime(t *testing.T) {
	r := Must(New(WithoutBudget(), WithScopeLimiter(func(string, string) (Limiter, error) {
		return rate.NewLimiter(rate.Every(time.Hour), 1), nil
	}))).Scope("A", "a")
	never := func(context.Context) error { t.Error("called"); return nil }
	if err := r.Do(t.Context(), never, WithCost(2)); !errors.Is(err, ErrCost) || !strings.Contains(err.Error(), "cost 2, at most 1") {
		t.Errorf("got %v, want ErrCost", err)
	}
	if err := r.Limiter().WaitN(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Do(ctx, never); !errors.Is(err, ErrDeadline) {
		t.Errorf("got %v, want ErrDeadline", err)
	}
}

func TestScopeLimiterThatIsTheOneAround(t *testing.T) {
	around := Must(NewTokenBucket(1, 1))
	r := Must(New(WithLimiter(around), WithScopeLimiter(func(string, string) (Limiter, error) { return around, nil })))
	if err := r.Scope("A", "a").Do(t.Context(), ok); !errors.Is(err, errUsedScopeLimiter) {
		t.Error(err)
	}
}
