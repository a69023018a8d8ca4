package shared

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/clock"
)

func TestStateSteps(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: 300 * time.Millisecond}
	ask := func(n int) Request { return Request{Law: law, Want: n, Least: 1, Count: 1, Epoch: 1} }
	const second, ms = time.Second, time.Millisecond
	type step struct {
		name string
		at   time.Duration
		q    Request
		want Reply // Slots, Wait, Span, Epoch, Pause and Rate are compared
	}
	told := func(q Request, change func(*Request)) Request {
		change(&q)
		return q
	}
	first := func(n int) Request { return told(ask(n), func(q *Request) { q.Epoch, q.Count = 0, 0 }) }
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"slots follow each other up to the horizon", []step{
			{"one", 0, first(1), Reply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"two more", 0, ask(2), Reply{Slots: 2, Wait: 100 * ms, Span: 200 * ms, Epoch: 1, Rate: 10e6}},
			{"half a second of them", 0, ask(100), Reply{Slots: 5, Wait: 300 * ms, Span: 500 * ms, Epoch: 1, Rate: 10e6}},
			{"as many as are free", 0, ask(100), Reply{Slots: 2, Wait: 800 * ms, Span: 200 * ms, Epoch: 1, Rate: 10e6}},
			{"none", 0, ask(1), Reply{Epoch: 1, Rate: 10e6}},
			{"one, later", 50 * ms, ask(1), Reply{Slots: 1, Wait: 950 * ms, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
		}},
		{"where calls wait, workers get a share each", []step{
			{"one", 0, told(first(1), func(q *Request) { q.Law.Initial = 100e6 }), Reply{Slots: 1, Span: 10 * ms, Epoch: 1, Rate: 100e6}},
			{"as many as it wants, up to half", 0, told(first(100), func(q *Request) { q.Epoch = 1 }), Reply{Slots: 49, Wait: 10 * ms, Span: 490 * ms, Epoch: 1, Rate: 100e6}},
			{"its half of half a second", 100 * ms, ask(100), Reply{Slots: 25, Wait: 400 * ms, Span: 250 * ms, Epoch: 1, Rate: 100e6}},
			{"no more of the rest", 100 * ms, ask(100), Reply{Slots: 17, Wait: 650 * ms, Span: 170 * ms, Epoch: 1, Rate: 100e6}},
		}},
		{"after a cut the first slot follows the last one of before at the new distance", []step{
			{"some succeed", 0, told(first(0), func(q *Request) { q.Successes = 1 }), Reply{Epoch: 1, Rate: 10e6}},
			{"two", second, ask(2), Reply{Slots: 2, Span: 200 * ms, Epoch: 1, Rate: 10e6}},
			{"throttled", second, told(ask(0), func(q *Request) { q.Throttled, q.Count = true, 0 }), Reply{Epoch: 2, Rate: 5e6}},
			{"one", second, told(ask(1), func(q *Request) { q.Epoch = 2 }), Reply{Slots: 1, Wait: 300 * ms, Span: 200 * ms, Epoch: 2, Rate: 5e6}},
		}},
		{"after a cut a worker that is alone goes on at once", []step{
			{"some succeed", 0, told(first(0), func(q *Request) { q.Successes = 1 }), Reply{Epoch: 1, Rate: 10e6}},
			{"eight", second, ask(8), Reply{Slots: 8, Span: 800 * ms, Epoch: 1, Rate: 10e6}},
			{"throttled", second, told(ask(0), func(q *Request) { q.Throttled = true }), Reply{Epoch: 2, Rate: 5e6}},
			{"one", second, told(ask(1), func(q *Request) { q.Epoch = 2 }), Reply{Slots: 1, Wait: 200 * ms, Span: 200 * ms, Epoch: 2, Rate: 5e6}},
		}},
		{"after a cut a worker lets another one use its slots until that hears of it", []step{
			{"some succeed", 0, told(first(0), func(q *Request) { q.Successes = 1 }), Reply{Epoch: 1, Rate: 10e6}},
			{"eight", second, ask(8), Reply{Slots: 8, Span: 800 * ms, Epoch: 1, Rate: 10e6}},
			{"throttled", second, told(ask(0), func(q *Request) { q.Throttled, q.Count = true, 0 }), Reply{Epoch: 2, Rate: 5e6}},
			{"one", second, told(ask(1), func(q *Request) { q.Epoch = 2 }), Reply{Slots: 1, Wait: 450 * ms, Span: 200 * ms, Epoch: 2, Rate: 5e6}},
		}},
		{"before the first throttle the rate grows by half in half a second", []step{
			{"ten", 0, first(10), Reply{Slots: 10, Span: second, Epoch: 1, Rate: 10e6}},
			{"half a second later", 500 * ms, told(ask(0), func(q *Request) { q.Successes = 5 }), Reply{Epoch: 1, Rate: 15e6}},
			{"an hour later, with little demand", time.Hour, told(ask(0), func(q *Request) { q.Successes = 5 }), Reply{Epoch: 1, Rate: 15e6}},
		}},
		{"nothing is saved up", []step{
			{"one", 0, first(1), Reply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"a minute later", time.Minute, ask(3), Reply{Slots: 3, Span: 300 * ms, Epoch: 1, Rate: 10e6}},
		}},
		{"a burst is saved up", []step{
			{"one", 0, told(first(1), func(q *Request) { q.Law.Burst = 3 }), Reply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"later", time.Minute, told(ask(3), func(q *Request) { q.Law.Burst = 3 }), Reply{Slots: 3, Wait: -200 * ms, Span: 300 * ms, Epoch: 1, Rate: 10e6}},
		}},
		{"what a call needs is given whole", []step{
			{"fifty", 0, told(first(50), func(q *Request) { q.Least = 50 }), Reply{Slots: 50, Span: 5 * second, Epoch: 1, Rate: 10e6}},
			{"not before", second, ask(1), Reply{Wait: 3 * second, Epoch: 1, Rate: 10e6}},
		}},
		{"pauses only extend", []step{
			{"pause", 0, told(first(0), func(q *Request) { q.Pause, q.NewPause = 5*second, true }), Reply{Wait: 5 * second, Pause: 5 * second, Epoch: 1, Rate: 10e6}},
			{"a shorter one", second, told(ask(1), func(q *Request) { q.Pause, q.NewPause = second, true }), Reply{Wait: 4 * second, Pause: 4 * second, Epoch: 1, Rate: 10e6}},
			{"a longer one", second, told(ask(1), func(q *Request) { q.Pause, q.NewPause = 9*second, true }), Reply{Wait: 9 * second, Pause: 9 * second, Epoch: 1, Rate: 10e6}},
			{"lifted", 2 * second, told(ask(1), func(q *Request) { q.Resume = true }), Reply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"known from before", 2 * second, told(ask(0), func(q *Request) { q.Pause = 8 * second }), Reply{Epoch: 1, Rate: 10e6}},
			{"a century", 2 * second, told(ask(0), func(q *Request) { q.Pause, q.NewPause = 100*clock.Year, true }), Reply{Wait: MaxPause, Pause: MaxPause, Epoch: 1, Rate: 10e6}},
		}},
		{"one cut for one congestion", []step{
			{"some succeed", 0, told(first(0), func(q *Request) { q.Successes = 1 }), Reply{Epoch: 1, Rate: 10e6}},
			{"throttled", second, told(ask(0), func(q *Request) { q.Throttled, q.Backoff = true, second }), Reply{Wait: 400 * ms, Pause: 400 * ms, Epoch: 2, Rate: 5e6}},
			{"of before", 3 * second, told(ask(0), func(q *Request) { q.Throttled = true }), Reply{Epoch: 2, Rate: 5e6}},
			{"with nothing delivered", 3 * second, told(ask(0), func(q *Request) { q.Epoch, q.Throttled, q.Backoff = 2, true, second }), Reply{Wait: 800 * ms, Pause: 800 * ms, Epoch: 3, Rate: 5e6}},
			{"too soon", 3500 * ms, told(ask(0), func(q *Request) { q.Epoch, q.Throttled = 3, true }), Reply{Wait: 300 * ms, Pause: 300 * ms, Epoch: 3, Rate: 5e6}},
			{"single calls at a closed door", 5 * second, told(ask(9), func(q *Request) { q.Epoch = 3 }), Reply{Slots: 1, Span: second, Epoch: 3, Rate: 5e6}},
		}},
		{"a lost state is told anew", []step{
			{"claim", 0, told(ask(1), func(q *Request) { q.Epoch, q.Rate, q.Ceiling, q.Pause = 7, 40e6, 50e6, second }), Reply{Wait: second, Pause: second, Epoch: 7, Rate: 40e6}},
			{"an older one", 0, told(ask(0), func(q *Request) { q.Epoch, q.Rate = 6, 90e6 }), Reply{Wait: second, Pause: second, Epoch: 7, Rate: 40e6}},
			{"a newer one", 0, told(ask(0), func(q *Request) { q.Epoch, q.Rate = 8, 20e6 }), Reply{Wait: second, Pause: second, Epoch: 8, Rate: 20e6}},
			{"a new worker", second, first(1), Reply{Slots: 1, Span: 50 * ms, Epoch: 8, Rate: 20e6}},
		}},
		{"the clock goes back by an hour", []step{
			{"pause", time.Hour, told(first(0), func(q *Request) { q.Pause, q.NewPause = 5*second, true }), Reply{Wait: 5 * second, Pause: 5 * second, Epoch: 1, Rate: 10e6}},
			{"back", 0, ask(1), Reply{Wait: 5 * second, Pause: 5 * second, Epoch: 1, Rate: 10e6}},
			{"slots", 5 * second, ask(1), Reply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
		}},
		{"a rate far below the ceiling grows, by whatever factor it is cut", []step{
			{"claim", 0, told(first(10), func(q *Request) { q.Epoch, q.Rate, q.Ceiling = 2, 10e6, 100e6 }), Reply{Slots: 10, Span: second, Epoch: 2, Rate: 10e6}},
			{"in use", second, told(ask(0), func(q *Request) { q.Epoch, q.Successes, q.Law.Decrease = 2, 10, 999_999 }), Reply{Epoch: 2, Rate: 12.5e6}},
		}},
		{"the lowest maximum holds", []step{
			{"one", 0, first(1), Reply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"lower", 0, told(ask(0), func(q *Request) { q.Law.Max = 5e6 }), Reply{Epoch: 2, Rate: 5e6}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s State
			for _, st := range tt.steps {
				got := s.Sync(st.at, st.q)
				assert.Equal(t, st.want, Reply{Slots: got.Slots, Wait: got.Wait, Span: got.Span, Epoch: got.Epoch, Pause: got.Pause, Rate: got.Rate}, st.name)
			}
		})
	}
}

// Whatever workers do and tell, slots are never closer to each other than the
// rate allows, no pause gets shorter, and nothing leaves its bounds.
func FuzzState(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		rng := rand.New(rand.NewPCG(a, b))
		law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: 300 * time.Millisecond}
		if a%2 == 0 {
			law.Decrease, law.Increase, law.Forgive = 1+rng.Int64N(999_999), 1+rng.Int64N(1e6), 1+rng.Int64N(20)
		}
		var s State
		var now, until time.Duration
		last := time.Duration(math.MinInt64 / 2)
		for range 2000 {
			now += time.Duration(rng.Int64N(1 << (10 + rng.IntN(22))))
			q := randomRequest(rng, law, &s)
			epoch := s.Epoch
			r := s.Sync(now, q)
			require.NoError(t, r.check(q))
			require.LessOrEqual(t, s.Rate, law.Max)
			require.GreaterOrEqual(t, s.Rate, law.Min)
			if r.Epoch != epoch {
				last = math.MinInt64 / 2 // a cut voids slots
			}
			if q.Resume {
				until = 0
			}
			t0 := now.Truncate(time.Microsecond)
			require.GreaterOrEqual(t, r.Pause, until-t0)
			until = t0 + r.Pause
			if r.Slots > 0 {
				gap := 1e12 / float64(r.Rate)
				require.GreaterOrEqual(t, float64((t0+r.Wait-last)/time.Microsecond), gap-1)
				require.GreaterOrEqual(t, float64(r.Span/time.Microsecond), float64(r.Slots)*gap-1e-6)
				last = t0 + r.Wait + r.Span - r.Span/time.Duration(r.Slots)
			}
		}
	})
}

