package queue

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Clocks that jump, run late or go backwards, before a bucket of 10 a second and a burst of 5.
func TestBucketClock(t *testing.T) {
	const second = time.Second
	type step struct {
		at   time.Duration
		want int // calls that go at that time
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"it refills", []step{{0, 5}, {second / 10, 1}, {3 * second / 10, 2}}},
		{"idle time saves no more than the burst", []step{{0, 5}, {second, 5}, {time.Hour, 5}}},
		{"a machine that was suspended for an hour", []step{{0, 5}, {time.Hour, 5}, {time.Hour, 0}}},
		{"a clock that goes backwards mints nothing", []step{{second, 5}, {0, 0}, {second, 0}, {0, 0}, {1100 * ms, 1}}},
		{"to and fro", []step{{0, 5}, {100 * ms, 1}, {50 * ms, 0}, {100 * ms, 0}, {50 * ms, 0}, {200 * ms, 1}}},
		{"a clock that stands still", []step{{0, 5}, {0, 0}, {0, 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBucket(10, 5)
				start := clock.Now()
				time.Sleep(2 * time.Hour) // all readings below are old
				for _, s := range tt.steps {
					now := b.Advance(start.Add(s.at))
					got := 0
					for b.peek(now, 1) == 0 {
						b.take(now, 1)
						got++
					}
					assert.Equal(t, s.want, got, "at %v", s.at)
				}
			})
		})
	}
}

// A timer that fires late lets calls go for the tokens of the bucket by then, and makes up for at
// most the usual lateness of timers.
func TestQueueLateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLineup(10, 2)
		for _, who := range []string{"a", "b", "c", "d", "e", "f"} {
			q.join(who, 1)
		}
		require.Len(t, q.gone(), 2)
		q.Lock()
		q.timer.Stop() // as if the machine had other things to do
		q.Unlock()
		time.Sleep(10 * time.Second)
		require.Len(t, q.gone(), 2)
		q.tick()
		q.wg.Wait()
		checkTurns(t, []turn{
			{"a", 0, nil}, {"b", 0, nil},
			{"c", 10 * time.Second, nil}, {"d", 10 * time.Second, nil},
			{"e", 10100*ms - timerGrain, nil}, {"f", 10200*ms - timerGrain, nil},
		}, q.gone())
	})
}

// However late each timer is within its grain, a bucket gives its limit, and no
// more than that.
func TestQueueTimersOfACoarseClock(t *testing.T) {
	for _, late := range []time.Duration{0, ms, 7 * ms, timerGrain} {
		for _, scoped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, scoped %v", late, scoped), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBucket(1000, 1)
					if scoped {
						b.Adopt(&newBucket(rate.Inf, 1).Queue)
					}
					var went atomic.Int64
					for range 500 {
						go func() {
							if b.WaitN(t.Context(), 1) == nil {
								went.Add(1)
							}
						}()
					}
					synctest.Wait()
					for end := time.Now().Add(400 * ms); time.Now().Before(end); {
						b.Lock()
						b.timer.Stop()
						next := b.firesAt.Sub(clock.Now()) + late
						b.Unlock()
						time.Sleep(next)
						b.tick()
						synctest.Wait()
					}
					since := 400*ms + late
					assert.InDelta(t, float64(since/ms), float64(went.Load()), 1+float64(late/ms))
					assert.LessOrEqual(t, went.Load(), int64(since/ms)+1)
				})
			})
		}
	}
}

// A bucket makes up for a late timer at the turn of that timer, not at a turn that another limiter
// held up later.
func TestQueueLateTimerBeforeAWaitAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, b := newBucket(rate.Inf, 1), newBucket(1000, 1)
		b.Adopt(&root.Queue)
		require.NoError(t, b.WaitN(t.Context(), 1))
		root.pauseFor(time.Minute)
		var went atomic.Int64
		for range 50 {
			go func() {
				if b.WaitN(t.Context(), 1) == nil {
					went.Add(1)
				}
			}()
		}
		synctest.Wait()
		b.Lock()
		b.timer.Stop()
		b.Unlock()
		time.Sleep(2 * ms)
		b.tick()
		time.Sleep(time.Minute - 2*ms)
		synctest.Wait()
		assert.Equal(t, int64(1), went.Load(), "at the end of the pause above")
		time.Sleep(10 * ms)
		synctest.Wait()
		assert.Equal(t, int64(11), went.Load())
		time.Sleep(time.Second)
	})
}

// Tokens that a bucket has counted by a change of its limit are not counted again when it makes up
// for an earlier late timer.
func TestQueueLateTimerBeforeAChange(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*bucket)
	}{
		{"nothing", func(*bucket) {}},
		{"the limit is set", func(b *bucket) { require.NoError(t, b.SetLimit(1000)) }},
		{"the limit is set twice", func(b *bucket) {
			require.NoError(t, b.SetLimit(1))
			require.NoError(t, b.SetLimit(1000))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root, b := newBucket(rate.Inf, 10), newBucket(1000, 10)
				b.Adopt(&root.Queue)
				require.NoError(t, b.WaitN(t.Context(), 10))
				start := time.Now()
				root.pauseFor(time.Minute)
				go func() { _ = b.WaitN(t.Context(), 1) }()
				synctest.Wait()
				b.Lock()
				b.timer.Stop()
				b.Unlock()
				time.Sleep(9 * ms)
				b.tick() // 8 ms late
				tt.change(b)
				root.resume()
				require.NoError(t, b.WaitN(t.Context(), 8))
				assert.Equal(t, 9*ms, time.Since(start), "eight of nine are left")
				require.NoError(t, b.WaitN(t.Context(), 1))
				assert.Equal(t, 10*ms, time.Since(start))
			})
		})
	}
}
