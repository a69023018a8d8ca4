package cruise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/queue"
)

// Whoever is paused by one limiter holds nothing of another, whichever is the
// outer one; and when the pause is over goes at the pace of both.
func TestScopeHoldsNothing(t *testing.T) {
	for _, outer := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			root := Must(NewTokenBucket(rate.Every(time.Second), 5))
			r := Must(New(WithLimiter(root), buckets(rate.Every(time.Second), 5)))
			slow, other := r.Scope("A", "slow"), r.Scope("A", "other")
			paused := slow.Limiter().(*TokenBucket)
			if outer {
				paused = root
			}
			start := time.Now()
			paused.Pause(10 * time.Second)
			var wg sync.WaitGroup
			var mu sync.Mutex
			var went []time.Duration
			for range 4 {
				wg.Go(func() {
					_ = slow.Do(t.Context(), ok)
					mu.Lock()
					defer mu.Unlock()
					went = append(went, time.Since(start))
				})
				synctest.Wait()
			}
			if outer {
				inner := slow.Limiter().(*TokenBucket)
				inner.queue.Lock()
				if got := inner.tokens.Tokens(clock.Now()); got != 5 {
					t.Errorf("inner bucket has %v left of 5", got)
				}
				inner.queue.Unlock()
			} else {
				for range 5 {
					_ = other.Do(t.Context(), ok)
				}
				if time.Since(start) != 0 {
					t.Errorf("others waited %v", time.Since(start))
				}
			}
			wg.Wait()
			for i, got := range went {
				if want := time.Duration(10+i) * time.Second; got != want {
					t.Errorf("outer %v: call %d went at %v, want %v", outer, i+1, got, want)
				}
			}
		})
	}
}

// Both limits hold at once, and scopes take turns at the outer one, however many
// wait in each.
func TestScopesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := Must(NewTokenBucket(1, 1))
		r := Must(New(WithLimiter(root), buckets(100, 100)))
		_ = root.WaitN(t.Context(), 1)
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		for _, who := range []struct {
			key string
			n   int
		}{{"many", 20}, {"few", 3}} {
			for range who.n {
				wg.Go(func() {
					_ = r.Scope("A", who.key).Scope("B", "b").Do(t.Context(), ok)
					mu.Lock()
					defer mu.Unlock()
					order = append(order, who.key)
				})
				synctest.Wait()
			}
		}
		wg.Wait()
		for i, who := range order {
			if want := map[bool]string{true: "few", false: "many"}[i%2 == 1 && i < 6]; who != want {
				t.Fatalf("call %d of %v", i+1, order)
			}
		}
	})
}

