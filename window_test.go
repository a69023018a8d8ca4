package cruise

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

func TestNewSlidingWindow(t *testing.T) {
	for _, tt := range []struct {
		name    string
		windows []Window
		want    string // in the error; "" for none
	}{
		{"one", []Window{{100, 100 * time.Second}}, ""},
		{"two", []Window{{10, time.Second}, {1000, 24 * time.Hour}}, ""},
		{"the longest first", []Window{{1000, 24 * time.Hour}, {10, time.Second}}, ""},
		{"largest", []Window{{math.MaxInt32, clock.Farthest}}, ""},
		{"smallest", []Window{{1, 1}}, ""},
		{"none", nil, "no window"},
		{"no calls", []Window{{0, time.Second}}, "N 0"},
		{"negative calls", []Window{{-1, time.Second}}, "N -1"},
		{"no time", []Window{{1, 0}}, "Per 0s"},
		{"negative time", []Window{{1, -1}}, "Per -1ns"},
		{"longest time", []Window{{1, math.MaxInt64}}, "Per"},
		{"zero", []Window{{}}, "N 0"},
		{"twice", []Window{{1, time.Second}, {2, time.Second}}, "windows 1 and 2"},
		{"second is wrong", []Window{{1, time.Second}, {0, time.Minute}}, "window 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := NewSlidingWindow(tt.windows...)
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want != "" && (err == nil || s != nil || !strings.Contains(err.Error(), tt.want)):
				t.Fatalf("got %v, %v, want an error with %q", s, err, tt.want)
			}
		})
	}
}

func FuzzNewSlidingWindow(f *testing.F) {
	f.Add(1, int64(time.Second), 1000, int64(time.Hour), 3)
	f.Add(0, int64(-1), math.MinInt, int64(math.MinInt64), math.MaxInt)
	f.Add(math.MaxInt, int64(math.MaxInt64), math.MaxInt32, int64(1), math.MinInt)
	f.Fuzz(func(t *testing.T, n1 int, per1 int64, n2 int, per2 int64, cost int) {
		s, err := NewSlidingWindow(Window{n1, time.Duration(per1)}, Window{n2, time.Duration(per2)})
		if err != nil {
			return
		}
		now := clock.Instant(1)
		if wait := s.spans.atLeast(now, 0, max(1, cost)); wait < 0 {
			t.Fatalf("negative wait %v", wait)
		}
		if cost = max(1, cost); cost > s.spans.most {
			cost = s.spans.most
		}
		if wait := s.spans.pass(now, cost); wait != 0 {
			t.Fatalf("a fresh window made cost %d wait %v", cost, wait)
		}
		wait := s.spans.pass(now, cost)
		if wait < 0 || wait == clock.Never {
			t.Fatalf("then %v", wait)
		}
		if wait > 0 {
			if least := s.spans.atLeast(now, 0, cost); least > wait {
				t.Fatalf("at least %v, but %v is enough", least, wait)
			}
			if again := s.spans.pass(now.Add(wait), cost); again != 0 {
				t.Fatalf("waited %v, then %v", wait, again)
			}
		}
	})
}

// went is a call in a test.
type went struct {
	at time.Duration
	n  int
}

// overfull returns the first window that holds too much.
func overfull(calls []went, w Window) (from time.Duration, held int, ok bool) {
	last, sum := 0, 0
	for i, first := range calls {
		for last < len(calls) && calls[last].at-first.at < w.Per {
			sum += calls[last].n
			last++
		}
		if sum > w.N {
			return first.at, sum, true
		}
		sum -= calls[i].n
	}
	return 0, 0, false
}

