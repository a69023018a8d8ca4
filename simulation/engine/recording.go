package engine

import (
	"time"

	"github.com/a7df5faa/cruise/simulation/scenario"
)

// Recording holds the events of a run, as the server saw them.
type Recording struct {
	Scenario *scenario.Scenario
	Client   string
	Seed     uint64

	Callers []Caller      // by process; in an open loop there is one a process
	Odd     []Caller      // by process: the odd callers, which no other field counts
	Elapsed time.Duration // until the run ended
	Rivals  int           // requests that the greedy competitor got through

	// Calls are those that arrived in an open loop; in a closed one, those begun.
	// Failed ones were given up before the end of the run.
	Calls, Failed int

	// Newcomer is when the process that joined last had its successes, if processes join.
	Newcomer []time.Duration

	// Bins cut the run into stretches of the length Width, up to its end.
	Bins  []Bin
	Width time.Duration
}

// Caller holds the events of one caller.
type Caller struct {
	Process   int
	Requests  int           // attempts that reached the server
	Throttled int           // of these
	Errors    int           // of these: failures and timeouts
	Successes int           // of these
	Longest   time.Duration // between successes, its start and its end, without idle time

	since time.Duration // the last success, or the start
	done  bool          // there is nothing left to do
}

// Bin holds the events of a short stretch of a run.
type Bin struct {
	Requests  int32
	Throttled int32
	Successes int32
}

// bins is how many stretches a recording has, at most twice as many.
const bins = 600

// bin is the stretch of t. The recording gets coarser when a run takes
// longer than it was thought to.
func (r *Recording) bin(t time.Duration) *Bin {
	i := int(t / r.Width)
	for i >= 2*bins {
		half := (len(r.Bins) + 1) / 2
		for j := range half {
			b := r.Bins[2*j]
			if 2*j+1 < len(r.Bins) {
				o := r.Bins[2*j+1]
				b.Requests += o.Requests
				b.Throttled += o.Throttled
				b.Successes += o.Successes
			}
			r.Bins[j] = b
		}
		r.Bins = r.Bins[:half]
		r.Width *= 2
		i = int(t / r.Width)
	}
	for i >= len(r.Bins) {
		r.Bins = append(r.Bins, Bin{})
	}
	return &r.Bins[i]
}

// waited closes a caller's wait at t.
func (r *Recording) waited(c *Caller, t time.Duration) {
	if c.done {
		return
	}
	c.Longest = max(c.Longest, t-c.since-r.Scenario.IdleBetween(c.since, t))
	c.since = t
}

// Totals sums up all callers.
func (r *Recording) Totals() Caller {
	var sum Caller
	for i := range r.Callers {
		c := &r.Callers[i]
		sum.Requests += c.Requests
		sum.Throttled += c.Throttled
		sum.Errors += c.Errors
		sum.Successes += c.Successes
		sum.Longest = max(sum.Longest, c.Longest)
	}
	return sum
}