func randomRequest(rng *rand.Rand, law Law, s *State) Request {
	q := Request{Law: law, Want: rng.IntN(100), Epoch: max(0, s.Epoch-int64(rng.IntN(2))), Resumes: s.Resumes, Count: s.Count - int64(rng.IntN(2))}
	q.Least = min(q.Want, 1+rng.IntN(3))
	q.Rate, q.Ceiling = 1+rng.Int64N(1e9), rng.Int64N(1e9)
	if rng.IntN(3) == 0 {
		q.Successes = rng.Int64N(50)
	}
	if rng.IntN(3) == 0 {
		q.Failed = rng.Int64N(50)
	}
	if rng.IntN(10) == 0 {
		q.Throttled, q.Backoff = true, time.Duration(rng.Int64N(int64(time.Second)))
	}
	if rng.IntN(20) == 0 {
		q.Pause, q.NewPause = time.Duration(rng.Int64N(int64(3*time.Second))), rng.IntN(2) == 0
	}
	q.Resume = rng.IntN(100) == 0
	return q
}

// A pause that was ended stays so for as long as a worker may know of it.
func TestStateRemembersALiftedPause(t *testing.T) {
	var s State
	s.Sync(0, Request{Law: Law{Min: 1, Max: 1e6, Initial: 1e6}, Pause: time.Hour, NewPause: true})
	s.Sync(time.Second, Request{Law: Law{Min: 1, Max: 1e6, Initial: 1e6}, Resume: true})
	assert.Equal(t, time.Hour.Microseconds(), s.Lifted)
	assert.LessOrEqual(t, s.Until, time.Second.Microseconds())
}