func TestSlidingWindowNeverHoldsMore(t *testing.T) {
	for _, tt := range []struct {
		name    string
		windows []Window
	}{
		{"one call", []Window{{1, time.Second}}},
		{"a few", []Window{{7, time.Second}}},
		{"a few and a day", []Window{{10, time.Second}, {1000, 24 * time.Hour}}},
		{"three", []Window{{3, 10 * ms}, {20, 400 * ms}, {50, time.Minute}}},
		{"tiny", []Window{{5, 3}}},
		{"most that is exact", []Window{{ExactCalls, time.Second}}},
		{"approximate", []Window{{25_000, time.Second}}},
		{"approximate and exact", []Window{{100, 10 * ms}, {30_000, 4 * time.Second}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(8) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				s := newSpans(tt.windows)
				per := tt.windows[0].Per
				var calls []went
				for at := time.Duration(0); len(calls) < 20_000; {
					n := 1
					if rnd.IntN(4) == 0 {
						n = 1 + rnd.IntN(s.most)
					}
					wait := s.pass(clock.Instant(at), n)
					if wait < 0 {
						t.Fatalf("seed %d: wait %v", seed, wait)
					}
					if wait == 0 {
						calls = append(calls, went{at, n})
					}
					switch rnd.IntN(8) {
					case 0:
						at += time.Duration(rnd.Int64N(int64(per) + 1))
					case 1:
						at += time.Duration(rnd.Int64N(int64(per)/1000 + 2))
					default:
						at += wait
					}
				}
				for _, w := range tt.windows {
					if from, held, bad := overfull(calls, w); bad {
						t.Fatalf("seed %d: the window of %v from %v holds %d", seed, w, from, held)
					}
				}
			}
		})
	}
}

// Whoever has waited as long as told may go, and not a nanosecond before: what
// the slow model of all calls says too.
func TestSlidingWindowWaitsNoLongerThanNeeded(t *testing.T) {
	windows := []Window{{6, time.Second}, {20, 10 * time.Second}}
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		s := newSpans(windows)
		var calls []went
		at := time.Duration(0)
		for range 300 {
			n := 1 + rnd.IntN(6)
			want := time.Duration(0)
			for _, w := range windows {
				want = max(want, modelWait(calls, w, at, n))
			}
			if least := s.atLeast(clock.Instant(at), 0, n); least != want {
				t.Fatalf("seed %d: at least %v for %d at %v, want %v", seed, least, n, at, want)
			}
			got := s.pass(clock.Instant(at), n)
			if got != want {
				t.Fatalf("seed %d: wait %v for %d at %v, want %v", seed, got, n, at, want)
			}
			if got == 0 {
				calls = append(calls, went{at, n})
			}
			at += time.Duration(rnd.Int64N(int64(300 * ms)))
		}
	}
}

// modelWait tries every moment at which something leaves the window.
func modelWait(calls []went, w Window, at time.Duration, n int) time.Duration {
	fits := func(at time.Duration) bool {
		sum := n
		for _, c := range calls {
			if at-c.at < w.Per {
				sum += c.n
			}
		}
		return sum <= w.N
	}
	if fits(at) {
		return 0
	}
	for _, c := range calls {
		if then := c.at + w.Per; then > at && fits(then) {
			return then - at
		}
	}
	return clock.Never
}

// A full approximate window gives a call back at most a ten thousandth of its
// length late.
func TestSlidingWindowApproximation(t *testing.T) {
	for _, tt := range []struct {
		name string
		w    Window
		step time.Duration // between calls that are offered
	}{
		{"evenly", Window{50_000, time.Second}, 7 * time.Microsecond},
		{"in bursts", Window{20_000, time.Second}, 300 * time.Microsecond},
		{"all at once", Window{1 << 20, time.Minute}, time.Second},
		{"shorter than it has grains", Window{20_000, 5 * time.Microsecond}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSpans([]Window{tt.w})
			late := (tt.w.Per + ExactCalls - 1) / ExactCalls
			var calls []went
			oldest, used := 0, 0 // of what an exact window holds
			burst := max(1, int(tt.step*time.Duration(tt.w.N)/tt.w.Per))
			for at := time.Duration(0); len(calls) < 150_000 && at < 3*tt.w.Per; at += tt.step {
				for oldest < len(calls) && at-calls[oldest].at >= tt.w.Per+late {
					used -= calls[oldest].n
					oldest++
				}
				switch wait := s.pass(clock.Instant(at), burst); {
				case wait == 0:
					calls = append(calls, went{at, burst})
					used += burst
				case used+burst <= tt.w.N:
					t.Fatalf("at %v: waits %v with only %d in a window longer by %v", at, wait, used, late)
				}
			}
			if from, held, bad := overfull(calls, tt.w); bad {
				t.Fatalf("the window from %v holds %d", from, held)
			}
			if got := len(s.all[0].ring); got > 1<<14 {
				t.Errorf("%d entries of memory", got)
			}
		})
	}
}

