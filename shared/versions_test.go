package shared

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/replay"
)

// A mixedStore is one key at which workers of two versions meet. The older one knows nothing of
// the field that was added last. As in Redis, it leaves alone a field that it does not know, and a
// state that lacks a field begins anew.
type mixedStore struct {
	mu    sync.Mutex // guards the fields below
	begun clock.Instant
	state State
	whole bool // a newer worker has been there
	anew  int  // how often a newer one found a state without its field
}

func (m *mixedStore) begunAnew() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.anew
}

type versionOf struct {
	*mixedStore
	older bool
}

func (v versionOf) Sync(_ context.Context, q Request) (Reply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	same := v.state.HintSame
	switch {
	case v.older:
		v.state.HintSame = 0
	case !v.whole && v.state.Epoch > 0:
		v.anew++
		v.state.Epoch = 0
	}
	r := v.state.Sync(clock.Now().Sub(v.begun), q)
	if v.older {
		v.state.HintSame = same
	}
	v.whole = v.whole || !v.older
	return r, nil
}

// While a program is rolled out, its old workers and its new ones share one rate: no kind starves
// and together they are as fast as the server allows, and no faster.
func TestWorkersOfTwoVersions(t *testing.T) {
	const workers = 10
	for name, older := range map[string]func(i int) bool{
		"half of them older": func(i int) bool { return i%2 == 0 },
		"one older":          func(i int) bool { return i == 0 },
		"one newer":          func(i int) bool { return i > 0 },
	} {
		for _, limit := range []float64{20, 200} {
			t.Run(name, func(t *testing.T) {
				replay.Test(t, func(t *testing.T) {
					m := &mixedStore{begun: clock.Now()}
					var all []cruise.Learner
					for i := range workers {
						all = append(all, cruise.Must(New(busyStore(versionOf{m, older(i)}))))
					}
					f := simulate(all, newTokenServer(limit), 0, time.Minute, 3*time.Minute)
					t.Logf("use %.2f, throttled %.2f %%, Jain %.3f, worst second %.2f", f.use, 100*f.throttled, f.jain, f.worst)
					assert.GreaterOrEqual(t, f.use, .65)
					assert.LessOrEqual(t, f.throttled, .03)
					assert.LessOrEqual(t, f.worst, 1.3)
					assert.GreaterOrEqual(t, f.jain, .85)
					for i, l := range all {
						s := l.(*Limiter).Stats()
						assert.Zero(t, s.Failures, "worker %d: %v", i, s.Err)
						assert.Equal(t, workers, s.Workers)
					}
				})
			})
		}
	}
}

// A newer worker that meets a state without its field begins it anew, once, with the rate that
// workers know: they go on where they were.
func TestNewerWorkerMeetsAnOlderState(t *testing.T) {
	replay.Test(t, func(t *testing.T) {
		m := &mixedStore{begun: clock.Now()}
		srv := newTokenServer(50)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		older := cruise.Must(New(versionOf{m, true}))
		load(ctx, &wg, older, srv, 20)
		time.Sleep(time.Minute)
		known := older.Limit()
		newer := cruise.Must(New(versionOf{m, false}))
		load(ctx, &wg, newer, srv, 20)
		time.Sleep(2 * time.Second)
		assert.Equal(t, 1, m.begunAnew())
		assert.InDelta(t, float64(known), float64(older.Limit()), .55*float64(known), "the rate that was known, or half of it after a throttle")
		wg.Wait()
		assert.Equal(t, 1, m.begunAnew())
		assert.Zero(t, older.Stats().Failures+newer.Stats().Failures)
		assert.InDelta(t, 50, float64(newer.Limit()), 20)
	})
}