func TestScopeWaiters(t *testing.T) {
	long := 10 * time.Second
	for _, tt := range []struct {
		name    string
		timeout time.Duration                  // of the waiter; 0: none
		event   func(root, inner *TokenBucket) // 1 s after the waiter came, which has to wait 4 s for the inner limiter
		want    time.Duration                  // when it is over
		err     error
	}{
		{"nothing", 0, func(_, _ *TokenBucket) {}, 4 * time.Second, nil},
		{"inner resumed", 0, func(_, inner *TokenBucket) { inner.Resume() }, time.Second, nil},
		{"outer paused for less", 0, func(root, _ *TokenBucket) { root.Pause(2 * time.Second) }, 4 * time.Second, nil},
		{"outer paused for more", 0, func(root, _ *TokenBucket) { root.Pause(long) }, 11 * time.Second, nil},
		{"outer paused, inner resumed", 0, func(root, inner *TokenBucket) { root.Pause(long); inner.Resume() }, 11 * time.Second, nil},
		{"both resumed", 0, func(root, inner *TokenBucket) { root.Pause(long); inner.Resume(); root.Resume() }, time.Second, nil},
		{"inner paused while the outer holds", 0, func(root, inner *TokenBucket) {
			root.Pause(long)
			inner.Resume()
			inner.Pause(20 * time.Second)
		}, 21 * time.Second, nil},
		{"deadline passes", 3 * time.Second, func(_, _ *TokenBucket) {}, 0, ErrDeadline},
		{"deadline passes by the inner", 5 * time.Second, func(_, inner *TokenBucket) { inner.Pause(long) }, time.Second, ErrDeadline},
		{"goes before the outer is paused", 5 * time.Second, func(root, inner *TokenBucket) { inner.Resume(); root.Pause(long) }, time.Second, nil},
		{"deadline passes by the outer, noticed when the inner opens", 5 * time.Second, func(root, _ *TokenBucket) { root.Pause(long) }, 4 * time.Second, ErrDeadline},
		{"deadline passes by the outer, at once", 5 * time.Second, func(root, inner *TokenBucket) { root.Pause(100 * ms); inner.Resume(); root.Pause(long) }, time.Second, ErrDeadline},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := Must(NewTokenBucket(rate.Inf, 1))
				r := Must(New(WithLimiter(root), buckets(rate.Inf, 1)))
				s := r.Scope("A", "1")
				inner := s.Limiter().(*TokenBucket)
				inner.Pause(4 * time.Second)
				ctx, start := t.Context(), time.Now()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				time.AfterFunc(time.Second, func() { tt.event(root, inner) })
				err := s.Do(ctx, ok)
				if got := time.Since(start); got != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("got %v after %v, want %v after %v", err, got, tt.err, tt.want)
				}
				time.Sleep(time.Minute)
				if root.Waiting() != 0 || inner.Waiting() != 0 {
					t.Errorf("%d and %d still wait", root.Waiting(), inner.Waiting())
				}
			})
		})
	}
}

// Random calls, pauses and cancellations in a tree: neither limit is ever
// exceeded, everyone comes to an end, and rooms are in order all the time.
func TestScopeTreeModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 4))
			outer, inner := Window{8, time.Second}, Window{3, time.Second}
			r := Must(New(WithLimiter(Must(NewSlidingWindow(outer))), WithMaxAttempts(2), WithoutBudget(),
				WithScopeLimiter(func(string, string) (Limiter, error) { return NewSlidingWindow(inner) })))
			var mu sync.Mutex
			calls := map[string][]went{}
			start := time.Now()
			var wg sync.WaitGroup
			for range 300 {
				time.Sleep(time.Duration(rnd.IntN(100))*ms + 17) // beside the times at which timers go off
				synctest.Wait()
				assert.NoError(t, r.path.scopes.root.queue.Invariants())
				for _, e := range r.path.scopes.nodes {
					assert.NoError(t, e.queue.Invariants())
				}
				key, n, act := fmt.Sprint(rnd.IntN(4)), 1+rnd.IntN(3), rnd.IntN(10)
				timeout := time.Duration(rnd.IntN(5000)) * ms
				wg.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					switch act {
					case 0:
						time.AfterFunc(timeout, cancel)
					case 1:
						ctx, cancel = context.WithTimeout(ctx, timeout)
						defer cancel()
					}
					opts := []CallOption{WithCost(n)}
					if act == 2 {
						opts = append(opts, WithBackground())
					}
					_ = r.Scope("A", key).Scope("B", key).Do(ctx, func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						at := time.Since(start)
						calls[""], calls[key] = append(calls[""], went{at, n}), append(calls[key], went{at, n})
						if act == 3 {
							return Throttled(errBusy, RetryAfter(200*ms), InScope([]string{"", "A", "B", "C"}[n]))
						}
						return nil
					}, opts...)
				})
			}
			wg.Wait()
			for key, of := range calls {
				w := inner
				if key == "" {
					w = outer
				}
				if from, held, bad := overfull(of, w); bad {
					t.Fatalf("seed %d: %q: window from %v holds %d", seed, key, from, held)
				}
			}
			for e := r.path.scopes.recent.next; e != &r.path.scopes.recent; e = e.next {
				below := 0
				if e.id.scope == "A" {
					below = 1
				}
				if waiting, _ := e.queue.Report(); e.uses != below || waiting != 0 {
					t.Fatalf("seed %d: %v: %d uses, %d wait", seed, e.id.key, e.uses, waiting)
				}
			}
			if n := r.Limiter().(*SlidingWindow).Waiting(); n != 0 {
				t.Fatalf("%d wait", n)
			}
		})
	}
}

