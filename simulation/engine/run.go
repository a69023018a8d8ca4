// Package engine runs real client code against simulated servers under
// virtual time: every caller is a goroutine in a testing/synctest bubble,
// every sleep takes no time at all, and half an hour is over in milliseconds.
package engine

import (
	"context"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/server"
)

// Run plays a scenario with one kind of client. Server and latency draw their
// random numbers from the seed, and a client by itself: see [Batch].
func Run(s *scenario.Scenario, c Client, seed uint64) *Recording {
	r := newRun(s, c, seed)
	// A bubble wants a *testing.T only to fail it, which nothing here does. A
	// blank one serves, and lets runs work in a plain program and side by side.
	synctest.Test(new(testing.T), func(*testing.T) {
		r.play()
		time.Sleep(time.Minute) // what clients do in the background ends: time stands when this returns
	})
	return r.rec
}

// run is one run in progress.
type run struct {
	scenario *scenario.Scenario
	client   Client
	seed     uint64
	start    time.Time

	mu     sync.Mutex // guards the fields below
	server *server.Server
	rec    *Recording
	left   int // successes until the end, if the scenario counts them
	jobs   int // calls not yet begun, if their number is limited
	over   bool
	stop   context.CancelFunc
}

func newRun(s *scenario.Scenario, c Client, seed uint64) *run {
	r := &run{scenario: s, client: c, seed: seed, left: s.Calls, jobs: s.Job}
	expected := s.Duration
	if s.Finite() > 0 {
		expected = min(expected, 2*s.Ideal().Time)
	}
	callers := s.Callers
	if s.Arrivals > 0 {
		callers = 1
	}
	r.rec = &Recording{
		Scenario: s, Client: c.Name, Seed: seed,
		Callers: make([]Caller, s.Processes*callers),
		Odd:     make([]Caller, s.Processes*s.Odd.Callers),
		Width:   max(1, (expected+bins-1)/bins),
		Bins:    make([]Bin, 0, bins+1),
	}
	r.server = server.New(s.Server, r.rand(0))
	return r
}

// rand is a source of random numbers for one part of the run.
func (r *run) rand(part uint64) *rand.Rand {
	h := fnv.New64a()
	io.WriteString(h, r.scenario.Name)
	return rand.New(rand.NewPCG(r.seed, h.Sum64()+part))
}

// play is the run, inside its bubble.
func (r *run) play() {
	r.start = time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.stop = cancel
	end := time.AfterFunc(r.scenario.Duration, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.finish(r.scenario.Duration)
	})
	defer end.Stop()

	var wg sync.WaitGroup
	for p := range r.scenario.Processes {
		wg.Go(func() { r.process(ctx, p) })
	}
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finish(r.now())
}

func (r *run) now() time.Duration { return time.Since(r.start) }

// wait returns how long the server still refuses all requests.
func (r *run) wait() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server.Wait(r.now())
}

// finish ends the run at t, once. The caller holds mu.
func (r *run) finish(t time.Duration) {
	if r.over {
		return
	}
	r.over = true
	r.rec.Elapsed = t
	r.rec.bin(t - 1) // so that the bins reach the end, also if no request came any more
	r.server.Finish(t)
	r.rec.Rivals = r.server.Rivals
	for i := range r.rec.Callers {
		c := &r.rec.Callers[i]
		r.rec.waited(c, max(c.since, min(t, r.scenario.Present(c.Process).To)))
	}
	r.stop()
}

// process is the life of one process.
func (r *run) process(ctx context.Context, p int) {
	here := r.scenario.Present(p)
	per := len(r.rec.Callers) / r.scenario.Processes
	own := r.rec.Callers[p*per : (p+1)*per]
	for i := range own {
		own[i].Process = p
		own[i].since = max(here.From, r.scenario.Warm)
	}
	if Sleep(ctx, here.From) != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if here.To < r.scenario.Duration {
		defer time.AfterFunc(here.To-here.From, cancel).Stop()
	}
	client := r.client.New(Env{Scenario: r.scenario, Process: p, Start: r.start, Seed: r.seed<<16 + uint64(p), Wait: r.wait})
	if c, ok := client.(io.Closer); ok {
		defer c.Close()
	}

	var wg sync.WaitGroup
	if r.scenario.Arrivals > 0 {
		r.arrive(ctx, &wg, client, p, &own[0])
	} else {
		for i := range own {
			c := &caller{run: r, index: i, rec: &own[i], rng: r.rand(uint64(p*per+i) + 1)}
			wg.Go(func() { c.loop(ctx, client, r.scenario.Every, per) })
		}
	}
	for i := range r.scenario.Odd.Callers {
		n := p*r.scenario.Odd.Callers + i
		c := &caller{run: r, index: i, rec: &r.rec.Odd[n], rng: r.rand(1<<62 + uint64(n)), odd: true}
		wg.Go(func() { c.loop(ctx, client, r.scenario.Odd.Every, r.scenario.Odd.Callers) })
	}
	wg.Wait()
}

