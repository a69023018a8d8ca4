package scenario

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise/simulation/server"
)

// Best is the result of a perfect client in a scenario.
type Best struct {
	// Successes is how many requests could be served, to the greedy competitor too.
	Successes float64
	// Time is the least in which the calls that end the run succeed; 0 if none do.
	Time time.Duration
	// Fair is the equal share of each process among those present.
	Fair []float64
}

// leastSteps is into how many steps a run is cut; short windows take more.
const leastSteps = 4000

// Ideal works out the best possible result as a fluid: in every small step of time the server
// serves as much of the demand as its limit allows. The demand of the callers is one request each
// latency, and while they are idle, the waiting calls that they began before. Calls of an open loop
// wait too, until their deadline. At a concurrency limit one request may take most of the run, so
// the number of free slots and callers follows from the requests begun before.
func (s *Scenario) Ideal() Best {
	b := Best{Fair: make([]float64, s.Processes)}
	if len(s.Server.Methods) > 0 {
		return s.idealOfMethods()
	}
	steps, calls := leastSteps, s.Finite()
	if calls > 0 {
		steps = 1 << 16 // the end is somewhere within a long time
	}
	window := s.Server.Window // the shortest
	for _, and := range s.Server.And {
		if and.Window > 0 {
			window = min(window, and.Window)
		}
	}
	if window > 0 {
		steps = max(steps, int(40*s.Duration/window))
	}
	step := s.Duration / time.Duration(steps)
	if window > 0 {
		step = window / ((window + step - 1) / step) // else requests would leave a sliding window early or late
	}
	f := newFluid(s, s.Server, step)
	back := s.Latency/2 + s.Server.Work // from being served until the next call
	pending := 0.0                      // calls that wait; in a closed loop, calls of callers that become idle
	present, each, until := []int{}, 0.0, time.Duration(0)
	for t := time.Duration(0); t < s.Duration; t += step {
		dt := min(step, s.Duration-t)
		if t >= until { // a process has joined or left
			b.share(present, each)
			present, until = s.presentAt(t)
			each = 0
		}
		demand := f.demand(t, dt, len(present))
		if _, idle := s.Idle(t); idle || s.Arrivals > 0 {
			demand += max(0, pending)
		}
		if s.Arrivals > 0 && s.Deadline > 0 {
			demand = min(demand, s.Arrivals*s.Deadline.Seconds()) // the rest has waited too long
		}
		served := f.step(t, dt, demand)
		switch {
		case s.Arrivals > 0:
			pending = demand - served
		case s.IdleBetween(t, t+dt/2+back) == 0:
			pending = float64(len(present) * s.Callers) // a caller served now calls again before that
		default:
			pending -= served
		}
		if t < s.Warm {
			continue
		}
		if calls > 0 && b.Time == 0 && b.Successes+served >= float64(calls) {
			part := (float64(calls) - b.Successes) / served
			b.Time = t + time.Duration(part*float64(dt))
			if s.Job > 0 { // ends with the answers
				b.Time += s.Latency/2 + s.Server.Work
			}
		}
		b.Successes += served
		if len(present) > 0 {
			each += served / float64(len(present))
		}
	}
	b.share(present, each)
	if calls > 0 {
		b.Successes = min(b.Successes, float64(calls))
	}
	return b
}

// idealOfMethods returns the sum over all methods. Callers of different methods are independent.
func (s *Scenario) idealOfMethods() Best {
	sum := Best{Fair: make([]float64, s.Processes)}
	n := len(s.Server.Methods)
	for i, m := range s.Server.Methods {
		one := *s
		one.Server, one.Callers = m, (s.Callers+n-1-i)/n
		b := one.Ideal()
		sum.Successes += b.Successes
		for p := range sum.Fair {
			sum.Fair[p] += b.Fair[p]
		}
	}
	return sum
}

// share gives each of the processes so much.
func (b *Best) share(processes []int, each float64) {
	for _, p := range processes {
		b.Fair[p] += each
	}
}

// presentAt returns the processes that take part at t, and the time until which this set holds.
func (s *Scenario) presentAt(t time.Duration) (processes []int, until time.Duration) {
	until = s.Duration
	for p := range s.Processes {
		span := s.Present(p)
		if span.Has(t) {
			processes = append(processes, p)
		}
		for _, edge := range []time.Duration{span.From, span.To} {
			if edge > t {
				until = min(until, edge)
			}
		}
	}
	return processes, until
}

// fluid is a server that serves fractions of requests.
type fluid struct {
	scenario *Scenario
	spec     server.Spec
	off      []server.Span
	left     float64   // tokens of a bucket, rest of a fixed window
	index    int64     // of the fixed window
	log      []float64 // served in each step of a sliding window
	sum      float64   // of log
	at       int
	width    time.Duration // of a step
	begun    []float64     // served by a concurrency limit before each step so far, in all
	prior    float64       // served in the window before, by a counter
	and      []*fluid      // more limits
}

