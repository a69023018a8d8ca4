package cruise

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/keys"
)

func TestScopesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := map[string]int{}
		r := Must(New(WithMaxScopes(3), WithScopeIdle(time.Minute), WithMaxAttempts(1),
			WithScopeLimiter(func(_, key string) (Limiter, error) {
				made[key]++
				return NewTokenBucket(rate.Inf, 1)
			})))
		use := func(keys ...string) {
			for _, key := range keys {
				if err := r.Scope("A", key).Do(t.Context(), ok); err != nil {
					t.Fatal(err)
				}
			}
		}
		use("a", "b", "c", "a", "d", "a") // forgets b
		if use("b"); made["a"] != 1 || made["b"] != 2 {
			t.Errorf("least recently used: %v", made)
		}
		// One that is paused is not forgotten, nor one in use.
		_ = r.Scope("A", "paused").Do(t.Context(), func(context.Context) error {
			return Throttled(errBusy, RetryAfter(time.Hour))
		})
		release := make(chan struct{})
		go func() {
			_ = r.Scope("A", "busy").Do(t.Context(), func(context.Context) error { <-release; return nil })
		}()
		synctest.Wait() // limiters are made by many at once
		go func() { _ = r.Scope("A", "paused").Scope("B", "waits").Do(t.Context(), ok) }()
		synctest.Wait()
		for i := range 100 {
			use(fmt.Sprint(i))
		}
		if n := len(r.path.scopes.nodes); n > 4 {
			t.Errorf("%d kept", n)
		}
		_ = r.Scope("A", "busy").Limiter()
		if got := pauseLeft(r.Scope("A", "paused").Limiter()); got != time.Hour || made["paused"] != 1 || made["busy"] != 1 {
			t.Errorf("paused for %v, made %d and %d", got, made["paused"], made["busy"])
		}
		close(release)
		time.Sleep(2 * time.Hour)
		for range 10 {
			use("only")
		}
		if n := len(r.path.scopes.nodes); n != 1 {
			t.Errorf("%d kept after a long time", n)
		}
	})
}

// What the server asked for is not forgotten with a limiter of another make either, which
// pauses in its own way.
func TestPausedScopesOfAnotherMakeAreNotForgotten(t *testing.T) {
	for _, blamed := range []string{"", "A", "B"} {
		t.Run("blames "+blamed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(WithMaxScopes(1), WithScopeIdle(time.Minute), WithScopeLimiter(func(string, string) (Limiter, error) {
					return struct{ *TokenBucket }{Must(NewTokenBucket(rate.Inf, 1))}, nil
				})))
				use := func() {
					for i := range 20 {
						assert.NoError(t, r.Scope("A", fmt.Sprint(i)).Do(t.Context(), ok))
					}
				}
				key, start := r.Scope("A", "a").Scope("B", "b"), time.Now()
				assert.ErrorIs(t, key.Do(t.Context(), func(context.Context) error {
					return Throttled(errBusy, RetryAfter(3*time.Minute), InScope(blamed))
				}, WithoutRetries()), errBusy)
				use()
				time.Sleep(2 * time.Minute)
				use()
				assert.NoError(t, key.Do(t.Context(), ok))
				assert.Equal(t, 3*time.Minute, time.Since(start))
				time.Sleep(time.Hour)
				use()
				assert.Len(t, r.path.scopes.nodes, 1, "kept in the end")
			})
		})
	}
}

// The time after which a scope is forgotten begins anew with each call.
func TestScopesInUseAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		r := Must(New(WithoutLimiter(), WithScopeIdle(time.Minute), WithScopeLimiter(func(string, string) (Limiter, error) {
			made++
			return NewTokenBucket(rate.Inf, 1)
		})))
		for range 10 {
			for _, key := range []string{"a", "b"} {
				assert.NoError(t, r.Scope("A", key).Do(t.Context(), ok))
				time.Sleep(30 * time.Second)
			}
		}
		assert.Equal(t, 2, made)
	})
}

// What counts against no limit any more is forgotten after its time, and so is what
// nobody can ask.
func TestScopesThatCountNothingAreForgotten(t *testing.T) {
	for name, limiter := range map[string]func() (Limiter, error){
		"bucket":   func() (Limiter, error) { return NewTokenBucket(1, 1) },
		"window":   func() (Limiter, error) { return NewSlidingWindow(Window{1, time.Second}) },
		"adaptive": func() (Limiter, error) { return NewAdaptiveLimiter(WithMaxRate(1)) },
		"x/time":   func() (Limiter, error) { return rate.NewLimiter(1, 1), nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(WithoutLimiter(), WithScopeIdle(time.Minute),
					WithScopeLimiter(func(string, string) (Limiter, error) { return limiter() })))
				for _, key := range []string{"a", "b"} {
					assert.NoError(t, r.Scope("A", key).Do(t.Context(), ok))
					assert.Len(t, r.path.scopes.nodes, 1)
					time.Sleep(time.Minute + 1)
				}
			})
		})
	}
}

