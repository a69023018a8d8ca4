package cruise

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/queue"
)

// Options of a call hold whatever others it is given after them, and the last cost counts.
func TestCallOptionsAddUp(t *testing.T) {
	r := Must(New())
	var c calling
	require.NoError(t, c.begin(r, t.Context(), []CallOption{WithBackground(), WithoutRetries(), WithCost(2), WithCost(3)}))
	assert.True(t, c.background)
	assert.True(t, c.once)
	assert.Equal(t, 3, c.cost)
}

// crowd makes calls that all wait behind a limiter of 1 a second, and returns
// the order in which they went.
func crowd(t *testing.T, foreground, background int) (order []string) {
	b := Must(NewTokenBucket(1, 1))
	r := Must(New(WithLimiter(b)))
	_ = b.WaitN(t.Context(), 1)
	var mu sync.Mutex
	var wg sync.WaitGroup
	call := func(name string, opts ...CallOption) {
		wg.Go(func() {
			_ = r.Do(t.Context(), func(context.Context) error {
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				return nil
			}, opts...)
		})
		synctest.Wait()
	}
	for range background {
		call("b", WithBackground())
	}
	for range foreground {
		call("f")
	}
	wg.Wait()
	return order
}

func TestBackgroundYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := crowd(t, 5, 3)
		for i, who := range order {
			if want := map[bool]string{true: "f", false: "b"}[i < 5]; who != want {
				t.Fatalf("call %d of %v", i+1, order)
			}
		}
	})
}

// A call that is part of another stands where that would.
func TestCallsWithinStandWhereTheirCallWould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, b := Must(New(WithoutLimiter())), Must(NewTokenBucket(1, 1))
		inner := Must(New(WithLimiter(b)))
		_ = b.WaitN(t.Context(), 1)
		var mu sync.Mutex
		var order []string
		within := func(name string, fails int, opts ...CallOption) {
			n := 0
			_ = outer.Do(t.Context(), func(ctx context.Context) error {
				if n++; n <= fails {
					return Transient(errors.New("boom"))
				}
				return inner.Do(ctx, func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, name)
					return nil
				})
			}, opts...)
		}
		var wg sync.WaitGroup
		b.Pause(time.Minute)
		for _, who := range []func(){
			func() { within("background", 0, WithBackground()) },
			func() { within("background retry", 1, WithBackground()) },
			func() { within("first", 0) },
			func() { within("retry", 1) },
		} {
			wg.Go(who)
			time.Sleep(time.Second)
		}
		wg.Wait()
		assert.Equal(t, []string{"retry", "first", "background retry", "background"}, order)
	})
}

// While both wait, exactly every eighth call is a background call.
func TestBackgroundDoesNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := crowd(t, 70, 10)
		for i, who := range order {
			if want := map[bool]string{true: "b", false: "f"}[i%queue.BackgroundTurn == queue.BackgroundTurn-1]; who != want {
				t.Fatalf("call %d of %v", i+1, order)
			}
		}
	})
}

// Of the background, a retry gets the turn first; and who was alone has had none.
func TestBackgroundTurns(t *testing.T) {
	const turns = queue.BackgroundTurn - 1 // of others, before one of the background
	for _, tt := range []struct {
		name   string
		script func(q *lineup, foreground func(n int), background func(who string, attempt int64))
		want   map[int]string // who has such a turn, if not the foreground
	}{
		{"a retry alone", func(_ *lineup, foreground func(int), background func(string, int64)) {
			background("retry", 2)
			foreground(10)
		}, map[int]string{turns: "retry"}},
		{"a retry and another", func(_ *lineup, foreground func(int), background func(string, int64)) {
			background("first", 1)
			background("retry", 2)
			foreground(10)
		}, map[int]string{turns: "retry", 11: "first"}},
		{"others went before it came", func(_ *lineup, foreground func(int), background func(string, int64)) {
			foreground(10)
			time.Sleep(9500 * ms)
			background("first", 1)
			foreground(10)
		}, map[int]string{9 + turns: "first"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newLineup(1, 1)
				require.NoError(t, q.WaitN(t.Context(), 1))
				tt.script(q, func(n int) {
					for range n {
						q.join("foreground", 1)
					}
				}, func(who string, attempt int64) {
					c := attemptContext(t.Context(), attempt, clock.Never).(*record)
					c.background = true
					q.joinWith(c, who, 1)
				})
				q.wg.Wait()
				for i, turn := range q.gone() {
					assert.Equal(t, cmp.Or(tt.want[i], "foreground"), turn.who, "turn %d", i)
				}
			})
		})
	}
}