func newFluid(s *Scenario, spec server.Spec, step time.Duration) *fluid {
	f := &fluid{scenario: s, spec: spec, off: spec.Off(), width: step}
	for _, and := range spec.And {
		f.and = append(f.and, newFluid(s, and, step))
	}
	full := f.window(0)
	switch spec.Kind {
	case server.Bucket:
		if !spec.Empty {
			f.left = spec.Burst
		}
	case server.FixedWindow:
		if spec.Empty {
			f.left = -math.MaxFloat64
		}
	case server.SlidingWindow:
		f.log = make([]float64, spec.Window/step)
		if spec.Empty {
			for i := range f.log {
				f.log[i] = full / float64(len(f.log))
			}
			f.sum = full
		}
	case server.Concurrency:
		f.begun = []float64{0}
	}
	return f
}

// demand is how many requests are wanted during dt, the competitor's included. At a
// concurrency limit the first arrive after half of their latency.
func (f *fluid) demand(t, dt time.Duration, present int) float64 {
	s := f.scenario
	if s.Arrivals > 0 {
		return s.Arrivals * dt.Seconds()
	}
	d := s.Server.Greedy * dt.Seconds()
	if _, idle := s.Idle(t); !idle && (len(f.begun) == 0 || t+dt > s.Latency/2) {
		d += f.free(present*s.Callers, s.Cycle(), t, dt)
	}
	return d
}

// free is how many requests n slots or callers can take up during dt, if each keeps one of
// them busy for the time of taken.
func (f *fluid) free(n int, taken, t, dt time.Duration) float64 {
	if len(f.begun) == 0 || taken <= dt {
		return float64(n) * dt.Seconds() / taken.Seconds()
	}
	return max(0, float64(n)-(f.before(t)-f.before(t+dt-taken)))
}

// before returns the amount that a concurrency limit served before t, at the latest the present
// step.
func (f *fluid) before(t time.Duration) float64 {
	if t <= 0 {
		return 0
	}
	i := int(t / f.width)
	sum := f.begun[i]
	if part := t - time.Duration(i)*f.width; part > 0 {
		sum += (f.begun[i+1] - sum) * part.Seconds() / f.width.Seconds()
	}
	return sum
}

// window is the limit of a window at t.
func (f *fluid) window(t time.Duration) float64 {
	return float64(server.Allowed(f.spec.Rate, f.spec.Window, t))
}

// step serves as much of the demand as it can during dt.
func (f *fluid) step(t, dt time.Duration, demand float64) float64 {
	served := min(f.room(t, dt), f.open(t, demand))
	for _, and := range f.and {
		served = min(served, and.room(t, dt))
	}
	served = max(0, served)
	f.serve(served)
	for _, and := range f.and {
		and.serve(served)
	}
	return served
}

// room is how much can be served during dt.
func (f *fluid) room(t, dt time.Duration) float64 {
	switch f.spec.Kind {
	case server.Bucket:
		// Tokens that flow in during the step can be used in it, even if the bucket is small.
		f.left += f.spec.Rate.Between(t, t+dt)
		return f.left
	case server.FixedWindow:
		if i := int64(t / f.spec.Window); i != f.index {
			f.index, f.left = i, 0
		}
		// left counts down from 0, because the limit may change within a window.
		return f.window(t) + f.left
	case server.SlidingWindow:
		f.sum -= f.log[f.at]
		return f.window(t) - f.sum
	case server.Counter:
		if i := int64(t / f.spec.Window); i != f.index {
			f.index, f.prior, f.sum = i, f.sum, 0
		}
		past := (t + dt - time.Duration(f.index)*f.spec.Window).Seconds() / f.spec.Window.Seconds()
		return f.window(t) - f.prior*max(0, 1-past) - f.sum
	case server.Concurrency:
		return f.free(int(f.spec.Burst), f.spec.Work, t, dt)
	}
	return f.spec.Rate.Between(t, t+dt) // of a queue
}

// serve records the amount served in a step.
func (f *fluid) serve(served float64) {
	switch f.spec.Kind {
	case server.Bucket:
		f.left = min(f.spec.Burst, f.left-served)
	case server.FixedWindow:
		f.left -= served
	case server.SlidingWindow:
		f.log[f.at] = served
		f.sum += served
		f.at = (f.at + 1) % len(f.log)
	case server.Counter:
		f.sum += served
	case server.Concurrency:
		f.begun = append(f.begun, f.begun[len(f.begun)-1]+served)
	}
}

// open is the demand that finds the server working.
func (f *fluid) open(t time.Duration, demand float64) float64 {
	if server.In(f.off, t) {
		return 0
	}
	return demand
}
