package cruise

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// What clocks do to a bucket, at explicit times: 10 a second, burst 5.
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
				b := Must(NewTokenBucket(10, 5))
				start := clock.Now()
				time.Sleep(2 * time.Hour) // whatever is read below is old
				for _, s := range tt.steps {
					now := b.room.advance(start.Add(s.at))
					got := 0
					for b.room.pass(now, 1) == 0 {
						got++
					}
					assert.Equal(t, s.want, got, "at %v", s.at)
				}
			})
		})
	}
}

// A timer that fires late lets go what the bucket holds by then, and makes up for
// no more than timers are late for no reason.
func TestRoomLateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10, 2)
		for _, who := range []string{"a", "b", "c", "d", "e", "f"} {
			q.join(who, 1)
		}
		require.Len(t, q.gone(), 2)
		q.room.mu.Lock()
		q.room.timer.Stop() // as if the machine had other things to do
		q.room.mu.Unlock()
		time.Sleep(10 * time.Second)
		require.Len(t, q.gone(), 2)
		q.room.tick()
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
func TestRoomTimersOfACoarseClock(t *testing.T) {
	for _, late := range []time.Duration{0, ms, 7 * ms, timerGrain} {
		for _, scoped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, scoped %v", late, scoped), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := Must(NewTokenBucket(1000, 1))
					if scoped {
						b.room.adopt(&Must(NewTokenBucket(rate.Inf, 1)).room)
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
						b.room.mu.Lock()
						b.room.timer.Stop()
						next := b.room.fires.Sub(clock.Now()) + late
						b.room.mu.Unlock()
						time.Sleep(next)
						b.room.tick()
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

// What a bucket makes up for a late timer is for the turn of that timer, not for one that
// another limiter held up later.
func TestRoomLateTimerBeforeAWaitAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, b := Must(NewTokenBucket(rate.Inf, 1)), Must(NewTokenBucket(1000, 1))
		b.room.adopt(&root.room)
		require.NoError(t, b.WaitN(t.Context(), 1))
		root.Pause(time.Minute)
		var went atomic.Int64
		for range 50 {
			go func() {
				if b.WaitN(t.Context(), 1) == nil {
					went.Add(1)
				}
			}()
		}
		synctest.Wait()
		b.room.mu.Lock()
		b.room.timer.Stop()
		b.room.mu.Unlock()
		time.Sleep(2 * ms)
		b.room.tick()
		time.Sleep(time.Minute - 2*ms)
		synctest.Wait()
		assert.Equal(t, int64(1), went.Load(), "at the end of the pause above")
		time.Sleep(10 * ms)
		synctest.Wait()
		assert.Equal(t, int64(11), went.Load())
		time.Sleep(time.Second)
	})
}

// What a bucket has counted by a change of its limit does not come once more when a timer is
// made up for that was late before.
func TestRoomLateTimerBeforeAChange(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*TokenBucket)
	}{
		{"nothing", func(*TokenBucket) {}},
		{"the limit is set", func(b *TokenBucket) { require.NoError(t, b.SetLimit(1000)) }},
		{"the limit is set twice", func(b *TokenBucket) {
			require.NoError(t, b.SetLimit(1))
			require.NoError(t, b.SetLimit(1000))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root, b := Must(NewTokenBucket(rate.Inf, 10)), Must(NewTokenBucket(1000, 10))
				b.room.adopt(&root.room)
				require.NoError(t, b.WaitN(t.Context(), 10))
				start := time.Now()
				root.Pause(time.Minute)
				go func() { _ = b.WaitN(t.Context(), 1) }()
				synctest.Wait()
				b.room.mu.Lock()
				b.room.timer.Stop()
				b.room.mu.Unlock()
				time.Sleep(9 * ms)
				b.room.tick() // 8 ms late
				tt.change(b)
				root.Resume()
				require.NoError(t, b.WaitN(t.Context(), 8))
				assert.Equal(t, 9*ms, time.Since(start), "eight of nine are left")
				require.NoError(t, b.WaitN(t.Context(), 1))
				assert.Equal(t, 10*ms, time.Since(start))
			})
		})
	}
}

