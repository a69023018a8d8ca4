package server

import (
	"math"
	"slices"
	"time"
)

// Allowed is how many requests a window of that length holds at the rate of now: at least one.
// A window's length is rounded to nanoseconds, hence the grain of forgiveness.
func Allowed(rate Schedule, window, now time.Duration) int {
	return max(1, int(math.Floor(rate.At(now)*window.Seconds()+1e-4)))
}

// Gives is the rate that the server really serves: a window holds a whole number of requests.
func (s Spec) Gives() Schedule {
	if s.Window <= 0 {
		return s.Rate
	}
	gives := slices.Clone(s.Rate)
	for i, step := range gives {
		gives[i].Rate = float64(Allowed(s.Rate, s.Window, step.At)) / s.Window.Seconds()
	}
	return gives
}

// fixed counts requests in windows that follow each other.
type fixed struct {
	rate   Schedule
	window time.Duration
	index  int64
	used   int
}

func newFixed(spec Spec) *fixed {
	f := &fixed{rate: spec.Rate, window: spec.Window}
	if spec.Empty {
		f.used = math.MaxInt
	}
	return f
}

// turn starts a new window if the last one has ended.
func (f *fixed) turn(now time.Duration) {
	if i := int64(now / f.window); i != f.index {
		f.index, f.used = i, 0
	}
}

// left is the time until the present window ends.
func (f *fixed) left(now time.Duration) time.Duration {
	return time.Duration(f.index+1)*f.window - now
}

func (f *fixed) take(now time.Duration) bool {
	f.turn(now)
	if f.used >= Allowed(f.rate, f.window, now) {
		return false
	}
	f.used++
	return true
}

// wait looks for a limit that rises within the window: at its end a request passes anyway.
func (f *fixed) wait(now time.Duration) time.Duration {
	f.turn(now)
	end := now + f.left(now)
	for at := now; at < end; at = f.rate.next(at) {
		if f.used < Allowed(f.rate, f.window, at) {
			return at - now
		}
	}
	return end - now
}

func (f *fixed) quota(now time.Duration) (limit, left float64, reset time.Duration) {
	f.turn(now)
	n := Allowed(f.rate, f.window, now)
	return float64(n), float64(max(0, n-f.used)), f.left(now)
}

// sliding keeps the time of every request that still counts: an exact log.
type sliding struct {
	rate   Schedule
	window time.Duration
	log    []time.Duration // a queue: log[head:] still counts
	head   int
}

func newSliding(spec Spec) *sliding {
	s := &sliding{rate: spec.Rate, window: spec.Window}
	if spec.Empty {
		n := Allowed(s.rate, s.window, 0)
		for i := range n {
			s.log = append(s.log, -s.window+time.Duration(float64(i+1)/float64(n)*float64(s.window)))
		}
	}
	return s
}

// expire forgets the requests that are a window old.
func (s *sliding) expire(now time.Duration) {
	for s.head < len(s.log) && s.log[s.head] <= now-s.window {
		s.head++
	}
	if s.head > 1024 && s.head > len(s.log)/2 {
		s.log = s.log[:copy(s.log, s.log[s.head:])]
		s.head = 0
	}
}

func (s *sliding) take(now time.Duration) bool {
	s.expire(now)
	if len(s.log)-s.head >= Allowed(s.rate, s.window, now) {
		return false
	}
	s.log = append(s.log, now)
	return true
}

// wait tries one limit after the other: a request passes once enough others are a window
// old, if that is before the limit changes.
func (s *sliding) wait(now time.Duration) time.Duration {
	s.expire(now)
	for from := now; ; {
		at, until := from, s.rate.next(from)
		if over := len(s.log) - s.head - Allowed(s.rate, s.window, from); over >= 0 {
			at = max(from, s.log[s.head+over]+s.window)
		}
		if at < until {
			return at - now
		}
		from = until
	}
}

func (s *sliding) quota(now time.Duration) (limit, left float64, reset time.Duration) {
	s.expire(now)
	n := Allowed(s.rate, s.window, now)
	if s.head < len(s.log) {
		reset = s.log[len(s.log)-1] + s.window - now
	}
	return float64(n), float64(max(0, n-(len(s.log)-s.head))), reset
}

// counter is a window that slides by two counts, as many servers have it: they need no list
// of requests for it.
type counter struct {
	rate   Schedule
	window time.Duration
	all    bool // refused requests count, too
	index  int64
	before int // requests in the window before the present one
	count  int // in the present one
}

// turn starts a new window if the last one has ended.
func (c *counter) turn(now time.Duration) {
	i := int64(now / c.window)
	if i == c.index {
		return
	}
	c.before = 0
	if i == c.index+1 {
		c.before = c.count
	}
	c.index, c.count = i, 0
}

// used is how many requests count at a time of the present window.
func (c *counter) used(now time.Duration) float64 {
	past := (now - time.Duration(c.index)*c.window).Seconds() / c.window.Seconds()
	return float64(c.before)*(1-past) + float64(c.count)
}

// full tells whether one more is too many. A count that is no whole number is rounded.
func (c *counter) full(now time.Duration) bool {
	return int(math.Round(c.used(now)))+1 > Allowed(c.rate, c.window, now)
}

func (c *counter) take(now time.Duration) bool {
	c.turn(now)
	passes := !c.full(now)
	if passes || c.all {
		c.count++
	}
	return passes
}

// wait looks for the time within the present window, or else the next, at which the count is less
// than half a request above the limit.
func (c *counter) wait(now time.Duration) time.Duration {
	c.turn(now)
	if !c.full(now) {
		return 0
	}
	most := float64(Allowed(c.rate, c.window, now)) - .5
	start, before, count := time.Duration(c.index)*c.window, float64(c.before), float64(c.count)
	if count >= most { // not in this window
		start, before, count = start+c.window, count, 0
	}
	part := 1 - (most-count)/before // NaN if there was nothing before
	return max(now, start+time.Duration(max(0, part)*float64(c.window))) + 1 - now
}

// quota names the end of the present window, though nothing is whole again then.
func (c *counter) quota(now time.Duration) (limit, left float64, reset time.Duration) {
	c.turn(now)
	n := Allowed(c.rate, c.window, now)
	return float64(n), max(0, float64(n)-math.Round(c.used(now))), time.Duration(c.index+1)*c.window - now
}
