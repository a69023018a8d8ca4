package client

import (
	"context"
	"time"

	"github.com/a7df5faa/cruise"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
)

// geniePart is the part of its fair share at which the genie goes: with more than that, a limit
// that counts to the last request throttles it because calls of several processes meet, not for
// lack of knowledge.
const geniePart = .9

// Genie begins as cold as cruise. From the first throttle of its process on, it knows its fair
// share at every moment, nothing while the server lets no call pass, and goes at nearly that. No
// control law can know more. So a law's distance from the genie is the law's fault, and the genie's
// own throttles are the price of a cold start.
func Genie() engine.Client {
	return engine.Client{
		Name:      "genie",
		About:     "yardstick: begins as cruise does, told nothing; from its first throttle on it knows its fair share at every moment and goes at 0.9 of it",
		Yardstick: true,
		Fits:      func(s *scenario.Scenario) bool { return s.Odd.Callers == 0 && paced(s) },
		New: func(e engine.Env) engine.Process {
			g := &genie{pacer: newPacer(e, geniePart), wait: e.Wait, cold: cruise.Must(cruise.NewAdaptiveLimiter())}
			g.told, g.tell = context.WithCancel(context.Background())
			return g
		},
	}
}

type genie struct {
	*pacer
	wait func() time.Duration
	cold *cruise.AdaptiveLimiter // until it is told
	told context.Context         // ends with the first throttle
	tell context.CancelFunc
}

// Call sends as the cold limiter lets it, and then at the pace, until a request succeeds.
func (g *genie) Call(ctx context.Context, attempt engine.Attempt) error {
	for n := 1; ; n++ {
		cold, err := g.turn(ctx)
		if err != nil {
			return err
		}
		_, err = attempt(ctx)
		throttled := failure(err).Throttled
		if cold {
			outcome := cruise.OutcomeSuccess
			if err != nil {
				outcome = cruise.OutcomeDropped
			}
			g.cold.Learn(cruise.Feedback{Outcome: outcome, Cost: 1})
		}
		if throttled {
			g.pause()
		}
		if err == nil || ctx.Err() != nil || n == g.scenario.Attempts {
			return err
		}
	}
}

// turn waits until a request may go, and tells whether the cold limiter let it.
func (g *genie) turn(ctx context.Context) (cold bool, err error) {
	if g.told.Err() == nil {
		both, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(g.told, cancel)()
		if g.cold.WaitN(both, 1) == nil {
			return true, nil
		}
	}
	return false, engine.Sleep(ctx, g.reserve()-time.Since(g.start))
}

// pause stops all calls for as long as the server lets none pass. The first throttle ends the cold
// start of the process.
func (g *genie) pause() {
	until := time.Since(g.start) + g.wait()
	g.mu.Lock()
	if until > g.next {
		g.begin(until)
	}
	g.mu.Unlock()
	g.tell()
}

// Close ends it.
func (g *genie) Close() error {
	g.tell()
	return nil
}
