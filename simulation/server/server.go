// Package server models APIs that throttle. A Server is a plain value that is
// told the time and decides one request at a time; it never sleeps and knows
// nothing of clients, so that the same model serves real client code under
// virtual time, a unit test and a fluid calculation.
package server

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is how a server limits its clients.
type Kind int

const (
	// Bucket is a token bucket (equivalently GCRA): Burst tokens, refilled at Rate.
	Bucket Kind = iota
	// FixedWindow serves Rate times Window requests in each window, counted from 0 again at its end.
	FixedWindow
	// SlidingWindow serves Rate times Window requests in any span of the length Window, exactly.
	SlidingWindow
	// Concurrency serves Burst requests at a time, each holding its slot for Work.
	Concurrency
	// Queue never throttles: it serves one request after the other at Rate, in order of arrival.
	Queue
	// Counter serves Rate times Window requests by two counts: that of the present window, and
	// that of the one before by the part of it that a window up to now still covers.
	Counter
)

// String is the kind's name as the command's flags spell it.
func (k Kind) String() string {
	return [...]string{"bucket", "fixed", "sliding", "concurrency", "queue", "counter"}[k]
}

// Signal is the information in a server's answers beside yes or no.
type Signal uint8

const (
	// RetryAfter is the exact time until the next request would pass, on throttles.
	RetryAfter Signal = 1 << iota
	// WholeSeconds rounds that time up to whole seconds, as the HTTP header does.
	WholeSeconds
	// Remaining reports the quota's limit and the rest of the quota, on all responses.
	Remaining
	// Reset is the time until the quota is whole again, on all responses.
	Reset
	// NoLimit leaves the limit out of Remaining, as Heroku does.
	NoLimit
	// ResetSeconds is Reset, rounded up to whole seconds.
	ResetSeconds
)

// Signals are the signals of servers by the command's flags and of random scenarios.
var Signals = []Signal{0, RetryAfter, RetryAfter | WholeSeconds, Remaining, Remaining | NoLimit, Remaining | Reset}

// String is the signal's name as the command's flags spell it.
func (s Signal) String() string {
	i := slices.Index(Signals, s)
	if i < 0 {
		return fmt.Sprintf("%#b", uint8(s))
	}
	return [...]string{"none", "retry-after", "seconds", "remaining", "rest", "reset"}[i]
}

// Span is a stretch of time.
type Span struct {
	From, To time.Duration
}

// Has tells whether t lies in the span.
func (s Span) Has(t time.Duration) bool { return t >= s.From && t < s.To }

// In tells whether t lies in one of the spans.
func In(spans []Span, t time.Duration) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.Has(t) })
}

// Spec describes a server as data.
type Spec struct {
	Kind   Kind
	Rate   Schedule      // requests a second
	Burst  float64       // tokens of a bucket, slots of a concurrency limit
	Window time.Duration // length of a window
	Work   time.Duration // how long a request takes that is let through; it holds the slot of a concurrency limit
	Empty  bool          // the bucket or the window is used up at the start
	Signal Signal

	Down   []Span // everything is throttled, without Retry-After
	Broken []Span // everything fails with a server error that is no throttle
	Stall  []Span // a Queue that stands still

	// Lie multiplies every Retry-After; 0 means that the server is honest.
	Lie float64
	// Says is the Retry-After of every throttle, true or not; 0 leaves it to Signal.
	Says time.Duration
	// Penalty refuses everything for so long after a request that was one too many.
	Penalty time.Duration
	// Chance is the share of requests that are throttled at any rate, as by a busy shard among many.
	Chance float64
	// Whole makes a Bucket add whole tokens only; each success drops the fraction of the next
	// token.
	Whole bool
	// CountsAll makes a Counter count the requests that it refuses, too.
	CountsAll bool

	// And are more limits, of which only their own bookkeeping counts: a request passes
	// if all let it. The one that gives least comes first, and is the Spec itself.
	And []Spec
	// Methods are limits that hold for a part of the callers each, in turn. Of the Spec itself only
	// Work and the stretches without service hold for all; everything else is in the limits.
	Methods []Spec

	// Greedy is the rate of one more client that never backs off. The gaps
	// between its requests are uniform between half and one and a half of the mean.
	Greedy float64
}

// Off returns the stretches in which the server serves no request.
func (s Spec) Off() []Span { return slices.Concat(s.Down, s.Broken, s.Stall) }

// Quota is a response's report of the rest of the quota.
type Quota struct {
	Known     bool // Remaining is told
	Limit     int  // 0 if not told
	Remaining int
	Reset     time.Duration // until the quota is whole again; 0 if not told
}

// Reply is a server's answer to one request.
type Reply struct {
	Throttled  bool
	Failed     bool          // a server error
	RetryAfter time.Duration // 0 if not told
	Hold       time.Duration // how long the server keeps the request before it answers
	Quota      Quota
}

// Error is a reply other than success, as a client sees it.
type Error struct {
	Throttled  bool
	Timeout    bool // the client stopped waiting
	RetryAfter time.Duration
	Quota      Quota
}

// Error returns the server's answer as text.
func (e *Error) Error() string {
	switch {
	case e.Timeout:
		return "simulated server: timeout"
	case !e.Throttled:
		return "simulated server: internal error"
	case e.RetryAfter > 0:
		return fmt.Sprintf("simulated server: too many requests, retry after %v", e.RetryAfter)
	}
	return "simulated server: too many requests"
}

