package client

import (
	"context"
	"sync"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/shared"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
)

// Shared is cruise with processes that share one limit through a store a millisecond away.
func Shared() engine.Client {
	type run struct {
		scenario *scenario.Scenario
		seed     uint64
	}
	var stores sync.Map // of run: shared.Store
	return engine.Client{
		Name:  "cruise-shared",
		About: "cruise with a limiter that the processes share through a store, unlimited attempts, no retry budget",
		Own:   true,
		New: func(e engine.Env) engine.Process {
			store, _ := stores.LoadOrStore(run{e.Scenario, e.Seed >> 16}, away{shared.NewMemoryStore()})
			limiter := cruise.Must(shared.New(store.(shared.Store)))
			return retrier(e, cruise.WithLimiter(limiter), cruise.WithoutBudget())
		},
	}
}

// away is a store behind a network.
type away struct{ shared.Store }

func (s away) Sync(ctx context.Context, q shared.Request) (shared.Reply, error) {
	if err := engine.Sleep(ctx, time.Millisecond); err != nil {
		return shared.Reply{}, err
	}
	return s.Store.Sync(ctx, q)
}