func TestSlidingWindowWaits(t *testing.T) {
	type step struct {
		at   time.Duration // when the call comes
		n    int
		want time.Duration // when it goes
	}
	for _, tt := range []struct {
		name    string
		windows []Window
		steps   []step
	}{
		{"up to N at once", []Window{{3, time.Second}}, []step{{0, 1, 0}, {0, 1, 0}, {0, 1, 0}, {0, 1, time.Second}}},
		{"any position, not only aligned ones", []Window{{2, time.Second}}, []step{
			{0, 1, 0}, {900 * ms, 1, 900 * ms}, {950 * ms, 1, time.Second}, {1100 * ms, 1, 1900 * ms},
		}},
		{"exact to the nanosecond", []Window{{2, 100 * time.Second}}, []step{{0, 1, 0}, {1, 1, 1}, {2, 1, 100 * time.Second}, {3, 1, 100*time.Second + 1}}},
		{"100 in 100 s", []Window{{100, 100 * time.Second}}, []step{{0, 99, 0}, {40 * time.Second, 1, 40 * time.Second}, {50 * time.Second, 1, 100 * time.Second}}},
		{"costs above 1", []Window{{10, time.Second}}, []step{{0, 6, 0}, {500 * ms, 4, 500 * ms}, {600 * ms, 7, 1500 * ms}}},
		{"the longer window binds", []Window{{2, time.Second}, {3, time.Minute}}, []step{{0, 1, 0}, {0, 1, 0}, {0, 1, time.Second}, {0, 1, time.Minute}}},
		{"free costs nothing", []Window{{1, time.Second}}, []step{{0, 0, 0}, {0, 1, 0}, {0, 0, 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := Must(NewSlidingWindow(tt.windows...))
				if n := s.Waiting(); n != 0 {
					t.Errorf("%d wait before the first call", n)
				}
				start := time.Now()
				var wg sync.WaitGroup
				for i, step := range tt.steps {
					time.Sleep(time.Until(start.Add(step.at)))
					wg.Go(func() {
						if err := s.WaitN(t.Context(), step.n); err != nil {
							t.Errorf("call %d: %v", i+1, err)
						}
						if got := time.Since(start); got != step.want {
							t.Errorf("call %d went at %v, want %v", i+1, got, step.want)
						}
					})
					synctest.Wait()
				}
				wg.Wait()
				if n := s.Waiting(); n != 0 {
					t.Errorf("%d still wait", n)
				}
			})
		})
	}
}

func TestSlidingWindowRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Must(NewSlidingWindow(Window{5, time.Minute}, Window{3, time.Second}))
		if err := s.WaitN(t.Context(), 4); !errors.Is(err, ErrCost) {
			t.Errorf("cost above the smallest N: %v", err)
		}
		if err := s.WaitN(t.Context(), -1); err == nil || errors.Is(err, ErrCost) {
			t.Errorf("negative cost: %v", err)
		}
		var none context.Context
		if err := s.WaitN(none, 1); err == nil {
			t.Error("nil context")
		}
		if got := s.Free(); got != 3 {
			t.Errorf("refusals cost something: %d free", got)
		}
		_ = s.WaitN(t.Context(), 3)
		if got := s.Free(); got != 0 {
			t.Errorf("%d free of the shorter window", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-1)
		defer cancel()
		start := time.Now()
		err := s.WaitN(ctx, 1)
		if !errors.Is(err, ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if e, ok := errors.AsType[*Error](err); !ok || e.RetryAfter != time.Second {
			t.Errorf("got %#v", err)
		}
		time.Sleep(time.Second)
		if got := s.Free(); got != 2 {
			t.Errorf("%d free of the longer window", got)
		}
	})
}