// loop is a caller of a closed loop: one call after the other. Of n callers that begin calls
// now and then, each begins with another part of that time.
func (c *caller) loop(ctx context.Context, client Process, every time.Duration, n int) {
	r := c.run
	attempt := Attempt(c.attempt)
	turn := r.now() + every*time.Duration(c.index)/time.Duration(n)
	for ctx.Err() == nil {
		if until, idle := r.scenario.Idle(r.now()); idle && Sleep(ctx, until-r.now()+apart(c.rng)) != nil {
			return
		}
		if every > 0 {
			if c.rest(ctx, turn-r.now()) != nil {
				return
			}
			turn = r.now() + every
		}
		if until := r.scenario.Odd.Until; c.odd && until > 0 && r.now() >= until {
			return
		}
		sent := c.sent
		if !c.begin() {
			return
		}
		err := r.call(ctx, client, c, attempt)
		if err != nil && c.sent == sent {
			// A client that refuses without asking the server would spin here.
			Sleep(ctx, r.scenario.Latency)
		}
	}
}

// arrive makes calls at random times, done or not the ones before.
func (r *run) arrive(ctx context.Context, wg *sync.WaitGroup, client Process, p int, rec *Caller) {
	rng := r.rand(1<<63 + uint64(p)) // apart from the random numbers of the calls
	rate := r.scenario.Arrivals / float64(r.scenario.Processes)
	for n := uint64(1); Sleep(ctx, time.Duration(rng.ExpFloat64()/rate*float64(time.Second))) == nil; n++ {
		c := &caller{run: r, rec: rec, rng: r.rand(uint64(p)<<32 + n)}
		c.begin()
		wg.Go(func() { r.call(ctx, client, c, c.attempt) })
	}
}

// call makes a call, within its deadline, and counts it if it failed and it was not the run
// that ended it.
func (r *run) call(ctx context.Context, client Process, c *caller, attempt Attempt) error {
	one, cancel := ctx, context.CancelFunc(func() {})
	if d := r.scenario.Deadline; d > 0 {
		one, cancel = context.WithTimeout(ctx, d)
	}
	defer cancel()
	err := client.Call(one, attempt)
	if err == nil || ctx.Err() != nil || c.odd {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.Failed++
	return err
}

// caller sends requests, one at a time.
type caller struct {
	run   *run
	index int // in its process
	odd   bool
	rec   *Caller
	rng   *rand.Rand
	sent  int
}

// begin counts a call, unless the run is over, and tells whether there is one left to make.
func (c *caller) begin() bool {
	r := c.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.odd {
		return true
	}
	if r.scenario.Job > 0 && r.jobs == 0 {
		r.rec.waited(c.rec, r.now())
		c.rec.done = true
		return false
	}
	r.jobs--
	if !r.over {
		r.rec.Calls++
	}
	return true
}

// rest waits for the time of the next call, which is no wait for a success.
func (c *caller) rest(ctx context.Context, d time.Duration) error {
	c.run.mu.Lock()
	if c.rec.since <= c.run.now() {
		c.rec.since += max(0, d)
	}
	c.run.mu.Unlock()
	return Sleep(ctx, d+apart(c.rng))
}

// apart is a time too short to matter. It keeps goroutines from waking up at the same instant, where
// their order follows from no seed.
func apart(rng *rand.Rand) time.Duration { return time.Duration(rng.IntN(100_000)) }

// attempt sends one request: half of its latency passes before the server
// decides, half after.
func (c *caller) attempt(ctx context.Context) (server.Quota, error) {
	if err := ctx.Err(); err != nil {
		return server.Quota{}, err
	}
	c.sent++
	s := c.run.scenario
	latency := time.Duration(float64(s.Latency) * (1 + s.Jitter*(2*c.rng.Float64()-1)))
	time.Sleep(latency / 2)
	reply, timeout, ok := c.run.decide(c, latency)
	if !ok {
		return server.Quota{}, context.Canceled
	}
	if timeout {
		time.Sleep(s.Timeout - latency/2)
		return server.Quota{}, &server.Error{Timeout: true}
	}
	time.Sleep(reply.Hold + latency - latency/2)
	if reply.Throttled || reply.Failed {
		return reply.Quota, &server.Error{Throttled: reply.Throttled, RetryAfter: reply.RetryAfter, Quota: reply.Quota}
	}
	return reply.Quota, nil
}

// decide lets the server answer a request that reaches it now, and writes it
// down. A success counts from now on, unless the client will have stopped waiting.
func (r *run) decide(from *caller, latency time.Duration) (reply server.Reply, timeout, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return reply, false, false
	}
	now, c := r.now(), from.rec
	if from.odd {
		c.Requests++
		return r.scenario.Odd.Reply(now), false, true
	}
	reply = r.server.Of(from.index).Take(now)
	timeout = r.scenario.Timeout > 0 && latency+reply.Hold > r.scenario.Timeout
	if now < r.scenario.Warm {
		return reply, timeout, true
	}
	bin := r.rec.bin(now)
	bin.Requests++
	c.Requests++
	switch {
	case reply.Throttled:
		bin.Throttled++
		c.Throttled++
	case reply.Failed, timeout:
		c.Errors++
	default:
		bin.Successes++
		c.Successes++
		r.rec.waited(c, now)
		if c.Process == r.scenario.Processes-1 && r.scenario.Joins() {
			r.rec.Newcomer = append(r.rec.Newcomer, now)
		}
		if r.left > 0 {
			if r.left--; r.left == 0 {
				r.finish(now)
			}
		}
	}
	return reply, timeout, true
}