// model is the bookkeeping of one kind of limit.
type model interface {
	// take lets a request pass at now, or not.
	take(now time.Duration) bool
	// wait is the time until a request would pass.
	wait(now time.Duration) time.Duration
	// quota returns the limit, the rest of it, and the time until it is whole.
	quota(now time.Duration) (limit, left float64, reset time.Duration)
}

// Server decides requests. It is not safe for concurrent use and its times must not decrease.
type Server struct {
	spec  Spec
	model model
	queue *queue // the model, if it is one
	rng   *rand.Rand

	methods []*Server
	blocked time.Duration // until when everything is refused

	rival  time.Duration // when the greedy competitor sends next
	Rivals int           // how many requests the greedy competitor got through
}

// New makes a server. rng draws the competitor's requests and the throttles by chance.
func New(spec Spec, rng *rand.Rand) *Server {
	s := &Server{spec: spec, rng: rng, model: newModel(spec)}
	s.queue, _ = s.model.(*queue)
	if len(spec.And) > 0 {
		all := all{s.model}
		for _, and := range spec.And {
			all = append(all, newModel(and))
		}
		s.model = all
	}
	for _, m := range spec.Methods {
		s.methods = append(s.methods, New(m, rng))
	}
	if spec.Greedy > 0 {
		s.rival = s.gap()
	}
	return s
}

func newModel(spec Spec) model {
	switch spec.Kind {
	case FixedWindow:
		return newFixed(spec)
	case SlidingWindow:
		return newSliding(spec)
	case Concurrency:
		return &concurrency{slots: int(spec.Burst), work: spec.Work}
	case Queue:
		return &queue{rate: spec.Rate, stall: spec.Stall}
	case Counter:
		return &counter{rate: spec.Rate, window: spec.Window, all: spec.CountsAll}
	}
	return newBucket(spec)
}

// Of is the server as the i-th caller of a process meets it: that of its method, if there are some.
func (s *Server) Of(i int) *Server {
	if n := len(s.methods); n > 0 {
		return s.methods[i%n]
	}
	return s
}

// gap draws the time between two requests of the competitor.
func (s *Server) gap() time.Duration {
	return max(1, time.Duration((.5+s.rng.Float64())/s.spec.Greedy*float64(time.Second)))
}

// compete makes the competitor's requests up to now.
func (s *Server) compete(now time.Duration) {
	for s.spec.Greedy > 0 && s.rival <= now {
		if !In(s.spec.Down, s.rival) && !In(s.spec.Broken, s.rival) && s.model.take(s.rival) {
			s.Rivals++
		}
		s.rival += s.gap()
	}
}

// Take decides one request that reaches the server at now.
func (s *Server) Take(now time.Duration) Reply {
	s.compete(now)
	if In(s.spec.Down, now) {
		return Reply{Throttled: true}
	}
	if In(s.spec.Broken, now) {
		return Reply{Failed: true}
	}
	if s.spec.Chance > 0 && s.rng.Float64() < s.spec.Chance {
		return Reply{Throttled: true}
	}
	var r Reply
	if now >= s.blocked && s.model.take(now) {
		r.Hold = s.spec.Work
		if s.spec.Kind == Queue {
			r.Hold = s.queue.done - now
		}
	} else {
		if now >= s.blocked {
			s.blocked = now + s.spec.Penalty
		}
		r.Throttled = true
		if s.spec.Signal&(RetryAfter|WholeSeconds) != 0 {
			r.RetryAfter = s.retryAfter(now)
		}
		if s.spec.Says > 0 {
			r.RetryAfter = s.spec.Says
		}
	}
	if s.spec.Signal&(Remaining|Reset|ResetSeconds) != 0 {
		limit, left, reset := s.model.quota(now)
		if s.spec.Signal&Remaining != 0 {
			r.Quota.Known = true
			if s.spec.Signal&NoLimit == 0 {
				r.Quota.Limit = int(limit + tiny)
			}
			r.Quota.Remaining = max(0, int(math.Floor(left+tiny)))
		}
		if s.spec.Signal&ResetSeconds != 0 {
			reset = wholeSeconds(reset)
		}
		if s.spec.Signal&(Reset|ResetSeconds) != 0 {
			r.Quota.Reset = max(1, reset)
		}
	}
	return r
}

// retryAfter returns the server's Retry-After, which is not always true.
func (s *Server) retryAfter(now time.Duration) time.Duration {
	d := s.Wait(now)
	if s.spec.Lie > 0 {
		d = time.Duration(float64(d) * s.spec.Lie)
	}
	if s.spec.Signal&WholeSeconds != 0 {
		d = wholeSeconds(d)
	}
	return max(d, 1)
}

// Wait is the time until a request would pass, if nothing else comes.
func (s *Server) Wait(now time.Duration) time.Duration {
	return max(s.model.wait(now), s.blocked-now)
}

// wholeSeconds is d rounded up.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1) / time.Second * time.Second
}

// Finish brings the competitor's count up to the end of the run.
func (s *Server) Finish(now time.Duration) { s.compete(now) }

// tiny forgives the rounding of sums of floats when whole requests are counted.
const tiny = 1e-12