// What a call in a scope need not wait for is not held against it: its deadline is in time.
func TestScopeDeadlineAtTheRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := Must(NewTokenBucket(1, 1))
		r := Must(New(WithLimiter(root), buckets(rate.Inf, 1)))
		if err := root.WaitN(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := r.Scope("A", "a").Do(within(t, time.Second+1), ok); err != nil {
			t.Error(err)
		}
	})
}

// A pause refuses all who cannot make it any more at once, in a scope and behind it.
func TestPauseRefusesACallBehindAScope(t *testing.T) {
	for _, tt := range []struct {
		name     string
		deadline time.Duration // of the call in the scope
		want     []turn
	}{
		{"which is refused", 5 * time.Second, []turn{
			{"drain", 0, nil}, {"in the scope", 500 * ms, ErrDeadline}, {"last", 500 * ms, ErrDeadline},
			{"next", 10500 * ms, nil},
		}},
		{"which goes", time.Minute, []turn{
			{"drain", 0, nil}, {"last", 500 * ms, ErrDeadline}, {"next", 500 * ms, ErrDeadline},
			{"in the scope", 10500 * ms, nil},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := Must(NewTokenBucket(1, 1))
				scoped := Must(New(WithLimiter(root), buckets(rate.Inf, 1))).Scope("A", "a").Limiter().(*TokenBucket)
				q := &lineup{TokenBucket: root, start: time.Now()}
				q.join("drain", 1)
				q.TokenBucket = scoped
				q.joinWith(within(t, tt.deadline), "in the scope", 1)
				q.TokenBucket = root
				q.joinWith(within(t, 11*time.Second), "next", 1)
				q.joinWith(within(t, 9*time.Second), "last", 1)
				time.Sleep(500 * ms)
				root.Pause(10 * time.Second)
				q.wg.Wait()
				checkTurns(t, tt.want, q.gone())
			})
		})
	}
}

// A scope keeps its place in the line above when its first call leaves, whatever the next one
// costs, and whoever is behind it there still is.
func TestScopeKeepsItsPlaceAbove(t *testing.T) {
	const second = time.Second
	cancelled := func() (context.Context, func(*TokenBucket)) {
		ctx, cancel := context.WithCancel(context.Background())
		return ctx, func(*TokenBucket) { cancel() }
	}
	refused := func() (context.Context, func(*TokenBucket)) {
		return within(t, 5*second), func(root *TokenBucket) { root.Pause(9900 * ms) }
	}
	for _, tt := range []struct {
		name        string
		leaves      func() (context.Context, func(*TokenBucket))
		first, next int           // costs
		within      time.Duration // of the call behind them
		want        []turn
	}{
		{"as much", cancelled, 1, 1, time.Hour, []turn{{"first", 100 * ms, context.Canceled}, {"next", second, nil}, {"behind", 2 * second, nil}}},
		{"more", cancelled, 1, 3, time.Hour, []turn{{"first", 100 * ms, context.Canceled}, {"next", 3 * second, nil}, {"behind", 4 * second, nil}}},
		{"less", cancelled, 3, 1, time.Hour, []turn{{"first", 100 * ms, context.Canceled}, {"next", second, nil}, {"behind", 2 * second, nil}}},
		{"as much, in a pause", refused, 1, 1, 10500 * ms, []turn{{"behind", 100 * ms, ErrDeadline}, {"first", 100 * ms, ErrDeadline}, {"next", 10 * second, nil}}},
		{"more, in a pause", refused, 1, 3, 12500 * ms, []turn{{"behind", 100 * ms, ErrDeadline}, {"first", 100 * ms, ErrDeadline}, {"next", 12 * second, nil}}},
		{"more, in a pause, and there is time", refused, 1, 3, 13500 * ms, []turn{{"first", 100 * ms, ErrDeadline}, {"next", 12 * second, nil}, {"behind", 13 * second, nil}}},
		{"less, in a pause", refused, 3, 1, 11500 * ms, []turn{{"first", 100 * ms, ErrDeadline}, {"next", 10 * second, nil}, {"behind", 11 * second, nil}}},
	} {
		for name, in := range map[string]func(*Retrier) *Retrier{
			"a scope":            func(r *Retrier) *Retrier { return r.Scope("A", "a") },
			"a scope of another": func(r *Retrier) *Retrier { return r.Scope("A", "a").Scope("B", "b") },
		} {
			t.Run(tt.name+", in "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					root := Must(NewTokenBucket(1, 3))
					scoped := in(Must(New(WithLimiter(root), buckets(rate.Inf, 3)))).Limiter().(*TokenBucket)
					require.NoError(t, root.WaitN(t.Context(), 3))
					q := &lineup{TokenBucket: scoped, start: time.Now()}
					ctx, leave := tt.leaves()
					q.joinWith(ctx, "first", tt.first)
					q.join("next", tt.next)
					q.TokenBucket = root
					q.joinWith(within(t, tt.within), "behind", 1)
					time.Sleep(100 * ms)
					leave(root)
					synctest.Wait()
					assert.NoError(t, root.queue.Invariants())
					assert.NoError(t, scoped.queue.Invariants())
					q.wg.Wait()
					checkTurns(t, tt.want, q.gone())
				})
			})
		}
	}
}

