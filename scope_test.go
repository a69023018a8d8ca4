package cruise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
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

	"github.com/a7df5faa/cruise/internal/clock"
)

var errBusy = errors.New("busy")

// buckets makes scopes of token buckets.
func buckets(limit rate.Limit, burst int) Option {
	return WithScopeLimiter(func(string, string) (Limiter, error) { return NewTokenBucket(limit, burst) })
}

func ok(context.Context) error { return nil }

func pauseLeft(l Limiter) time.Duration {
	r := l.(housed).house()
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.resume.Sub(r.advance(clock.Now())))
}

func TestScopeOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		opt  Option
		want string
	}{
		{"nil function", WithScopeLimiter(nil), "WithScopeLimiter"},
		{"no scopes", WithMaxScopes(0), "WithMaxScopes(0)"},
		{"negative scopes", WithMaxScopes(-1), "WithMaxScopes(-1)"},
		{"no idle time", WithScopeIdle(0), "WithScopeIdle(0s)"},
		{"negative idle time", WithScopeIdle(-1), "WithScopeIdle(-1ns)"},
	} {
		if _, err := New(tt.opt); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for _, r := range []*Retrier{nil, {}} {
		if err := r.Scope("A", "1").Do(t.Context(), ok); !errors.Is(err, errZeroRetrier) {
			t.Errorf("not made by New: %v", err)
		}
	}
}

// A pause reaches exactly the members of the scope that the throttle named, or
// of the innermost one if it named none.
func TestScopePauseReachesItsMembers(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			root := Must(NewTokenBucket(rate.Inf, 1))
			r := Must(New(WithLimiter(root), buckets(rate.Inf, 1), WithMaxAttempts(1), WithoutBudget()))
			type path [2]int // account, table; 0: the Retrier above
			members := map[path]*Retrier{}
			for a := range 4 {
				for table := range 4 {
					x := r
					if a > 0 {
						x = x.Scope("ACCOUNT", fmt.Sprint(a))
					}
					if table > 0 {
						x = x.Scope("TABLE", fmt.Sprint(table))
					}
					members[path{a, table}] = x
				}
			}
			who := path{rnd.IntN(4), rnd.IntN(4)}
			named := []string{"", "ACCOUNT", "TABLE", "DEVELOPER"}[rnd.IntN(4)]
			err := members[who].Do(t.Context(), func(context.Context) error {
				return Throttled(errBusy, RetryAfter(time.Minute), InScope(named))
			})
			if !errors.Is(err, errBusy) {
				t.Fatal(err)
			}
			paused := func(p path) bool {
				switch {
				case named == "" && who[1] > 0, named == "TABLE" && who[1] > 0:
					return p == who
				case (named == "" || named == "ACCOUNT") && who[0] > 0:
					return p[0] == who[0]
				}
				return true // the developer's, who has no scope: everyone
			}
			for p, x := range members {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := x.Do(ctx, ok)
				cancel()
				if got := errors.Is(err, ErrDeadline); got != paused(p) {
					t.Fatalf("%v was throttled in %q: %v got %v", who, named, p, err)
				}
			}
		})
	}
}

// Only the limiter that is to blame is cut; every other one hears that the call
// is over, and nothing more.
func TestScopeCutsOnlyWhoIsToBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithInitialRate(100), WithMaxAttempts(1)))
		account := r.Scope("ACCOUNT", "1")
		table := account.Scope("TABLE", "t")
		limiters := []*AdaptiveLimiter{r.Limiter().(*AdaptiveLimiter), account.Limiter().(*AdaptiveLimiter), table.Limiter().(*AdaptiveLimiter)}
		for range 20 {
			if err := table.Do(t.Context(), func(ctx context.Context) error {
				Report(ctx, Quota{Limit: 1000, Remaining: 900})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		_ = table.Do(t.Context(), func(context.Context) error { return Throttled(errBusy, InScope("ACCOUNT")) })
		for i, a := range limiters {
			s := a.Stats()
			if want := map[bool]uint64{true: 1, false: 0}[i == 1]; s.Throttles != want || s.Successes != 20 || s.Admitted != 21 {
				t.Errorf("limiter %d: %+v", i, s)
			}
			if got := s.Limit < 100; got != (i == 1) {
				t.Errorf("limiter %d: limit %v", i, s.Limit)
			}
			if got := s.Quota != nil; got != (i == 2) {
				t.Errorf("limiter %d: quota %v", i, s.Quota)
			}
			if n := a.law.inflight; n != 0 {
				t.Errorf("limiter %d: %d in flight", i, n)
			}
		}
	})
}

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
				inner.room.mu.Lock()
				if got := inner.tokens.Tokens(clock.Now()); got != 5 {
					t.Errorf("inner bucket has %v left of 5", got)
				}
				inner.room.mu.Unlock()
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

