package cruise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

func TestPauseLeft(t *testing.T) {
	for name, l := range map[string]interface {
		Limiter
		Pause(time.Duration)
		Resume()
		PauseLeft() time.Duration
	}{
		"adaptive": Must(NewAdaptiveLimiter()),
		"bucket":   Must(NewTokenBucket(1, 1)),
		"window":   Must(NewSlidingWindow(Window{1, time.Second})),
		"shared":   NewShared(false),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				assert.Zero(t, l.PauseLeft())
				l.Pause(time.Minute)
				time.Sleep(20 * time.Second)
				assert.Equal(t, 40*time.Second, l.PauseLeft())
				l.Resume()
				assert.Zero(t, l.PauseLeft())
				l.Pause(2 * clock.Year)
				time.Sleep(2 * clock.Year)
				assert.Zero(t, l.PauseLeft(), "though nobody looked for so long")
			})
		})
	}
}

// askingContext is a context of somebody else's make, which looks at the limiter.
type askingContext struct {
	context.Context
	ask func()
}

func (c askingContext) Value(key any) any {
	c.ask()
	return c.Context.Value(key)
}

func (c askingContext) Deadline() (time.Time, bool) {
	c.ask()
	return c.Context.Deadline()
}

func TestContextsAreAskedWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(1, 1))
		ctx := askingContext{t.Context(), func() { b.Waiting() }}
		for range 2 { // at once, and in line
			assert.NoError(t, b.WaitN(ctx, 1))
		}
	})
}

func TestWaitContext(t *testing.T) {
	cause := errors.New("shutting down")
	for _, tt := range []struct {
		name string
		ctx  func(t *testing.T) context.Context
		is   []error
	}{
		{"nil", func(*testing.T) context.Context { return nil }, []error{limits.ErrNilContext}},
		{"cancelled", func(*testing.T) context.Context {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx
		}, []error{context.Canceled}},
		{"cancelled with a cause", func(*testing.T) context.Context {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(cause)
			return ctx
		}, []error{context.Canceled, cause}},
		{"past its deadline", func(t *testing.T) context.Context { return within(t, -1) }, []error{context.DeadlineExceeded}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := Must(NewTokenBucket(1e-3, 1))
				a := Must(NewAdaptiveLimiter(WithInitialRate(1e-2), WithTuning(Tuning{Burst: 1})))
				for _, n := range []int{0, 1} {
					for _, l := range []Limiter{b, a} {
						err := l.WaitN(tt.ctx(t), n)
						for _, want := range tt.is {
							assert.ErrorIs(t, err, want, "%T, cost %d", l, n)
						}
					}
				}
				// The one token is still there.
				start := time.Now()
				require.NoError(t, b.WaitN(t.Context(), 1))
				require.NoError(t, a.WaitN(t.Context(), 1))
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

func TestCauseOfACancellationWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("shutting down")
		b := Must(NewTokenBucket(1, 1))
		require.NoError(t, b.WaitN(t.Context(), 1))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*ms, func() { cancel(cause) })
		err := b.WaitN(ctx, 1)
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, cause)
	})
}

// The refusal says all that its reader needs: that it is about the deadline, and
// when another try makes sense.
func TestDeadlineError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(0.1, 1))
		require.NoError(t, b.WaitN(t.Context(), 1))
		b.Pause(15 * time.Second)
		err := b.WaitN(within(t, time.Second), 1)
		assert.ErrorIs(t, err, ErrDeadline)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 15*time.Second, e.RetryAfter)
		assert.Zero(t, e.Attempts)
		assert.NoError(t, e.Last)
		assert.Equal(t, "cruise: call not made: wait would pass the deadline: everyone is paused for 15s (try again in 15s)", err.Error())
	})
}

// It says what the call would have waited for, too.
func TestWaitOfACallThatIsNotMade(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   []Option
		ahead  int
		pause  time.Duration
		want   string
		reason error
	}{
		{"its turn", nil, 0, 0, "wait would pass the deadline (try again in 10s)", ErrDeadline},
		{"others", nil, 3, 0, "wait would pass the deadline: 3 ahead in line (try again in 40s)", ErrDeadline},
		{"a pause", nil, 0, time.Minute, "wait would pass the deadline: everyone is paused for 1m0s (try again in 1m0s)", ErrDeadline},
		{"a pause, then others", nil, 3, time.Minute, "wait would pass the deadline: everyone is paused for 1m0s: 3 ahead in line (try again in 1m30s)", ErrDeadline},
		{"others, for longer than is left to it", []Option{WithMaxElapsed(500 * ms)}, 3, 0, "time of WithMaxElapsed used up: 3 ahead in line (try again in 40s)", ErrMaxElapsed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := Must(NewTokenBucket(0.1, 1))
				r := Must(New(append(tt.opts, WithLimiter(b))...))
				require.NoError(t, b.WaitN(t.Context(), 1))
				b.Pause(tt.pause)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for range tt.ahead {
					go func() { _ = b.WaitN(ctx, 1) }()
				}
				synctest.Wait()
				err := r.Do(within(t, time.Second), func(context.Context) error { t.Error("called"); return nil })
				assert.EqualError(t, err, "cruise: call not made: "+tt.want)
				assert.ErrorIs(t, err, tt.reason)
			})
		})
	}
}

// What is ahead in all may cost more than an int holds where that has 32 bits: the
// error then tells the most that one holds.
func TestRefusalBehindTheHighestCosts(t *testing.T) {
	const most = math.MaxInt32
	want := fmt.Sprintf(": %d ahead in line", min(3*int64(most), math.MaxInt))
	for name, l := range map[string]Limiter{
		"bucket":   Must(NewTokenBucket(most, most)),
		"window":   Must(NewSlidingWindow(Window{most, time.Second})),
		"adaptive": Must(NewAdaptiveLimiter(WithMaxRate(most))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.NoError(t, l.WaitN(t.Context(), most))
				l.(interface{ Pause(time.Duration) }).Pause(time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				for range 3 {
					go func() { _ = l.WaitN(ctx, most) }()
				}
				synctest.Wait()
				start := time.Now()
				assert.ErrorContains(t, l.WaitN(within(t, 3*time.Second), most), want)
				assert.Zero(t, time.Since(start))
				cancel()
				synctest.Wait()
			})
		})
	}
}