// Small costs of a scope do not starve a large one that waits above.
func TestScopeDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := Must(NewTokenBucket(10, 5))
		scoped := Must(New(WithLimiter(root), buckets(rate.Inf, 1))).Scope("A", "a").Limiter().(*TokenBucket)
		q := &lineup{TokenBucket: root, start: time.Now()}
		q.join("drain", 3)
		q.join("large", 5)
		q.TokenBucket = scoped
		q.join("small", 1)
		q.wg.Wait()
		checkTurns(t, []turn{{"drain", 0, nil}, {"large", 300 * ms, nil}, {"small", 400 * ms, nil}}, q.gone())
	})
}

// A retry within a scope goes before the first attempts of others.
func TestRetryOfAScopeGoesBeforeFirstAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := Must(NewTokenBucket(1, 1))
		r := Must(New(WithLimiter(root), buckets(rate.Inf, 1)))
		q := &lineup{TokenBucket: root, start: time.Now()}
		q.join("drain", 1)
		q.join("first", 1)
		for _, attempt := range []int64{1, 2} {
			key := strconv.FormatInt(attempt, 10)
			q.TokenBucket = r.Scope("A", key).Limiter().(*TokenBucket)
			q.joinWith(attemptContext(t.Context(), attempt, clock.Never), "attempt "+key+" of a scope", 1)
		}
		q.wg.Wait()
		checkTurns(t, []turn{
			{"drain", 0, nil}, {"attempt 2 of a scope", time.Second, nil},
			{"first", 2 * time.Second, nil}, {"attempt 1 of a scope", 3 * time.Second, nil},
		}, q.gone())
	})
}

// Background work that has its turn within a scope stands above for all behind it.
func TestBackgroundOfAScopeHoldsUpNoCallOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithLimiter(Must(NewTokenBucket(100, 1))), buckets(rate.Inf, 1)))
		ctx, cancel := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		loop := func(key string, n int, opts ...CallOption) {
			for range n {
				loops.Go(func() {
					for r.Scope("A", key).Do(ctx, ok, opts...) == nil {
					}
				})
			}
		}
		loop("busy", 5)
		loop("mixed", 2, WithBackground())
		for i := range 20 {
			loop(fmt.Sprint(i), 2, WithBackground())
		}
		for range 100 {
			start := time.Now()
			if err := r.Scope("A", "mixed").Do(ctx, ok); err != nil || time.Since(start) > 100*time.Millisecond {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		}
		cancel()
		loops.Wait()
	})
}