// Calls that will have left the window by the end of a pause don't matter to who comes
// in it, but those ahead do.
func TestSlidingWindowRefusesInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Must(NewSlidingWindow(Window{3, time.Second}))
		_ = s.WaitN(t.Context(), 3)
		s.Pause(10 * time.Second)
		go func() { _ = s.WaitN(t.Context(), 3) }()
		synctest.Wait()
		start := time.Now()
		if err := s.WaitN(within(t, 10500*ms), 1); !errors.Is(err, ErrDeadline) || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
}

// The calls that are spread after a pause are refused at once too if they cannot be in time.
func TestSlidingWindowRefusesWhatIsSpread(t *testing.T) {
	for _, tt := range []struct {
		name        string
		went, ahead int // after the pause, and in line
		within      time.Duration
	}{
		{"in the pause", 0, 0, time.Second},
		{"in the pause, behind others", 0, 3, 1300 * ms},
		{"in the pause, behind a whole window", 0, 10, 2 * time.Second},
		{"behind one that went", 1, 0, 100 * ms},
		{"behind one that went, and others", 1, 3, 400 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := Must(NewSlidingWindow(Window{10, time.Second}))
				s.Pause(time.Second)
				for range tt.went {
					assert.NoError(t, s.WaitN(t.Context(), 1))
				}
				for range tt.ahead {
					go func() { _ = s.WaitN(t.Context(), 1) }()
				}
				synctest.Wait()
				start := time.Now()
				assert.ErrorIs(t, s.WaitN(within(t, tt.within), 1), ErrDeadline)
				assert.Zero(t, time.Since(start), "it waited in vain")
				assert.NoError(t, s.WaitN(within(t, tt.within+1), 1))
				assert.Equal(t, tt.within, time.Since(start))
			})
		})
	}
}

// What can't be said in a Duration is a wait without end.
func TestSlidingWindowOfCenturies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Must(NewSlidingWindow(Window{1, clock.Farthest}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_ = s.WaitN(ctx, 1)
		for range 2 {
			go func() { _ = s.WaitN(ctx, 1) }()
			synctest.Wait()
		}
		refused := func(name string) {
			start := time.Now()
			if err := s.WaitN(within(t, clock.Year), 1); !errors.Is(err, ErrDeadline) || time.Since(start) != 0 {
				t.Errorf("%s: got %v after %v", name, err, time.Since(start))
			}
		}
		refused("behind two")
		s.Pause(clock.Farthest / 2)
		refused("in a pause, behind two")
		go func() { _ = s.WaitN(ctx, 1) }()
		synctest.Wait()
		refused("behind three")
	})
}

func TestSlidingWindowLearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Must(NewSlidingWindow(Window{10, time.Second}))
		_ = s.WaitN(t.Context(), 1)
		s.Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: 5 * time.Second})
		start := time.Now()
		for i := range 4 { // spread after the pause
			_ = s.WaitN(t.Context(), 1)
			if got, want := time.Since(start), 5*time.Second+time.Duration(i)*100*ms; got != want {
				t.Errorf("call %d went at %v, want %v", i+1, got, want)
			}
		}
		time.Sleep(time.Second)
		again := time.Now()
		for range 10 {
			_ = s.WaitN(t.Context(), 1)
		}
		if got := time.Since(again); got != 0 {
			t.Errorf("still spread a window later: %v", got)
		}
		s.Learn(Feedback{Outcome: OutcomeQuotaExhausted, Cost: 1, RetryAfter: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.WaitN(ctx, 1); !errors.Is(err, ErrDeadline) {
			t.Errorf("quota exhausted: %v", err)
		}
		s.Resume()
		if err := s.WaitN(ctx, 1); err != nil {
			t.Errorf("resumed: %v", err)
		}
		time.Sleep(time.Second)
		s.Resume() // of no pause, which spreads nothing
		again = time.Now()
		for range 10 {
			_ = s.WaitN(t.Context(), 1)
		}
		if got := time.Since(again); got != 0 {
			t.Errorf("spread without a pause: %v", got)
		}
	})
}

func TestZeroPacers(t *testing.T) {
	var s SlidingWindow
	var d DelayLimiter
	for _, l := range []Learner{&s, &d} {
		if err := l.WaitN(t.Context(), 1); !errors.Is(err, errZeroLimiter) {
			t.Errorf("%T: %v", l, err)
		}
		l.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, RetryAfter: time.Second})
	}
	s.Pause(time.Second)
	d.Pause(time.Second)
	s.Resume()
	d.Resume()
	if s.Free() != 0 || s.Waiting() != 0 || d.Delay() != 0 {
		t.Error("not nothing")
	}
}