// The time between two clocks is none: a pause lasts as long as it was to.
func TestPauseAcrossBubbles(t *testing.T) {
	b := Must(NewTokenBucket(10, 1))
	synctest.Test(t, func(t *testing.T) {
		b.Pause(time.Hour)
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 40*time.Minute, b.PauseLeft())
	})
	left := b.PauseLeft() // by the clock outside
	assert.LessOrEqual(t, left, 40*time.Minute)
	assert.Greater(t, left, 39*time.Minute)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(10 * time.Minute)
		left := b.PauseLeft()
		assert.LessOrEqual(t, left, 40*time.Minute)
		assert.Greater(t, left, 29*time.Minute)
	})
}

// A limiter may be a package-level variable, used by tests each in a bubble with
// a time of its own, and by others outside.
func TestLimiterAcrossBubbles(t *testing.T) {
	b := Must(NewTokenBucket(10, 1))
	a := Must(NewAdaptiveLimiter(WithInitialRate(10), WithBurst(1)))
	limit := a.Limit()
	use := func(t *testing.T) {
		for _, l := range []Learner{b, a} {
			start := time.Now()
			require.NoError(t, l.WaitN(t.Context(), 1))
			require.NoError(t, l.WaitN(t.Context(), 1))
			assert.LessOrEqual(t, time.Since(start), 200*ms, "%T", l)
			err := l.WaitN(within(t, 50*ms), 1)
			assert.ErrorIs(t, err, ErrDeadline, "%T", l)
			require.NoError(t, l.WaitN(within(t, 150*ms), 1), "%T", l)
		}
		time.Sleep(time.Minute)
	}
	synctest.Test(t, use)
	synctest.Test(t, use)
	synctest.Test(t, use)
	assert.Equal(t, rate.Limit(10), limit)
	// Out of all bubbles, decades earlier: a token is due within 100 ms.
	for _, l := range []Learner{b, a} {
		assert.NoError(t, l.WaitN(within(t, time.Minute), 1), "%T", l)
		assert.NoError(t, l.WaitN(within(t, time.Minute), 1), "%T", l)
	}
}

// What a limiter learns after its clock went back is no older than what it
// learned before.
func TestLimiterLearnsAcrossBubbles(t *testing.T) {
	a := Must(NewAdaptiveLimiter(WithInitialRate(8)))
	halve := func(t *testing.T) {
		was := a.Limit()
		_, _, err := a.admit(t.Context(), 1)
		require.NoError(t, err)
		a.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1})
		time.Sleep(time.Second)
		_, sent, err := a.admit(t.Context(), 1)
		require.NoError(t, err)
		assert.Zero(t, clock.Now().Sub(sent))
		time.Sleep(time.Second)
		a.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, Sent: sent.Time()})
		assert.Less(t, a.Limit(), was)
	}
	synctest.Test(t, halve)
	synctest.Test(t, halve)
}

// The wall clock cannot be moved in a test. So this finds all readers of it: nothing that
// decides about time reads it, only the monotonic clock of internal/clock.
func TestOnlyTheMonotonicClockIsRead(t *testing.T) {
	want := map[string][]string{
		"internal/clock/clock.go": {"Now", "Since", "Until"}, // base, Now and deadlines without a monotonic reading
		"calling.go":              {"Until"},                 // the same, as contexts read them
		"adaptive.go":             {"Now"},                   // what an event shows
	}
	var files []string
	for _, pattern := range []string{"*.go", "delay/*.go", "shared/*.go", "internal/check/*.go", "internal/clock/*.go", "internal/law/*.go", "internal/pacer/*.go", "internal/queue/*.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	got := map[string][]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && (s.Sel.Name == "Now" || s.Sel.Name == "Since" || s.Sel.Name == "Until") {
					got[name] = append(got[name], s.Sel.Name)
				}
			}
			return true
		})
	}
	assert.Equal(t, want, got)
}
