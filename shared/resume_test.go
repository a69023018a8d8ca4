package shared

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
)

func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers := fleet(t, NewMemoryStore(), 2, steady(10)...)
		workers[0].Pause(time.Hour)
		synctest.Wait()
		start := time.Now()
		time.AfterFunc(time.Second, workers[0].Resume)
		require.NoError(t, workers[0].WaitN(t.Context(), 1))
		assert.Equal(t, time.Second, time.Since(start))
		require.NoError(t, workers[1].WaitN(t.Context(), 1), "who never knew of the pause")
		assert.InDelta(t, 1.1, time.Since(start).Seconds(), .01)
		workers[1].Pause(time.Minute)
		synctest.Wait()
		require.NoError(t, workers[0].WaitN(t.Context(), 1))
		assert.InDelta(t, 61.1, time.Since(start).Seconds(), .2, "a new pause counts after a resume")
	})
}

// Resume reaches workers that are in the pause already, within a period, if they
// have calls that wait; the others ask nothing meanwhile.
func TestResumeReachesThePaused(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []Option
	}{
		{"with a shared rate", steady(100)},
		{"pause only", append(steady(100), WithPauseOnly())},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				workers := fleet(t, store, 3, tt.opts...)
				for _, s := range workers {
					s.Pause(time.Hour)
				}
				time.Sleep(syncPeriod)
				synctest.Wait()
				before, start := store.syncs, time.Now()
				var wg sync.WaitGroup
				for _, s := range workers[:2] {
					wg.Go(func() { assert.NoError(t, s.WaitN(t.Context(), 1)) })
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				assert.LessOrEqual(t, store.syncs-before, 2*20+3)
				workers[2].Resume()
				wg.Wait()
				assert.LessOrEqual(t, time.Since(start), 10*time.Second+syncPeriod+100*time.Millisecond)
				assert.Zero(t, workers[1].Stats().PauseLeft)
			})
		})
	}
}

// The answer to a sync that was under way when the pause was ended does not bring it back.
func TestResumeWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		s := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 80 * ms}, 1, steady(100)...)[0]
		s.Pause(time.Hour)
		start := time.Now()
		time.AfterFunc(600*ms, s.Resume) // it asks from 580 ms on
		time.AfterFunc(670*ms, func() { assert.Zero(t, s.Stats().PauseLeft) })
		require.NoError(t, s.WaitN(t.Context(), 1))
		assert.Equal(t, 740*ms, time.Since(start))
	})
}

// A Resume that could not be told ends the pause for all some seconds later. After that it
// is forgotten: there may be another pause, which it was not for.
func TestResumeIsToldSoonOrNever(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration // the store is back
		waits time.Duration
	}{
		{2 * time.Second, time.Second},
		{time.Hour, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newFaultyStore()
			a, b := fleet(t, store, 1, steady(10)...)[0], fleet(t, store.Store, 1, steady(10)...)[0]
			calls(t, a, 1)
			calls(t, b, 1)
			time.Sleep(time.Second)
			store.fails(down)
			a.Resume()
			time.Sleep(tt.after)
			start := time.Now()
			b.Pause(time.Minute)
			synctest.Wait()
			store.fails(nil)
			calls(t, a, 1)
			calls(t, b, 1)
			assert.InDelta(t, tt.waits.Seconds(), time.Since(start).Seconds(), 1, "%v later", tt.after)
			time.Sleep(time.Second)
		})
	}
}

// A pause of a worker that has never reached the store is not ended by a Resume of before.
func TestResumeOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		a, b := fleet(t, store.Store, 1, steady(10)...)[0], fleet(t, store, 1, steady(10)...)[0]
		a.Pause(time.Hour)
		a.Resume()
		synctest.Wait()
		store.fails(down)
		calls(t, b, 1)
		start := time.Now()
		letGo(t, b, 1).ends(cruise.OutcomeThrottled, 0)
		b.queue.Locked(func(now clock.Instant) { b.queue.Pause(now, now.Add(time.Minute)) }) // as for a throttle of this worker alone
		store.fails(nil)
		calls(t, b, 1)
		assert.GreaterOrEqual(t, time.Since(start), time.Minute)
		b.queue.Locked(func(clock.Instant) { assert.Equal(t, int64(1), b.known.Resumes) })
		time.Sleep(time.Minute) // for the last syncs
	})
}
