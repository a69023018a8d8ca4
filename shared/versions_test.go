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

// A mixedStore is one key at which workers of two versions meet. Neither can read the memory of the
// other's law.
type mixedStore struct {
	mu    sync.Mutex // guards the fields below
	begun clock.Instant
	state State
}

type versionOf struct {
	*mixedStore
	older bool
}

func (v versionOf) Sync(_ context.Context, q Request) (Reply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	other := func() {
		if v.older && len(v.state.Law) > header {
			v.state.Law[header] ^= 0xff // the version
		}
	}
	other()
	defer other()
	return v.state.Sync(clock.Now().Sub(v.begun), q), nil
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
					assert.LessOrEqual(t, f.worst, 1.5)
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
