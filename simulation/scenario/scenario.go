// Package scenario holds the simulated scenarios: a server, the clients in front of it, and the
// best possible result. Scenarios are data: a table of named ones and a seeded generator of random
// ones.
package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/a7df5faa/cruise/simulation/server"
)

// Yours names a server or a limiter of the user, which is in no table.
const Yours = "yours"

// Scenario is one server with clients in front of it.
//
// In a closed loop (Arrivals 0), Callers callers in each of Processes processes
// call one after the other without a pause, and each process has one client
// object. In an open loop, calls arrive whether or not earlier ones are done.
type Scenario struct {
	Name  string
	About string // one sentence: the special point of the scenario
	Suite bool   // one of the thirteen over which means are reported

	Server    server.Spec
	Processes int
	Callers   int           // in each process
	Latency   time.Duration // of a request on average, half of it before the server decides
	Jitter    float64       // the latency is uniform within this share of it, up and down
	Duration  time.Duration
	Calls     int           // ends the run after so many successes; 0 runs for Duration
	Job       int           // calls that there are to make, one each, whether or not they succeed; 0 is without end
	Every     time.Duration // a caller begins its calls this far apart, or later if one takes longer; 0 is at once
	Warm      time.Duration // nothing counts before this; 0 is from the start

	// Odd are more callers in each process, with requests that have nothing to do with the limit.
	Odd Odd

	Join  time.Duration // process p joins p times this after the start
	Late  time.Duration // the last process joins this after the start
	Leave time.Duration // process p leaves p times this before the end

	// Callers begin calls only in the first Duty share of each Period; 0 means always.
	Period time.Duration
	Duty   float64

	Arrivals float64       // open loop: calls a second over all processes, at random times
	Attempts int           // most attempts a call may make; 0 is no limit
	Timeout  time.Duration // a client stops waiting for a response after this; 0 is never
	Deadline time.Duration // of a call as a whole; 0 is none

	// Random marks a scenario of the generator, which is scored by process
	// and in total, where a named one is scored by caller.
	Random bool
}

// Odd describes callers whose requests succeed or fail independently of the rate. No figure counts
// them: they show in their effect on the other callers.
type Odd struct {
	Callers    int           // in each process
	Every      time.Duration // as that of a Scenario
	Until      time.Duration // they begin no call from then on, and all that they ask for is served; 0 is never
	Refused    bool          // every request is throttled
	RetryAfter time.Duration // told with each of these throttles; 0 is nothing
	Hold       time.Duration // the answer takes this long
}

// Reply is the answer to a request at t.
func (o Odd) Reply(t time.Duration) server.Reply {
	if o.Refused && (o.Until == 0 || t < o.Until) {
		return server.Reply{Throttled: true, RetryAfter: o.RetryAfter}
	}
	return server.Reply{Hold: o.Hold}
}

// Present is when process p takes part.
func (s *Scenario) Present(p int) server.Span {
	from := time.Duration(p) * s.Join
	if p == s.Processes-1 {
		from += s.Late
	}
	return server.Span{From: from, To: s.Duration - time.Duration(p)*s.Leave}
}

// Joins tells whether some process joins later than others.
func (s *Scenario) Joins() bool { return s.Processes > 1 && s.Join+s.Late > 0 }

// Finite is how many calls end the run; 0 if they do not.
func (s *Scenario) Finite() int { return max(s.Calls, s.Job) }

// Cycle returns the time between two calls of a caller that never waits.
func (s *Scenario) Cycle() time.Duration { return max(s.Every, s.Latency+s.Server.Work) }

// Idle tells whether callers begin no call at t, and if so, when they begin again.
func (s *Scenario) Idle(t time.Duration) (until time.Duration, idle bool) {
	if s.Period <= 0 || s.Duty >= 1 {
		return t, false
	}
	start := t / s.Period * s.Period
	if t-start < s.busy() {
		return t, false
	}
	return start + s.Period, true
}

// IdleBetween is how much of the time from a to b callers are idle.
func (s *Scenario) IdleBetween(a, b time.Duration) time.Duration {
	if s.Period <= 0 || s.Duty >= 1 || b <= a {
		return 0
	}
	return s.idleUntil(b) - s.idleUntil(a)
}

func (s *Scenario) busy() time.Duration {
	return time.Duration(s.Duty * float64(s.Period))
}

func (s *Scenario) idleUntil(t time.Duration) time.Duration {
	n := t / s.Period
	return n*(s.Period-s.busy()) + max(0, t-n*s.Period-s.busy())
}

// Trouble returns the last stretch during which the server served no request, or refused odd
// callers.
func (s *Scenario) Trouble() (last server.Span, ok bool) {
	for _, span := range s.Server.Off() {
		if span.To > last.To {
			last, ok = span, true
		}
	}
	if s.Odd.Refused && s.Odd.Until > last.To {
		last, ok = server.Span{To: s.Odd.Until}, true
	}
	return last, ok
}

// Setup puts the clients of the scenario into words.
func (s *Scenario) Setup() string {
	n := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	who := fmt.Sprintf("%s of %s", n(s.Processes, "process", "processes"), n(s.Callers, "caller", "callers"))
	if s.Arrivals > 0 {
		who = fmt.Sprintf("%g calls a second from %s", s.Arrivals, n(s.Processes, "process", "processes"))
	}
	if s.Odd.Callers > 0 {
		who = fmt.Sprintf("%s and %d odd", who, s.Odd.Callers)
	}
	if s.Every > 0 {
		who = fmt.Sprintf("%s, a call every %v", who, s.Every)
	}
	latency := s.Latency
	if latency > time.Millisecond {
		latency = latency.Round(100 * time.Microsecond)
	}
	who = fmt.Sprintf("%s, %v latency", who, latency)
	if n := s.Finite(); n > 0 {
		return fmt.Sprintf("%s, until %d calls are done", who, n)
	}
	return fmt.Sprintf("%s, %s", who, short(s.Duration.Round(100*time.Millisecond)))
}

// short is a duration without units that are zero.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