// A paused limiter is not forgotten.
func TestAPausedScopeIsKeptWithAnyLimiter(t *testing.T) {
	for name, limiter := range map[string]func() (Limiter, error){
		"shared": func() (Limiter, error) { return NewShared(false), nil },
		"window": func() (Limiter, error) { return NewSlidingWindow(Window{1000, time.Second}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(WithoutLimiter(), WithMaxScopes(1), WithMaxAttempts(1),
					WithScopeLimiter(func(string, string) (Limiter, error) { return limiter() })))
				_ = r.Scope("A", "paused").Do(t.Context(), func(context.Context) error { return Throttled(errBusy, RetryAfter(time.Minute)) })
				for i := range 10 {
					_ = r.Scope("A", fmt.Sprint(i)).Do(t.Context(), ok)
				}
				start := time.Now()
				if err := r.Scope("A", "paused").Do(t.Context(), ok); err != nil || time.Since(start) < time.Minute {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				time.Sleep(time.Hour)
				r.Scope("A", "by hand").Limiter().(interface{ Pause(time.Duration) }).Pause(time.Minute)
				for i := range 10 {
					_ = r.Scope("A", fmt.Sprint(i)).Do(t.Context(), ok)
				}
				start = time.Now()
				if err := r.Scope("A", "by hand").Do(t.Context(), ok); err != nil || time.Since(start) < time.Minute {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		})
	}
}

// A limiter whose calls still count is kept: a new one would let as many go again.
func TestScopesKeepTheirLimits(t *testing.T) {
	day := func(string, string) (Limiter, error) {
		return NewSlidingWindow(Window{Calls: 100, Per: 24 * time.Hour})
	}
	bucket := func(string, string) (Limiter, error) { return NewTokenBucket(rate.Every(time.Hour), 96) }
	xtime := func(string, string) (Limiter, error) { return rate.NewLimiter(rate.Every(time.Hour), 96), nil }
	for _, c := range []struct {
		name string
		opts []Option
		most int // calls in six hours
	}{
		{"window of a day", []Option{WithScopeLimiter(day)}, 100},
		{"window of a day, no room to spare", []Option{WithScopeLimiter(day), WithMaxScopes(2)}, 100},
		{"bucket", []Option{WithScopeLimiter(bucket)}, 96 + 6},
		{"bucket of x/time", []Option{WithScopeLimiter(xtime)}, 96 + 6},
		{"highest rate", []Option{WithMaxRate(rate.Every(2 * time.Hour))}, 1 + 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(append(c.opts, WithoutLimiter())...))
				n := 0
				do := func(key string) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_ = r.Scope("CUSTOMER", key).Do(ctx, func(context.Context) error {
						if key == "a" {
							n++
						}
						return nil
					})
				}
				for begin := time.Now(); time.Since(begin) < 6*time.Hour; {
					for range 150 {
						do("a")
					}
					time.Sleep(31 * time.Minute)
					do("b") // which looks for what is to be forgotten
				}
				assert.LessOrEqual(t, n, c.most)
				assert.Greater(t, n, c.most/2)
			})
		})
	}
}

// … but not for want of room.
func TestScopesThatCountAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithoutLimiter(), WithMaxScopes(3), WithScopeLimiter(func(string, string) (Limiter, error) {
			return NewSlidingWindow(Window{Calls: 100, Per: 24 * time.Hour})
		})))
		for i := range 100 {
			assert.NoError(t, r.Scope("CUSTOMER", fmt.Sprint(i)).Do(t.Context(), ok))
		}
		assert.Len(t, r.path.scopes.nodes, 3)
	})
}

