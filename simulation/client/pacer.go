package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/server"
)

// pacerPart is the part of its fair share at which the pacer goes.
const pacerPart = .8

// Pacer knows its fair share of the server at every moment, goes at a part of it, and is silent
// while the server is down, or while its first window is used up. If even the pacer is throttled,
// the limit cannot be kept.
func Pacer() engine.Client {
	return engine.Client{
		Name:      "pacer-0.8",
		Yardstick: true,
		Fits:      paced,
		About:     "yardstick: knows its fair share at every moment and goes at 0.8 of it",
		New: func(e engine.Env) engine.Process {
			p := newPacer(e, pacerPart)
			now := time.Since(e.Start)
			if s := e.Scenario.Server; s.Empty && s.Kind == server.FixedWindow {
				now = max(now, s.Window)
			}
			p.begin(now)
			return p
		},
	}
}

func newPacer(e engine.Env, part float64) *pacer {
	return &pacer{scenario: e.Scenario, rate: e.Scenario.Server.Gives(), part: part, start: e.Start, rng: rand.New(rand.NewPCG(e.Seed, 0))}
}

type pacer struct {
	scenario *scenario.Scenario
	rate     server.Schedule // of the server
	part     float64         // of its fair share at which it goes
	start    time.Time

	mu   sync.Mutex
	rng  *rand.Rand
	next time.Duration // when the next request may go
}

// Call sends at the pace until a request succeeds.
func (p *pacer) Call(ctx context.Context, attempt engine.Attempt) error {
	for n := 1; ; n++ {
		if err := engine.Sleep(ctx, p.reserve()-time.Since(p.start)); err != nil {
			return err
		}
		_, err := attempt(ctx)
		if err == nil || ctx.Err() != nil || n == p.scenario.Attempts {
			return err
		}
	}
}

// begin lets the pace begin at now, or a little later, since others may begin then, too.
func (p *pacer) begin(now time.Duration) {
	p.next = now + time.Duration(p.rng.Float64()*float64(p.after(now)-now))
}

// reserve takes the next slot of the pace.
func (p *pacer) reserve() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := max(p.next, time.Since(p.start))
	for _, s := range p.scenario.Server.Down {
		if s.Has(at) {
			at = s.To
		}
	}
	// Without a little jitter, processes that once met would meet for ever.
	p.next = at + time.Duration(float64(p.after(at)-at)*(.9+.2*p.rng.Float64()))
	return at
}

// after is when the pace has given one more request than at t.
func (p *pacer) after(t time.Duration) time.Duration {
	s, need := p.scenario, 1/p.part
	if s.Server.Greedy > 0 {
		return t + time.Duration(need/fair(s, p.rate, t)*float64(time.Second))
	}
	for {
		until := s.Duration // until when as many are present
		for i := range s.Processes {
			here := s.Present(i)
			for _, edge := range [...]time.Duration{here.From, here.To} {
				if edge > t {
					until = min(until, edge)
				}
			}
		}
		procs := present(s, t)
		given := p.rate.Between(t, until) / procs
		if given >= need || until >= s.Duration {
			return t + p.rate.After(t, need*procs)
		}
		need -= given
		t = until
	}
}

// fair is a process's share of rate at t, calls a second, beside a greedy competitor.
func fair(s *scenario.Scenario, rate server.Schedule, t time.Duration) float64 {
	given := rate.At(t)
	if rivals := s.Server.Greedy; rivals > 0 {
		given = max(.01*rivals, given-rivals)
	}
	return given / present(s, t)
}

// present is how many processes there are at t, 1 at least.
func present(s *scenario.Scenario, t time.Duration) float64 {
	n := 0
	for i := range s.Processes {
		if s.Present(i).Has(t) {
			n++
		}
	}
	return float64(max(1, n))
}