// A state that no sync leaves behind, as a store may be damaged, is begun anew by what the
// worker knows.
func TestStateThatIsDamaged(t *testing.T) {
	law := Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: time.Second}
	for name, damage := range map[string]func(s *State){
		"rate":       func(s *State) { s.Rate = 0 },
		"ceiling":    func(s *State) { s.Ceiling = -1 },
		"cause":      func(s *State) { s.Why = whyQuota + 1 },
		"no cause":   func(s *State) { s.Why = -1 },
		"level":      func(s *State) { s.Level = -1 },
		"resumes":    func(s *State) { s.Resumes = -1 },
		"cap":        func(s *State) { s.Cap = -1 },
		"cap before": func(s *State) { s.CapBefore = -1 },
		"pause":      func(s *State) { s.Until = s.At + micros(MaxPause) + 1 },
		"lifted":     func(s *State) { s.Lifted = s.At + micros(MaxPause) + 1 },
		"next slot":  func(s *State) { s.Tat = s.At + 100*yearMicros + 1 },
		"count":      func(s *State) { s.CountEnd = s.At + countTime + 1 },
		"cut":        func(s *State) { s.CutAt = s.At + 1 },
		"quota":      func(s *State) { s.QuotaAt = s.At + 1 },
		"row":        func(s *State) { s.Row = -1 },
		"used":       func(s *State) { s.Used = -1 },
		"step":       func(s *State) { s.SteppedAt = s.At + 1 },
		"lease":      func(s *State) { s.Lease = s.At + stepTime + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			at := time.Duration(1e15) * time.Microsecond
			known := s.Sync(at, Request{Law: law, Epoch: 7, Rate: 20e6})
			s.Errs = 1000
			damage(&s)
			r := s.Sync(at, Request{Law: law, Epoch: known.Epoch, Rate: known.Rate, Count: known.Count, Want: 1, Least: 1})
			assert.Zero(t, s.Errs)
			assert.NoError(t, r.check(Request{Want: 1, Least: 1}))
			assert.Equal(t, []int64{7, 20e6, 0}, []int64{r.Epoch, r.Rate, int64(r.Pause)})
		})
	}
}