// A background call that waits behind others is not refused because of them: it
// may get its turn in time.
func TestBackgroundDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(1, 1))
		r := Must(New(WithLimiter(b)))
		_ = b.WaitN(t.Context(), 1)
		for range 100 {
			go func() { _ = b.WaitN(t.Context(), 1) }()
		}
		synctest.Wait()
		ok := func(context.Context) error { return nil }
		ctx, cancel := context.WithTimeout(t.Context(), queue.BackgroundTurn*time.Second+1)
		defer cancel()
		start := time.Now()
		if err := r.Do(ctx, ok); !errors.Is(err, ErrDeadline) || time.Since(start) != 0 {
			t.Errorf("foreground: %v", err)
		}
		time.AfterFunc(1500*ms, func() { _ = b.SetLimit(1) }) // which asks again who can make it
		if err := r.Do(ctx, ok, WithBackground()); err != nil {
			t.Errorf("background: %v", err)
		}
		if got := time.Since(start); got != queue.BackgroundTurn*time.Second {
			t.Errorf("background went at %v", got)
		}
		_ = b.SetLimit(rate.Inf)
	})
}

// A call that comes behind a background call whose turn it is goes after that.
func TestDeadlineBehindATurnOfTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(1, 5))
		r := Must(New(WithLimiter(b)))
		_ = b.WaitN(t.Context(), 5)
		ok := func(context.Context) error { return nil }
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Do(t.Context(), ok, WithBackground(), WithCost(5)) })
		synctest.Wait()
		for range queue.BackgroundTurn - 1 {
			require.NoError(t, r.Do(t.Context(), ok))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		start := time.Now()
		err := r.Do(ctx, ok)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.ErrorContains(t, err, "5 ahead in line (try again in 6s)")
		assert.Zero(t, time.Since(start))
		ctx, cancel = context.WithTimeout(t.Context(), 6*time.Second+1)
		defer cancel()
		require.NoError(t, r.Do(ctx, ok))
		assert.Equal(t, 6*time.Second, time.Since(start))
		wg.Wait()
	})
}

// A retry of background work goes before other background work only.
func TestBackgroundRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(1, 1))
		r := Must(New(WithLimiter(b), WithBackoff(Must(NewBackoff(WithBase(1), NoJitter())))))
		var mu sync.Mutex
		var order []string
		went := func(who string) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, who)
			return nil
		}
		var wg sync.WaitGroup
		tries := 0
		wg.Go(func() {
			_ = r.Do(t.Context(), func(context.Context) error {
				if tries++; tries == 1 {
					time.Sleep(500 * ms)
					return Transient(errors.New("no"))
				}
				return went("retry")
			}, WithBackground())
		})
		synctest.Wait()
		for _, who := range []string{"b", "f"} {
			var opts []CallOption
			if who == "b" {
				opts = append(opts, WithBackground())
			}
			for range 2 {
				wg.Go(func() {
					_ = r.Do(t.Context(), func(context.Context) error { return went(who) }, opts...)
				})
				synctest.Wait()
			}
		}
		wg.Wait()
		want := []string{"f", "f", "retry", "b", "b"}
		for i := range want {
			if order[i] != want[i] {
				t.Fatalf("got %v, want %v", order, want)
			}
		}
	})
}

// A call yields that says so itself, whatever the one says that it is a part of, and one
// with other options does not.
func TestWhichCallsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, b := Must(New(WithoutLimiter(), WithMaxElapsed(time.Hour))), Must(NewTokenBucket(1, 1))
		inner := Must(New(WithLimiter(b), WithNestedRetries()))
		_ = b.WaitN(t.Context(), 1)
		var mu sync.Mutex
		var order []string
		call := func(ctx context.Context, name string, fails int, opts ...CallOption) error {
			n := 0
			return inner.Do(ctx, func(context.Context) error {
				if n++; n <= fails {
					return Transient(errors.New("boom"))
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
				return nil
			}, opts...)
		}
		within := func(name string, fails int, opts ...CallOption) error {
			return outer.Do(t.Context(), func(ctx context.Context) error { return call(ctx, name, fails, opts...) })
		}
		var wg sync.WaitGroup
		for _, who := range []func(){
			func() { _ = within("retry within", 1) },
			func() { _ = within("background within", 0, WithBackground()) },
			func() { _ = call(t.Context(), "background", 0, WithBackground()) },
			func() { _ = call(t.Context(), "with a cost", 0, WithCost(1)) },
			func() { _ = call(t.Context(), "first", 0) },
		} {
			wg.Go(who)
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		assert.Equal(t, []string{"retry within", "with a cost", "first", "background within", "background"}, order)
	})
}