// checkAtRest holds that a room is in order while nothing happens: the costs in its lines add
// up, and the first in line has a timer, or a seat in the room above if only that holds it up.
func checkAtRest(t *testing.T, r *room) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	now, waiting := r.advance(clock.Now()), 0
	for c := range r.lines {
		cost := int64(0)
		for w := r.lines[c].head; w != nil; w = w.next {
			waiting++
			cost += int64(w.n)
			if w.deadline != 0 && w.deadline < r.reading(now) {
				t.Error("waits past its deadline")
			}
			if w.below != nil && (w.below.up != r || w.below.seat.n != w.n) {
				t.Error("a seat of another room, or of another cost")
			}
		}
		if cost != r.lines[c].cost {
			t.Errorf("line of class %d costs %d, counted as %d", c, cost, r.lines[c].cost)
		}
	}
	if waiting != r.waiting || r.busy.Load() != (waiting > 0) {
		t.Errorf("%d wait, counted as %d", waiting, r.waiting)
	}
	w := r.head()
	if w == nil {
		if r.timer != nil || r.seat.queued {
			t.Error("timer or seat for nobody")
		}
		return
	}
	wait := r.peek(now, w.n)
	switch {
	case wait > 0 && r.seat.queued:
		t.Errorf("a seat although held up for %v", wait)
	case wait <= 0 && r.up == nil:
		t.Error("the first in line may go")
	case wait <= 0 && !r.seat.queued && (w.below == nil || w.below.seat.queued):
		t.Error("no seat for the first in line")
	case wait > 0 && wait != clock.Never && (r.timer == nil || r.fires.Sub(now) > wait+time.Microsecond):
		t.Errorf("no timer in %v", wait)
	case r.seat.queued && r.timer != nil:
		t.Error("a timer beside the seat")
	case r.seat.queued && (r.seat.n != w.n || r.seat.class != r.rank(w)):
		t.Error("the seat is not that of the first in line")
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
				checkAtRest(t, r.scopes.root.room)
				for _, e := range r.scopes.entries {
					checkAtRest(t, e.room)
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
			for e := r.scopes.recent.next; e != &r.scopes.recent; e = e.next {
				below := 0
				if e.id.scope == "A" {
					below = 1
				}
				if e.uses != below || e.room.waiting != 0 || e.room.seat.queued {
					t.Fatalf("seed %d: %v: %d uses, %d wait", seed, e.id.key, e.uses, e.room.waiting)
				}
			}
			if n := r.Limiter().(*SlidingWindow).Waiting(); n != 0 {
				t.Fatalf("%d wait", n)
			}
		})
	}
}

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
		{"zero", []Option{one(&TokenBucket{}, nil)}, errZeroLimiter},
		{"below a zero one", []Option{WithLimiter(&AdaptiveLimiter{})}, errZeroLimiter},
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
	uses := map[*scopeEntry]int{}
	for _, e := range r.scopes.kept() {
		uses[e] += e.uses
		if p := e.id.parent; p != nil && p != r.scopes.root {
			uses[p]--
		}
	}
	for e, n := range uses {
		if n != 0 || r.scopes.entries[e.id] != e {
			t.Errorf("%v: %d uses left, or none too many", r.scopes.path(e), n)
		}
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
func TestPauseRefusesWhoIsBehindAScope(t *testing.T) {
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
				q := &queue{TokenBucket: root, start: time.Now()}
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
					q := &queue{TokenBucket: scoped, start: time.Now()}
					ctx, leave := tt.leaves()
					q.joinWith(ctx, "first", tt.first)
					q.join("next", tt.next)
					q.TokenBucket = root
					q.joinWith(within(t, tt.within), "behind", 1)
					time.Sleep(100 * ms)
					leave(root)
					synctest.Wait()
					checkAtRest(t, &root.room)
					checkAtRest(t, &scoped.room)
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
		q := &queue{TokenBucket: root, start: time.Now()}
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
		q := &queue{TokenBucket: root, start: time.Now()}
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

// Background work that has its turn within a scope stands above for all behind it.
func TestBackgroundOfAScopeHoldsUpNobodyOfIt(t *testing.T) {
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

// Background work that has its turn within a scope does not yield above, whoever is
// behind it.
func TestBackgroundOfAScopeThatHasItsTurn(t *testing.T) {
	for _, attempt := range []int64{1, 2} { // of those behind
		synctest.Test(t, func(t *testing.T) {
			root := Must(NewTokenBucket(1, 1))
			scoped := Must(New(WithLimiter(root), buckets(rate.Inf, 1))).Scope("A", "a").Limiter().(*TokenBucket)
			q := &queue{TokenBucket: root, start: time.Now()}
			q.join("drain", 1)
			q.TokenBucket = scoped
			background := attemptContext(t.Context(), 1, clock.Never).(*record)
			background.background = true
			q.joinWith(background, "background", 1)
			for range backgroundTurn {
				q.joinWith(attemptContext(t.Context(), attempt, clock.Never), "scope", 1)
			}
			time.Sleep((backgroundTurn-1)*time.Second + 500*ms)
			q.TokenBucket = root
			for range 10 {
				q.join("root", 1)
			}
			q.wg.Wait()
			if turns := q.gone(); turns[backgroundTurn].who != "background" {
				t.Errorf("attempt %d: %v", attempt, turns)
			}
		})
	}
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
		assert.Greater(t, root.Limit(), was/4)
	})
}

// What a limit saves for a call stays saved while a scope within holds that up for a moment,
// though others go meanwhile.
func TestScopeThatPausesKeepsWhatIsSavedAbove(t *testing.T) {
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

// Whoever waits for a scope's limiter by hand, and teaches it, leaves nothing in flight
// further out.
func TestScopeLimiterByHand(t *testing.T) {
	for name, limiter := range map[string]func() (Limiter, error){
		"adaptive": func() (Limiter, error) { return NewAdaptiveLimiter(WithInitialRate(1e6)) },
		"bucket":   func() (Limiter, error) { return NewTokenBucket(1e6, 1e6) },
		"window":   func() (Limiter, error) { return NewSlidingWindow(Window{N: 1e6, Per: time.Second}) },
		"shared":   func() (Limiter, error) { return NewSharedLimiter(NewMemoryStore(), steady(1e6)...) },
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
				around := Must(New(WithLimiter(Must(NewAdaptiveLimiter(WithBurst(2))))))
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
func (panickyLearner) Learn(Feedback)                   { panic("Learn") }

// refusing is a limiter that says when it refuses.
type refusing func() bool

func (r refusing) WaitN(context.Context, int) error {
	if r() {
		return errBusy
	}
	return nil
}

// A limiter may get a place below another one while a third gets one below it: then all
// three have one lock.
func TestRoomAdoptsWhileItIsAdopted(t *testing.T) {
	var root, middle, inner room
	middle.mu.own.Lock() // holds up its adoption in the middle
	var wg sync.WaitGroup
	wg.Go(func() { middle.adopt(&root) })
	for !middle.adopted.Load() {
		runtime.Gosched()
	}
	wg.Go(func() { inner.adopt(&middle) })
	for range 1000 { // enough for that to end, were it not held up
		runtime.Gosched()
	}
	middle.mu.own.Unlock()
	wg.Wait()
	assert.Same(t, &root.mu.own, middle.mu.root())
	assert.Same(t, &root.mu.own, inner.mu.root())
}

// Calls that stand in line already when a limiter gets its place below another one count there, too.
func TestRoomAdoptsThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, inner := Must(NewTokenBucket(rate.Inf, 1)), Must(NewTokenBucket(1, 1))
		require.NoError(t, inner.WaitN(t.Context(), 1))
		for range 3 {
			go func() { assert.NoError(t, inner.WaitN(t.Context(), 1)) }()
		}
		synctest.Wait()
		require.True(t, inner.room.adopt(&root.room))
		calls := func() int {
			root.room.mu.Lock()
			defer root.room.mu.Unlock()
			return root.room.calls
		}
		assert.Equal(t, 3, calls())
		time.Sleep(time.Minute)
		assert.Zero(t, calls())
	})
}

// The default limiter of a scope tells the observer of the Retrier.
func TestScopeObserver(t *testing.T) {
	for name, opts := range map[string][]Option{"own": nil, "given": {WithoutLimiter()}} {
		pauses := 0
		o := ObserverFunc(func(_ context.Context, e Event) {
			if _, is := e.(Paused); is {
				pauses++
			}
		})
		r := Must(New(append(opts, WithObserver(o), WithMaxAttempts(1))...))
		_ = r.Scope("A", "a").Do(t.Context(), func(context.Context) error { return Throttled(errBusy) })
		if pauses != 1 {
			t.Errorf("%s limiter: told of %d pauses", name, pauses)
		}
	}
}

func TestScopeCost(t *testing.T) {
	s := Must(New(buckets(1, 3))).Scope("A", "a")
	for cost, want := range map[int]error{0: nil, 3: nil, 4: ErrCost} {
		if err := s.Do(t.Context(), ok, WithCost(cost)); !errors.Is(err, want) {
			t.Errorf("cost %d: %v", cost, err)
		}
	}
	if err := s.Do(t.Context(), ok, WithCost(-1)); err == nil {
		t.Error("negative cost")
	}
	checkUnused(t, s)
}

// By hand too what the limit around a scope never lets go is refused, not waited for.
func TestScopeCostByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithLimiter(Must(NewTokenBucket(10, 1))), buckets(10, 3)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		assert.ErrorIs(t, r.Scope("A", "a").Limiter().WaitN(ctx, 2), ErrCost)
		assert.Zero(t, time.Since(start))
	})
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

