package scenario

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/simulation/server"
)

// attainable returns the successes of callers that try all the time and lose nothing by a refusal.
// It counts whole requests, for comparison with the fluid of Ideal. A process that leaves takes its
// calls along.
func attainable(s *Scenario) float64 {
	spec := s.Server
	spec.Penalty, spec.CountsAll = 0, false // which make refusals cost something
	srv := server.New(spec, rand.New(rand.NewPCG(1, 2)))
	type caller struct {
		arrives time.Duration // at the server, with its next call
		process int
		index   int // in its process
	}
	var callers []caller
	for p := range s.Processes {
		for i := range s.Callers {
			callers = append(callers, caller{s.Present(p).From + s.Latency/2, p, i})
		}
	}
	got, often := 0, max(10*time.Microsecond, s.Duration/400_000)
	for at := time.Duration(0); at < s.Duration; at += often {
		// The caller that has waited longest tries first. A refused caller tries again last.
		for len(callers) > 0 && callers[0].arrives <= at {
			c := callers[0]
			if at >= s.Present(c.process).To {
				callers = callers[1:]
				continue
			}
			r := srv.Of(c.index).Take(at)
			if r.Throttled || r.Failed {
				if len(s.Server.Methods) > 0 { // the others may be let through
					c.arrives = at + often
					callers = append(callers[1:], c)
					continue
				}
				break
			}
			if at >= s.Warm {
				got++
			}
			callers = callers[1:]
			begins := at + max(r.Hold+s.Latency/2, s.Every-s.Latency/2)
			begins, _ = s.Idle(begins)
			c.arrives = begins + s.Latency/2
			i, _ := slices.BinarySearchFunc(callers, c.arrives, func(o caller, arrives time.Duration) int {
				if o.arrives <= arrives {
					return -1
				}
				return 1
			})
			callers = slices.Insert(callers, i, c)
		}
	}
	srv.Finish(s.Duration)
	return float64(got + srv.Rivals)
}

func TestTheBestPossibleCanBeHad(t *testing.T) {
	if calm.Raced {
		t.Skip("it takes long, and others race as much")
	}
	compare := func(s *Scenario, near float64) {
		if s.Finite() > 0 || s.Arrivals > 0 {
			return
		}
		if got, want := s.Ideal().Successes, attainable(s); got < (1-near)*want || got > (1+near)*want {
			t.Errorf("%s, %s, %s: %.1f, want %.0f", s.Name, s.About, s.Setup(), got, want)
		}
	}
	for _, s := range Named() {
		compare(s, .01)
	}
	compare(&Scenario{
		Name: "a competitor", About: "and callers who want little",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(20), Burst: 20, Greedy: 10},
		Processes: 1, Callers: 4, Latency: time.Second, Duration: 5 * time.Minute,
	}, .02)
	// Short runs with long latencies, and callers that wait for a window and go at once.
	for _, s := range Randoms(1, 100) {
		compare(s, .07)
	}
}

// Calls that arrived while a queue stood still are served after it, if they still want that.
func TestTheBestPossibleOfCallsThatGiveUp(t *testing.T) {
	s := &Scenario{
		Server:    server.Spec{Kind: server.Queue, Rate: server.Constant(200), Stall: []server.Span{{From: 10 * time.Second, To: 30 * time.Second}}},
		Processes: 1, Callers: 1, Latency: 10 * time.Millisecond, Duration: 100 * time.Second, Arrivals: 100,
	}
	for deadline, want := range map[time.Duration]float64{
		0:               100 * 100,
		5 * time.Second: 100*80 + 100*5,
	} {
		s.Deadline = deadline
		if got := s.Ideal().Successes; got < .99*want || got > 1.01*want {
			t.Errorf("deadline %v: %.1f, want %.1f", deadline, got, want)
		}
	}
}
