package cruise

import (
	"errors"
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/pacer"
	"github.com/a7df5faa/cruise/internal/queue"
)

// A Window is a limit of Calls in any time of length Per. A call of cost n counts as n.
type Window struct {
	Calls int           // 1 to math.MaxInt32
	Per   time.Duration // above 0, at most 100 years
}

// SlidingWindow admits at most so many calls in any window of a given length, wherever the window
// begins: it counts past calls, and delays a call just until the oldest one is out of the window.
// Several windows hold at once: 10 calls a second and 1,000 a day.
//
// A window of up to 10,000 calls is exact. In a larger one a call may wait longer by a ten
// thousandth of the window's length, but no window ever holds more than its Calls. Memory grows
// with the calls in a window, to 256 KiB at most for each window.
//
// The server never changes the windows, but a throttle pauses the limiter: see
// [SlidingWindow.Learn].
//
// It counts the calls of this process from now on: after a restart each window is empty, and
// another process has its own. A call waits for room, a day if need be, unless its context or
// [WithMaxElapsed] ends that.
//
// Prefer a [TokenBucket] if the server refills a bucket, and the [AdaptiveLimiter] if the limit is
// unknown or shared.
//
// A SlidingWindow is safe for concurrent use and must not be copied. The zero value refuses every
// call with an error that says so.
type SlidingWindow struct {
	fixedLimiter // its lock guards the windows too
	windows      pacer.Windows
}

var _ Learner = (*SlidingWindow)(nil)

// NewSlidingWindow returns a limiter that keeps to every one of the windows. The error names each
// window that is out of range, or as long as another.
func NewSlidingWindow(windows ...Window) (*SlidingWindow, error) {
	all, err := checkWindows(windows)
	if err != nil {
		return nil, err
	}
	s := &SlidingWindow{windows: pacer.NewWindows(all)}
	s.brake = newBrake()
	s.member = limits.Join(s, &s.queue)
	s.queue.Init(fixedPolicy{&s.windows, &s.fixedLimiter}, queue.Config{})
	return s, nil
}

// SetWindows changes the windows, for waiting calls too: a call that costs more than the smallest Calls
// is refused with [ErrCost]. Past calls count in the new windows, as far back as the longest of the
// old ones reaches. If a window becomes smaller than the calls in it, no call goes until enough of
// them are out of it. Windows that [NewSlidingWindow] refuses are an error and change nothing.
func (s *SlidingWindow) SetWindows(windows ...Window) error {
	all, err := checkWindows(windows)
	if err != nil {
		return err
	}
	return s.change(func(now clock.Instant) { s.windows.Set(now, all) })
}

func checkWindows(windows []Window) (all []pacer.Window, err error) {
	var f check.Errors
	f.Check(len(windows) > 0, "no window: want one or more")
	seen := make(map[time.Duration]int)
	for i, w := range windows {
		f.Check(w.Calls >= 1 && w.Calls <= math.MaxInt32, "window %d: Calls %d: want 1 to %d", i+1, w.Calls, math.MaxInt32)
		f.Check(w.Per > 0 && w.Per <= clock.Farthest, "window %d: Per %v: want above 0, at most %v", i+1, w.Per, clock.Farthest)
		at := seen[w.Per]
		f.Check(at == 0, "windows %d and %d are both %v long: want one", at, i+1, w.Per)
		seen[w.Per] = i + 1
		all = append(all, pacer.Window(w))
	}
	return all, errors.Join(f...)
}

// Free returns the number of calls of cost 1 that the windows would admit now, pauses apart.
func (s *SlidingWindow) Free() (calls int) {
	s.queue.Locked(func(now clock.Instant) { calls = s.windows.Free(now) })
	return calls
}
