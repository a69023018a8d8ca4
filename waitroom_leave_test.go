package cruise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

func TestRoomContext(t *testing.T) {
	cause := errors.New("shutting down")
	for _, tt := range []struct {
		name string
		ctx  func(t *testing.T) context.Context
		is   []error
	}{
		{"nil", func(*testing.T) context.Context { return nil }, []error{errNilContext}},
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
				a := Must(NewAdaptiveLimiter(WithInitialRate(1e-2), WithBurst(1)))
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

func TestRoomCauseOfACancellationWhileWaiting(t *testing.T) {
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
func TestRoomDeadlineError(t *testing.T) {
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
func TestWhatACallWouldWaitFor(t *testing.T) {
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

// A crowd that leaves takes its place in line along: whoever comes next waits for
// their own turn only.
func TestRoomCrowdLeaves(t *testing.T) {
	const crowd = 100_000
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(100, 1))
		require.NoError(t, b.WaitN(t.Context(), 1))
		ctx, cancel := context.WithCancel(t.Context())
		var left atomic.Int64
		var wg sync.WaitGroup
		for range crowd {
			wg.Go(func() {
				if errors.Is(b.WaitN(ctx, 1), context.Canceled) {
					left.Add(1)
				}
			})
		}
		synctest.Wait()
		require.Equal(t, crowd, b.Waiting())
		start := time.Now()
		cancel()
		wg.Wait()
		assert.EqualValues(t, crowd, left.Load())
		require.NoError(t, b.WaitN(t.Context(), 1))
		assert.Equal(t, 10*ms, time.Since(start))
		checkEmpty(t, &b.room)
	})
}

// However a cancellation and a turn race, a call either goes and is counted, or
// leaves and is not.
func TestRoomCancellationRacesWithTurn(t *testing.T) {
	const calls, burst = 2000, 500
	b := Must(NewTokenBucket(1e-6, burst)) // what is taken does not come back in time
	b.Pause(time.Hour)
	var went, left atomic.Int64
	var wg, ready sync.WaitGroup
	cancels := make([]context.CancelFunc, calls)
	ready.Add(calls)
	for i := range calls {
		ctx, cancel := context.WithCancel(t.Context())
		cancels[i] = cancel
		wg.Go(func() {
			ready.Done()
			switch err := b.WaitN(ctx, 1); {
			case err == nil:
				went.Add(1)
			case errors.Is(err, context.Canceled):
				left.Add(1)
			default:
				assert.NoError(t, err)
			}
		})
	}
	ready.Wait()
	rand.Shuffle(calls, func(i, j int) { cancels[i], cancels[j] = cancels[j], cancels[i] })
	wg.Go(func() {
		for _, cancel := range cancels {
			cancel()
		}
	})
	b.Resume()
	assert.NoError(t, b.SetLimit(1e6)) // turns come quickly from now on
	wg.Wait()
	assert.EqualValues(t, calls, went.Load()+left.Load())
	checkEmpty(t, &b.room)
}

// Who is let go before it gets to leave goes, since its token is taken.
func TestRoomLetsGoWhoIsAboutToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(1, 1))
		require.NoError(t, b.WaitN(t.Context(), 1))
		ctx, cancel := context.WithCancel(t.Context())
		went := make(chan error)
		go func() { went <- b.WaitN(ctx, 1) }()
		synctest.Wait()
		b.room.mu.Lock()
		cancel()
		now := b.room.advance(clock.Now())
		b.tokens.SetLimit(now, rate.Inf)
		b.room.release(now)
		b.room.mu.Unlock()
		assert.NoError(t, <-went)
	})
}

// Whoever races with a cancellation takes no token that nobody uses: after each
// race, the bucket has given exactly as many as calls went.
func TestRoomCancellationLosesNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(10, 1))
		require.NoError(t, b.WaitN(t.Context(), 1))
		for round := range 200 {
			start := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*ms, cancel) // at the very moment of its turn
			err := b.WaitN(ctx, 1)
			want := 100 * ms // the token of this moment is taken
			if err != nil {
				want = 0
			}
			at := time.Since(start)
			require.Equal(t, 100*ms, at, "round %d", round)
			require.NoError(t, b.WaitN(t.Context(), 1))
			require.Equal(t, want, time.Since(start)-at, "round %d: %v", round, err)
		}
	})
}