// A window keeps no calls that have left it.
func TestSlidingWindowForgets(t *testing.T) {
	s := newSpans([]Window{{10, time.Second}, {100, time.Minute}})
	rnd := rand.New(rand.NewPCG(1, 3))
	now, calls := clock.Instant(1), 0
	for calls < 2000 {
		if s.pass(now, 1) == 0 {
			calls++
		}
		for i := range s.all {
			w := &s.all[i]
			if w.size > w.n {
				t.Fatalf("%d calls are kept of a window of %d", w.size, w.n)
			}
			if w.size > 0 && now.Sub(w.oldest(0).at) >= w.per {
				t.Fatalf("a call of %v ago is kept of a window of %v", now.Sub(w.oldest(0).at), w.per)
			}
		}
		now = now.Add(50 * ms)
		if rnd.IntN(20) == 0 { // so that many leave at once, or all
			now = now.Add(time.Duration(rnd.Int64N(int64(70 * time.Second))))
		}
	}
}

func TestSlidingWindowPassesWithoutAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Must(NewSlidingWindow(Window{1000, time.Millisecond}))
		ctx := t.Context()
		for range 2000 {
			_ = s.WaitN(ctx, 1)
		}
		time.Sleep(2 * time.Millisecond)
		if got := testing.AllocsPerRun(500, func() { _ = s.WaitN(ctx, 1) }); got != 0 {
			t.Errorf("%v allocations", got)
		}
	})
}

// What a full window costs each call that goes, and each one that waits when a pause comes.
func BenchmarkSlidingWindow(b *testing.B) {
	const n, per = ExactCalls, 10 * time.Second
	const step = clock.Instant(per / n)
	full := func() (s spans, now clock.Instant) {
		s = newSpans([]Window{{n, per}})
		for range n {
			now += step
			s.pass(now, 1)
		}
		return s, now
	}
	b.Run("a call", func(b *testing.B) {
		s, now := full()
		for b.Loop() {
			now += step
			if wait := s.pass(now, 1); wait > 0 {
				b.Fatal(wait)
			}
		}
	})
	b.Run("a pause, for each who waits", func(b *testing.B) {
		s, now := full()
		for b.Loop() {
			if wait := s.atLeast(now.Add(2*per), 0, 1); wait > 0 {
				b.Fatal(wait)
			}
		}
	})
}

// Asking how long a wait will be at least, past a pause, changes nothing.
func TestWindowHoldsThroughALiftedPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Must(NewSlidingWindow(Window{2, 10 * time.Second}))
		start := time.Now()
		if err := s.WaitN(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s.Pause(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if err := s.WaitN(ctx, 1); err != nil || time.Since(start) != 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
		synctest.Wait()
		s.Resume()
		all.Wait()
	})
}

// What comes after a pause is spread over the shortest window, whichever was named first.
func TestSlidingWindowsAfterAPause(t *testing.T) {
	short, long := Window{N: 2, Per: time.Second}, Window{N: 100, Per: 20 * time.Second}
	for _, windows := range [][]Window{{short, long}, {long, short}} {
		synctest.Test(t, func(t *testing.T) {
			l := Must(NewSlidingWindow(windows...))
			l.Pause(time.Second)
			begin := time.Now()
			for range 2 {
				assert.NoError(t, l.WaitN(t.Context(), 1))
			}
			assert.Equal(t, 1500*time.Millisecond, time.Since(begin))
		})
	}
}

// What comes after a pause is spread over a minute at most, not over a day.
func TestSlidingWindowOfADayAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Must(NewSlidingWindow(Window{N: 600, Per: 24 * time.Hour}))
		l.Pause(time.Second)
		begin := time.Now()
		for range 600 {
			if err := l.WaitN(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := time.Since(begin), 61*time.Second-100*ms; got != want {
			t.Errorf("600 calls took %v, want %v", got, want)
		}
	})
}
