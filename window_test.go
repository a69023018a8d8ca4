package cruise

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
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
		{"no calls", []Window{{0, time.Second}}, "Calls 0"},
		{"negative calls", []Window{{-1, time.Second}}, "Calls -1"},
		{"no time", []Window{{1, 0}}, "Per 0s"},
		{"negative time", []Window{{1, -1}}, "Per -1ns"},
		{"longest time", []Window{{1, math.MaxInt64}}, "Per"},
		{"zero", []Window{{}}, "Calls 0"},
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
		if wait := s.windows.AtLeast(now, 0, max(1, cost)); wait < 0 {
			t.Fatalf("negative wait %v", wait)
		}
		if cost = max(1, cost); cost > s.windows.MaxCost() {
			cost = s.windows.MaxCost()
		}
		pass := func(now clock.Instant) time.Duration {
			wait := s.windows.Peek(now, cost)
			if wait == 0 {
				s.windows.Take(now, cost)
			}
			return wait
		}
		if wait := pass(now); wait != 0 {
			t.Fatalf("a fresh window made cost %d wait %v", cost, wait)
		}
		wait := pass(now)
		if wait < 0 || wait == clock.Never {
			t.Fatalf("then %v", wait)
		}
		if wait > 0 {
			if least := s.windows.AtLeast(now, 0, cost); least > wait {
				t.Fatalf("at least %v, but %v is enough", least, wait)
			}
			if again := pass(now.Add(wait)); again != 0 {
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
		if sum > w.Calls {
			return first.at, sum, true
		}
		sum -= calls[i].n
	}
	return 0, 0, false
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
			t.Errorf("cost above the smallest Calls: %v", err)
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
func TestSlidingWindowRefusesASpreadCall(t *testing.T) {
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

func TestZeroSlidingWindow(t *testing.T) {
	var s SlidingWindow
	if err := s.WaitN(t.Context(), 1); !errors.Is(err, limits.ErrZero) {
		t.Error(err)
	}
	s.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, RetryAfter: time.Second})
	s.Pause(time.Second)
	s.Resume()
	if s.Free() != 0 || s.Waiting() != 0 {
		t.Error("not nothing")
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
	short, long := Window{Calls: 2, Per: time.Second}, Window{Calls: 100, Per: 20 * time.Second}
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
		l := Must(NewSlidingWindow(Window{Calls: 600, Per: 24 * time.Hour}))
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
