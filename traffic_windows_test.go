package cruise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/replay"
)

// A window of a hundred calls a minute, of which another process takes all that is left
// 40 s before it ends: one call waits for its end, and then all is as before.
func TestWindowUsedUpByAnother(t *testing.T) {
	takesLong(t)
	learners(t, []int{1, 100}, func(t *testing.T, r *Retrier, cost int) {
		const perMinute = 100
		var mu sync.Mutex
		var ends, taken time.Time
		left, got, refused := 0, 0, 0
		call := func(ctx context.Context) error {
			replay.Sleep(50 * ms)
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); !now.Before(ends) {
				ends, left = now.Add(time.Minute), perMinute
			}
			if taken != ends && time.Until(ends) < 40*time.Second {
				taken, left = ends, min(left, 1)
			}
			if left == 0 {
				refused++
				return Throttled(errors.New("429"))
			}
			left--
			got++
			Report(ctx, Quota{Limit: perMinute * cost, Remaining: left * cost, Reset: time.Until(ends)})
			return nil
		}
		end := time.Now().Add(30 * time.Minute)
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() {
				for time.Now().Before(end) && assert.NoError(t, r.Do(context.Background(), call, WithCost(cost))) {
				}
			})
		}
		group.Wait()
		assert.Greater(t, got, 1000)
		assert.Less(t, refused, 5)
	})
}

// An hourly server gives 5,000 calls in every hour, and tells what is left of them until when.
type hourly struct {
	mu            sync.Mutex
	ends          time.Time
	left, refused int
	unit          int // in which it counts a call
	each          int // of how many answers one tells it, 0 for all
}

// take is a call of anybody.
func (s *hourly) take() (Quota, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(s.ends) {
		s.ends, s.left = time.Now().Add(time.Hour), 5000
	}
	if s.left == 0 {
		s.refused++
		return Quota{}, Throttled(errors.New("429"))
	}
	s.left--
	return Quota{Limit: 5000 * s.unit, Remaining: s.left * s.unit, Reset: time.Until(s.ends)}, nil
}

func (s *hourly) call(ctx context.Context) error {
	replay.Sleep(50 * ms)
	q, err := s.take()
	if err == nil && (s.each == 0 || q.Remaining%s.each == 0) {
		Report(ctx, q)
	}
	return err
}

// work has five callers make calls for d, or as many as there are to make, and returns how
// many those were, and the longest time between two of them.
func (s *hourly) work(r *Retrier, d time.Duration, most int) (n int, longest time.Duration) {
	var mu sync.Mutex
	last, end := time.Now(), time.Now().Add(d)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			for time.Now().Before(end) {
				err := r.Do(context.Background(), s.call)
				mu.Lock()
				if err == nil {
					n, longest, last = n+1, max(longest, time.Since(last)), time.Now()
				}
				done := n >= most
				mu.Unlock()
				if done {
					return
				}
			}
		})
	}
	group.Wait()
	return n, longest
}

// Where only some answers tell what is left, the others do not speed up what has to last.
func TestWindowToldNowAndThen(t *testing.T) {
	takesLong(t)
	learners(t, []int{2, 5, 20}, func(t *testing.T, r *Retrier, each int) {
		s := &hourly{unit: 1, each: each}
		n, longest := s.work(r, 4*time.Hour-time.Second, math.MaxInt)
		assert.Greater(t, n, 19_000)
		assert.Less(t, longest, 2*time.Minute)
	})
}

// Who waits for the next window is not refused because this one's rest is spread thin.
func TestWindowThatEndsBeforeTheDeadline(t *testing.T) {
	replay.Test(t, func(t *testing.T) {
		s, r := &hourly{unit: 1}, bulk()
		s.work(r, 50*time.Minute, math.MaxInt)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		var got atomic.Int64
		var group sync.WaitGroup
		for range 3000 {
			group.Go(func() {
				if r.Do(ctx, s.call) == nil {
					got.Add(1)
				}
			})
		}
		group.Wait()
		assert.EqualValues(t, 3000, got.Load())
	})
}

// An endpoint with a quota of its own, or an answer that tells nonsense, takes no more of a
// window than itself.
func TestWindowBesideAnother(t *testing.T) {
	for name, other := range map[string]func(left int) Quota{
		"another quota": func(left int) Quota { return Quota{Limit: 1000, Remaining: 1000 - (5000-left)/100} },
		"nonsense":      func(int) Quota { return Quota{Limit: 5000, Remaining: math.MaxInt32} },
	} {
		t.Run(name, func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				s := &hourly{unit: 1}
				r := bulk()
				end, got := time.Now().Add(time.Hour-time.Second), 0
				for time.Now().Before(end) {
					assert.NoError(t, r.Do(t.Context(), func(ctx context.Context) error {
						replay.Sleep(50 * ms)
						q, err := s.take()
						if err != nil {
							return err
						}
						if got++; got%100 == 0 {
							reset := q.Reset
							q = other(q.Remaining)
							q.Reset = reset
						}
						Report(ctx, q)
						return nil
					}))
				}
				assert.Zero(t, s.refused)
				assert.Greater(t, got, 4_500)
			})
		})
	}
}

// Processes that know nothing of each other share what a window has left, whatever the unit
// in which that is told: nobody is refused, nobody waits for long, and all is used.
func TestWindowOfSeveral(t *testing.T) {
	for _, tt := range []struct{ processes, unit int }{{1, 1}, {1, 1000}, {2, 1}, {3, 1}, {3, 1000}, {10, 1}} {
		t.Run(fmt.Sprintf("%d processes, %d for a call", tt.processes, tt.unit), func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				s := &hourly{unit: tt.unit}
				var all atomic.Int64
				var group sync.WaitGroup
				for range tt.processes {
					group.Go(func() {
						n, longest := s.work(Must(New()), 2*time.Hour-time.Second, math.MaxInt)
						all.Add(int64(n))
						assert.InEpsilon(t, 10_000/tt.processes, n, .5)
						assert.Less(t, longest, time.Duration(tt.processes)*10*time.Second)
					})
				}
				group.Wait()
				assert.LessOrEqual(t, s.refused, 25)
				assert.GreaterOrEqual(t, all.Load(), int64(9_950))
			})
		})
	}
}

// What others leave of a window goes to whoever stays, and what they used while nobody
// wanted anything here takes nothing from whoever begins.
func TestWindowOfOthersThatEnd(t *testing.T) {
	t.Run("nine of ten leave", func(t *testing.T) {
		replay.Test(t, func(t *testing.T) {
			s := &hourly{unit: 1}
			var group sync.WaitGroup
			for range 9 {
				group.Go(func() { s.work(Must(New()), 20*time.Minute, math.MaxInt) })
			}
			n, _ := s.work(Must(New()), time.Hour-time.Second, math.MaxInt)
			group.Wait()
			assert.Greater(t, n, 2500)
			assert.Zero(t, s.refused)
		})
	})
	t.Run("another worked before", func(t *testing.T) {
		replay.Test(t, func(t *testing.T) {
			s, r := &hourly{unit: 1}, Must(New())
			for i := range 2600 {
				if i%100 == 0 {
					assert.NoError(t, r.Do(t.Context(), s.call))
				}
				time.Sleep(30 * time.Minute / 2600)
				_, err := s.take()
				assert.NoError(t, err)
			}
			begun := time.Now()
			n, _ := s.work(r, time.Hour, 1000)
			assert.GreaterOrEqual(t, n, 1000)
			assert.Less(t, time.Since(begun), 15*time.Minute)
		})
	})
}