// Background work that has its turn within a scope does not yield above, whoever is
// behind it.
func TestBackgroundOfAScopeThatHasItsTurn(t *testing.T) {
	for _, attempt := range []int64{1, 2} { // of those behind
		synctest.Test(t, func(t *testing.T) {
			root := Must(NewTokenBucket(1, 1))
			scoped := Must(New(WithLimiter(root), buckets(rate.Inf, 1))).Scope("A", "a").Limiter().(*TokenBucket)
			q := &lineup{TokenBucket: root, start: time.Now()}
			q.join("drain", 1)
			q.TokenBucket = scoped
			background := attemptContext(t.Context(), 1, clock.Never).(*record)
			background.background = true
			q.joinWith(background, "background", 1)
			for range queue.BackgroundTurn {
				q.joinWith(attemptContext(t.Context(), attempt, clock.Never), "scope", 1)
			}
			time.Sleep((queue.BackgroundTurn-1)*time.Second + 500*ms)
			q.TokenBucket = root
			for range 10 {
				q.join("root", 1)
			}
			q.wg.Wait()
			if turns := q.gone(); turns[queue.BackgroundTurn].who != "background" {
				t.Errorf("attempt %d: %v", attempt, turns)
			}
		})
	}
}

// An account that only the common limiter holds up wants nothing of its own, so the
// time that it waits there says nothing of what its own limit gives.
func TestScopeHeldUpAboveLearnsNothingFromThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		common := Must(NewTokenBucket(.1, 1))
		r := Must(New(WithLimiter(common), WithScopeLimiter(func(_, _ string) (Limiter, error) {
			return NewAdaptiveLimiter(WithInitialRate(50))
		})))
		account := r.Scope("A", "a")
		limiter := account.Limiter().(*AdaptiveLimiter)
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		defer workers.Wait()
		defer cancel()
		var throttle atomic.Bool
		for range 5 {
			workers.Go(func() {
				for ctx.Err() == nil {
					_ = account.Do(ctx, func(context.Context) error {
						time.Sleep(10 * time.Millisecond)
						if throttle.Swap(false) {
							return Throttled(errBusy, InScope("A"))
						}
						return nil
					})
				}
			})
		}
		time.Sleep(10 * time.Minute)
		throttle.Store(true)
		time.Sleep(time.Minute)
		if got := limiter.Limit(); got < 20 {
			t.Errorf("%v a second, want half of what it gave while it was asked", got)
		}
	})
}

// Who stands in line for the limit around a scope, and is held up by the scope then, wants
// nothing of that limit: the time does not make the server slow.
func TestScopeThatPausesLeavesTheLineAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, inner := Must(NewAdaptiveLimiter(WithInitialRate(10))), Must(NewTokenBucket(rate.Inf, 1))
		r := Must(New(WithLimiter(root), WithMaxServerDelay(time.Hour), WithScopeLimiter(func(string, string) (Limiter, error) { return inner, nil })))
		s := r.Scope("A", "a")
		for range 100 {
			require.NoError(t, s.Do(t.Context(), ok))
		}
		was := root.Limit()
		time.AfterFunc(ms, func() { inner.Pause(time.Hour) })
		require.NoError(t, s.Do(t.Context(), ok))
		assert.ErrorIs(t, r.Do(t.Context(), func(context.Context) error { return Throttled(errBusy) }, WithoutRetries()), errBusy)
		assert.Greater(t, root.Limit(), was/5)
	})
}

// What a limit saves for a call stays saved while a scope within holds that up for a moment,
// though others go meanwhile.
func TestScopeThatPausesKeepsTheTokensAbove(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "beside others": 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := Must(NewTokenBucket(rate.Inf, 1000))
				r := Must(New(WithLimiter(Must(NewAdaptiveLimiter(WithMaxRate(100)))), WithScopeLimiter(func(_, key string) (Limiter, error) {
					if key == "" {
						return NewAdaptiveLimiter()
					}
					return inner, nil
				})))
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				for range others {
					go func() {
						for r.Scope("S", "").Do(ctx, ok) == nil {
							time.Sleep(time.Second)
						}
					}()
				}
				time.AfterFunc(5*time.Second, func() { inner.Pause(10 * ms) })
				assert.NoError(t, r.Scope("S", "dear").Do(ctx, ok, WithCost(1000)))
			})
		})
	}
}