// Scopes within scopes are forgotten as fast as they come, however deep.
func TestScopesWithinScopesAreForgotten(t *testing.T) {
	for depth := 1; depth <= 8; depth++ {
		r := Must(New(WithMaxScopes(10), buckets(rate.Inf, 1)))
		for i := range 1000 {
			s := r
			for d := range depth {
				s = s.Scope(fmt.Sprint(d), fmt.Sprint(i))
			}
			if err := s.Do(t.Context(), ok); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(r.path.scopes.nodes); n != 10 {
			t.Errorf("%d kept at depth %d", n, depth)
		}
	}
}

func TestScopeKeys(t *testing.T) {
	r := Must(New(buckets(rate.Inf, 1)))
	long := strings.Repeat("k", 1<<20)
	seen := map[Limiter]string{}
	for _, key := range []string{"", "a", "\x00", "{}", "键", strings.Repeat("k", 64), strings.Repeat("k", 65), long, long + "k"} {
		for _, scope := range []string{"", "A", "B"} {
			s := r.Scope(scope, key)
			l := s.Limiter()
			if l != r.Scope(scope, strings.Clone(key)).Limiter() {
				t.Errorf("%.10q of %q: another limiter the second time", key, scope)
			}
			if other, ok := seen[l]; ok {
				t.Errorf("%.10q of %q and %.10q have the same limiter", key, scope, other)
			}
			seen[l] = key
			if err := s.Do(t.Context(), ok); err != nil {
				t.Error(err)
			}
		}
	}
	if r.Scope("A", "a").Scope("B", "b").Limiter() == r.Scope("B", "b").Limiter() {
		t.Error("a nested scope is another one")
	}
}

// Two keys have one limiter if they are the same, whatever they are, and what is
// kept of them is short.
func FuzzScopeKeys(f *testing.F) {
	f.Add("", "\x00")
	f.Add(strings.Repeat("k", keys.Longest), strings.Repeat("k", keys.Longest+1))
	f.Add("{a}", "a}\x00{\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		r := Must(New(buckets(rate.Inf, 1)))
		if got := r.Scope("A", a).Limiter() == r.Scope("A", b).Limiter(); got != (a == b) {
			t.Errorf("%q and %q have the same limiter: %v", a, b, got)
		}
		if got := r.Scope(a, "k").Limiter() == r.Scope(b, "k").Limiter(); got != (a == b) {
			t.Errorf("scopes %q and %q have the same limiter: %v", a, b, got)
		}
		if n := len(keys.Short(a)); n > keys.Longest+1 {
			t.Errorf("%d bytes are kept", n)
		}
		if err := r.Scope("A", a).Scope("B", b).Do(t.Context(), ok); err != nil {
			t.Error(err)
		}
	})
}

func TestScopesConcurrently(t *testing.T) {
	r := Must(New(WithMaxScopes(5), buckets(rate.Inf, 1), WithoutBudget()))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				s := r.Scope("A", fmt.Sprint((g+i)%20)).Scope("B", fmt.Sprint(i%3))
				if err := s.Do(context.Background(), ok); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(r.path.scopes.nodes); n > 5+4 {
		t.Errorf("%d kept", n)
	}
}

// However many keys come by, memory stays that of those that are kept: here of
// 100,000, and in BenchmarkScope of a million.
func TestScopeMemoryIsFlat(t *testing.T) {
	if grown := grownBy(t, 100_000); grown > 4<<20 {
		t.Errorf("%d bytes more", grown)
	}
}

// grownBy is how much the heap grows by calls of so many keys, of which 1,000 are
// kept.
func grownBy(t testing.TB, keys int) int64 {
	r := Must(New(WithMaxScopes(1000)))
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range keys {
		if err := r.Scope("CUSTOMER", fmt.Sprint(i)).Do(context.Background(), ok); err != nil {
			t.Fatal(err)
		}
	}
	grown := heap() - before
	runtime.KeepAlive(r)
	return grown
}

func BenchmarkScope(b *testing.B) {
	ctx := context.Background()
	b.Run("one key", func(b *testing.B) {
		r := Must(New())
		b.ReportAllocs()
		for b.Loop() {
			_ = r.Scope("A", "a").Do(ctx, ok)
		}
	})
	b.Run("one key, kept", func(b *testing.B) {
		s := Must(New()).Scope("A", "a")
		b.ReportAllocs()
		for b.Loop() {
			_ = s.Do(ctx, ok)
		}
	})
	b.Run("bytes per key", func(b *testing.B) {
		r := Must(New(WithMaxScopes(1 << 30)))
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n := 0
		for b.Loop() {
			_ = r.Scope("A", fmt.Sprint(n)).Do(ctx, ok)
			n++
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "bytes/key")
		runtime.KeepAlive(r)
	})
	b.Run("a million keys", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(float64(grownBy(b, 1_000_000))/1e6, "MB-heap-growth")
		}
	})
}
