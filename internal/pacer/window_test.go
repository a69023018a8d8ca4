package pacer

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A went is a call that went in a test.
type went struct {
	at time.Duration
	n  int
}

// overfull returns the first window that holds more than N calls.
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

func TestWindowsNeverHoldMore(t *testing.T) {
	for _, tt := range []struct {
		name    string
		windows []Window
	}{
		{"one call", []Window{{1, time.Second}}},
		{"a few", []Window{{7, time.Second}}},
		{"a few and a day", []Window{{10, time.Second}, {1000, 24 * time.Hour}}},
		{"three", []Window{{3, 10 * time.Millisecond}, {20, 400 * time.Millisecond}, {50, time.Minute}}},
		{"tiny", []Window{{5, 3}}},
		{"most that is exact", []Window{{ExactCalls, time.Second}}},
		{"approximate", []Window{{25_000, time.Second}}},
		{"approximate and exact", []Window{{100, 10 * time.Millisecond}, {30_000, 4 * time.Second}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(8) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				s := NewWindows(tt.windows)
				per := tt.windows[0].Per
				var calls []went
				for at := time.Duration(0); len(calls) < 20_000; {
					n := 1
					if rnd.IntN(4) == 0 {
						n = 1 + rnd.IntN(s.MaxCost())
					}
					wait := pass(&s, clock.Instant(at), n)
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

// A call may go after the wait that it was told and not a nanosecond earlier. A slow model
// that keeps all calls agrees.
func TestWindowsWaitNoLongerThanNeeded(t *testing.T) {
	windows := []Window{{6, time.Second}, {20, 10 * time.Second}}
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		s := NewWindows(windows)
		var calls []went
		at := time.Duration(0)
		for range 300 {
			n := 1 + rnd.IntN(6)
			want := time.Duration(0)
			for _, w := range windows {
				want = max(want, modelWait(calls, w, at, n))
			}
			if least := s.AtLeast(clock.Instant(at), 0, n); least != want {
				t.Fatalf("seed %d: at least %v for %d at %v, want %v", seed, least, n, at, want)
			}
			got := pass(&s, clock.Instant(at), n)
			if got != want {
				t.Fatalf("seed %d: wait %v for %d at %v, want %v", seed, got, n, at, want)
			}
			if got == 0 {
				calls = append(calls, went{at, n})
			}
			at += time.Duration(rnd.Int64N(int64(300 * time.Millisecond)))
		}
	}
}

// modelWait tries every moment at which a call leaves the window.
func modelWait(calls []went, w Window, at time.Duration, n int) time.Duration {
	fits := func(at time.Duration) bool {
		sum := n
		for _, c := range calls {
			if at-c.at < w.Per {
				sum += c.n
			}
		}
		return sum <= w.Calls
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

// A full approximate window frees a call at most a ten thousandth of its length late.
func TestWindowsApproximation(t *testing.T) {
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
			s := NewWindows([]Window{tt.w})
			late := (tt.w.Per + ExactCalls - 1) / ExactCalls
			var calls []went
			oldest, used := 0, 0 // of an exact window
			burst := max(1, int(tt.step*time.Duration(tt.w.Calls)/tt.w.Per))
			for at := time.Duration(0); len(calls) < 150_000 && at < 3*tt.w.Per; at += tt.step {
				for oldest < len(calls) && at-calls[oldest].at >= tt.w.Per+late {
					used -= calls[oldest].n
					oldest++
				}
				switch wait := pass(&s, clock.Instant(at), burst); {
				case wait == 0:
					calls = append(calls, went{at, burst})
					used += burst
				case used+burst <= tt.w.Calls:
					t.Fatalf("at %v: waits %v with only %d in a window longer by %v", at, wait, used, late)
				}
			}
			if from, held, bad := overfull(calls, tt.w); bad {
				t.Fatalf("the window from %v holds %d", from, held)
			}
			if got := cap(s.all[0].calls); got > 1<<14 {
				t.Errorf("%d entries of memory", got)
			}
		})
	}
}

// A window drops the calls that have left it.
func TestWindowsForget(t *testing.T) {
	s := NewWindows([]Window{{10, time.Second}, {100, time.Minute}})
	rnd := rand.New(rand.NewPCG(1, 3))
	now, calls := clock.Instant(1), 0
	for calls < 2000 {
		if pass(&s, now, 1) == 0 {
			calls++
		}
		for i := range s.all {
			w := &s.all[i]
			if len(w.calls) > w.n {
				t.Fatalf("%d calls are kept of a window of %d", len(w.calls), w.n)
			}
			if len(w.calls) > 0 && now.Sub(w.calls[0].at) >= w.per {
				t.Fatalf("a call of %v ago is kept of a window of %v", now.Sub(w.calls[0].at), w.per)
			}
		}
		now = now.Add(50 * time.Millisecond)
		if rnd.IntN(20) == 0 { // then many leave at once, or all
			now = now.Add(time.Duration(rnd.Int64N(int64(70 * time.Second))))
		}
	}
}

// After a pause calls are spread over the shortest window, a minute at most.
func TestWindowsAfterAPause(t *testing.T) {
	for _, tt := range []struct {
		name    string
		windows []Window
		want    time.Duration // of the second call after the pause
	}{
		{"a second", []Window{{2, time.Second}, {100, time.Minute}}, 500 * time.Millisecond},
		{"the longest first", []Window{{100, time.Minute}, {2, time.Second}}, 500 * time.Millisecond},
		{"a day", []Window{{600, 24 * time.Hour}}, 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewWindows(tt.windows)
			at := clock.Instant(time.Hour)
			s.Pause(0, at)
			assert.Zero(t, pass(&s, at, 1))
			assert.True(t, s.Counts(at))
			assert.Equal(t, s.MaxCost()-1, s.Free(at))
			assert.Equal(t, tt.want, s.Peek(at, 1))
			assert.Zero(t, pass(&s, at.Add(tt.want), 1))
			later := at.Add(48 * time.Hour)
			assert.Zero(t, pass(&s, later, s.MaxCost()), "empty windows let a full burst go")
			assert.Zero(t, s.Free(later))
			assert.False(t, s.Counts(later.Add(48*time.Hour)))
		})
	}
}

// A full window has a price for each call that goes, and at a pause for each waiter.
func BenchmarkWindows(b *testing.B) {
	const n, per = ExactCalls, 10 * time.Second
	const step = clock.Instant(per / n)
	full := func() (s Windows, now clock.Instant) {
		s = NewWindows([]Window{{n, per}})
		for range n {
			now += step
			pass(&s, now, 1)
		}
		return s, now
	}
	b.Run("a call", func(b *testing.B) {
		s, now := full()
		for b.Loop() {
			now += step
			if wait := pass(&s, now, 1); wait > 0 {
				b.Fatal(wait)
			}
		}
	})
	b.Run("a pause, for each waiter", func(b *testing.B) {
		s, now := full()
		for b.Loop() {
			if wait := s.AtLeast(now.Add(2*per), 0, 1); wait > 0 {
				b.Fatal(wait)
			}
		}
	})
}