// Whose rate it is that WithMaxRate bounds.
func TestMaxRateOfScopes(t *testing.T) {
	own := func(r *Retrier, tenant string) *Retrier { return r.Scope("TENANT", tenant) }
	for _, tt := range []struct {
		name string
		opts []Option
		of   func(r *Retrier, tenant string) *Retrier
		took time.Duration // for 5 calls each of 4 tenants
	}{
		{"each key, and all together", []Option{WithMaxRate(5)}, own, 3800 * ms},
		{"each key", []Option{WithoutLimiter(), WithMaxRate(5)}, own, 800 * ms},
		{"nobody, outside a scope", []Option{WithoutLimiter(), WithMaxRate(5)}, func(r *Retrier, _ string) *Retrier { return r }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(tt.opts...))
				start := time.Now()
				var all sync.WaitGroup
				for _, tenant := range []string{"a", "b", "c", "d"} {
					for range 5 {
						all.Go(func() {
							if err := tt.of(r, tenant).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
								t.Error(err)
							}
						})
					}
				}
				all.Wait()
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// A throttled call backs off by itself only where the limiter of the scope cannot pause.
func TestScopeWhoseLimiterPausesIsTheBackoff(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limiter func() (Limiter, error)
		paced   bool
	}{
		{"bucket", func() (Limiter, error) { return NewTokenBucket(1, 1) }, true},
		{"adaptive", func() (Limiter, error) { return NewAdaptiveLimiter() }, true},
		{"somebody's that learns nothing", func() (Limiter, error) { return stranger{}, nil }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var delays []time.Duration
				r := Must(New(WithoutLimiter(), WithScopeLimiter(func(string, string) (Limiter, error) { return tt.limiter() }), WithObserver(ObserverFunc(func(_ context.Context, e Event) {
					if e, ok := e.(RetryScheduled); ok {
						delays = append(delays, e.Delay)
					}
				}))))
				n := 0
				require.NoError(t, r.Scope("A", "a").Do(t.Context(), func(context.Context) error {
					if n++; n == 1 {
						return Throttled(errBusy)
					}
					return nil
				}))
				require.Len(t, delays, 1)
				assert.Equal(t, tt.paced, delays[0] == 0, "%v", delays)
			})
		})
	}
}

// A success that costs nothing may be the first call of its key, when others have spent from
// budgets of theirs.
func TestFreeCallOfANewKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithoutLimiter()))
		n := 0
		require.NoError(t, r.Scope("A", "a").Do(t.Context(), func(context.Context) error {
			if n++; n == 1 {
				return errBusy
			}
			return nil
		}))
		require.NoError(t, r.Scope("A", "b").Do(t.Context(), ok, WithCost(0)))
	})
}

func TestScopeLimiterThatIsTheOneAround(t *testing.T) {
	around := Must(NewTokenBucket(1, 1))
	r := Must(New(WithLimiter(around), WithScopeLimiter(func(string, string) (Limiter, error) { return around, nil })))
	if err := r.Scope("A", "a").Do(t.Context(), ok); !errors.Is(err, errUsedScopeLimiter) {
		t.Error(err)
	}
}
