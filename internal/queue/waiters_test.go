package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A waiter that is put first stands before all others, also where there are none.
func TestWaiters(t *testing.T) {
	w := make([]*Waiter, 4)
	for i := range w {
		w[i] = NewWaiter(Ticket{Cost: 1 << i})
	}
	var list waiters // each step finds it as the one before has left it
	for _, tt := range []struct {
		name string
		do   func(l *waiters)
		want []*Waiter
		cost int64
	}{
		{"first of none", func(l *waiters) { l.pushFirst(w[1]) }, []*Waiter{w[1]}, 2},
		{"first", func(l *waiters) { l.pushFirst(w[0]) }, []*Waiter{w[0], w[1]}, 3},
		{"last", func(l *waiters) { l.push(w[2]) }, []*Waiter{w[0], w[1], w[2]}, 7},
		{"the middle leaves", func(l *waiters) { l.remove(w[1]) }, []*Waiter{w[0], w[2]}, 5},
		{"the first leaves", func(l *waiters) { l.remove(w[0]) }, []*Waiter{w[2]}, 4},
		{"first again", func(l *waiters) { l.pushFirst(w[3]) }, []*Waiter{w[3], w[2]}, 12},
		{"the last leaves", func(l *waiters) { l.remove(w[2]) }, []*Waiter{w[3]}, 8},
		{"all have left", func(l *waiters) { l.remove(w[3]) }, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.do(&list)
			var forth, back []*Waiter
			for x := list.head; x != nil; x = x.next {
				forth = append(forth, x)
			}
			for x := list.tail; x != nil; x = x.prev {
				back = append([]*Waiter{x}, back...)
			}
			assert.Equal(t, tt.want, forth)
			assert.Equal(t, tt.want, back)
			assert.Equal(t, tt.cost, list.cost)
		})
	}
}

// A call that others delay waits no longer than its longest wait.
func TestQueueLongestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(1, 1)
		require.NoError(t, b.WaitN(t.Context(), 1))
		start := time.Now()
		as := func(ticket Ticket) context.Context {
			ticket.MaxPause = clock.Never
			return context.WithValue(t.Context(), ticketKey{}, ticket)
		}
		refused := make(chan error, 1)
		go func() {
			_, err := b.admit(as(Ticket{Class: First, Cost: 1, Until: clock.Now().Add(1500 * ms)}), 1)
			assert.Equal(t, 1500*ms, time.Since(start))
			refused <- err
		}()
		time.Sleep(ms)
		_, err := b.admit(as(Ticket{Class: Retry, Cost: 1}), 1)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, errWait, <-refused)
		time.Sleep(time.Minute)
		assert.Zero(t, b.waitingNow())
	})
}

// A waiter that is let go keeps no timer for its longest wait.
func TestQueueLongestWaitIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(1, 1)
		require.NoError(t, b.WaitN(t.Context(), 1))
		w := NewWaiter(Ticket{Class: First, Cost: 1, MaxPause: clock.Never, Until: clock.Now().Add(time.Hour)})
		require.Nil(t, b.Join(w))
		_, err := b.Await(t.Context(), w)
		require.NoError(t, err)
		assert.False(t, w.timer.Stop())
	})
}
