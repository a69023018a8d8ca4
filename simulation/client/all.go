// Package client adapts the clients that people use to the engine, and a few yardsticks with
// knowledge that no real client has.
package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/server"
)

// All is every client of the board, in its order.
func All() []engine.Client {
	return []engine.Client{
		Cruise("cruise"),

		// Clients that adapt.
		AWS(),
		FailsafeAdaptive(),
		HerokuGradual(),
		HerokuProportional(),
		HerokuRemaining(),
		Autosleeper(),

		// Clients that only retry.
		Cenkalti(),
		Avast(),
		Sethvargo(),
		RetryableHTTP(),
		Google(),
		HerokuBackoff(),

		// Yardsticks.
		Told(),
		Genie(),
		Plain(),
		FailsafeRate(),
		Oracle(),
		Pacer(),
	}
}

// Find is the client of that name: one of the board, or [Shared].
func Find(name string) (engine.Client, error) {
	all := append(All(), Shared())
	if i := slices.IndexFunc(all, func(c engine.Client) bool { return c.Name == name }); i >= 0 {
		return all[i], nil
	}
	return engine.Client{}, fmt.Errorf("there is no client %q", name)
}

// paced tells whether a yardstick that goes at a given rate makes sense: there
// has to be one, and calls that wait for their turn rather than arrive.
func paced(s *scenario.Scenario) bool {
	return s.Arrivals == 0 && s.Server.Rate.Highest(s.Duration) > 0
}

// steady is paced, at a rate that never changes.
func steady(s *scenario.Scenario) bool {
	return len(s.Server.Rate) == 1 && paced(s)
}

// share is a process's equal part of the server's rate at the start.
func share(s *scenario.Scenario) float64 {
	return s.Server.Rate.At(0) / float64(s.Processes)
}

// failure returns the simulated server's answer in err, the zero Error if err is another error.
func failure(err error) server.Error {
	if e, ok := errors.AsType[*server.Error](err); ok {
		return *e
	}
	return server.Error{}
}
