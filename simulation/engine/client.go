package engine

import (
	"context"
	"time"

	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/server"
)

// Client is one kind of client code under test.
type Client struct {
	Name  string
	About string // one sentence: which module, used how

	Own       bool // this project's, which the others are compared with
	Yardstick bool // knows more than a real client can, and does not compete

	// New makes the client object that all callers of one process share. It
	// is called when the process starts, in the run's virtual time.
	New func(Env) Process

	// Fits tells in which scenarios the client makes sense; nil means in all.
	Fits func(*scenario.Scenario) bool
}

// Env is a process's knowledge of its scenario. Only clients that serve as a yardstick may look at
// the server.
type Env struct {
	Scenario *scenario.Scenario
	Process  int       // 0 for the first
	Start    time.Time // when the run began
	Seed     uint64    // for a client that draws random numbers, differs by process

	// Wait is the time until the server lets a request pass, if nothing else comes.
	Wait func() time.Duration
}

// Attempt sends one request to the simulated server. It returns nil, a *server.Error, or the
// context's error once the run or the call is over. The quota is the quota that the response
// reported, also on errors.
//
// An attempt must not be started while another of the same call runs.
type Attempt func(ctx context.Context) (server.Quota, error)

// Process is the client object of one process. Its callers use it concurrently.
// If it has a method Close, that is called when the process ends.
type Process interface {
	// Call makes one call: attempts until one succeeds or the client gives up.
	// It must return soon after ctx is done.
	Call(ctx context.Context, attempt Attempt) error
}

// ProcessFunc is a function as a Process.
type ProcessFunc func(ctx context.Context, attempt Attempt) error

// Call calls f.
func (f ProcessFunc) Call(ctx context.Context, attempt Attempt) error { return f(ctx, attempt) }

// Sleep waits for d. If ctx ends first, it returns the error of ctx. It is for clients that do not
// wait by themselves.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
