package swarm

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/delay"
	"github.com/a7df5faa/cruise/shared"
)

// A kind of limiter.
type kind string

const (
	adaptive kind = "adaptive"
	bucket   kind = "bucket"
	window   kind = "window"
	share    kind = "shared"
	delays   kind = "delay"
	none     kind = "none"
)

// A plan is all that is drawn before the run. What is drawn in the run follows from it and from the
// seeds of callers and stores.
type plan struct {
	Seed uint64

	Kind     kind
	Own      bool // limiters are made by New, not given to it
	Rate     float64
	Burst    int // 0: not set
	Min, Max float64
	Initial  float64
	Windows  []cruise.Window
	Rule     int
	Retriers int // with one limiter, or one store

	StoreFails, StoreHangs, StorePanics float64
	Fallback                            shared.Fallback
	PauseOnly                           bool

	Levels    int // of scopes
	Keys      int // in each
	ScopeKind kind

	Budget           []float64 // capacity, ratio and refill; nil: the default
	WithoutBudget    bool
	Backoff          int
	ThrottleBackoff  bool
	MaxAttempts      int // 0: not set
	MaxElapsed       time.Duration
	AttemptTimeout   time.Duration
	MaxServerDelay   time.Duration
	Uncounted        bool
	Observer         int // 0 none, 1 looks, 2 calls back, 3 panics
	Callers, Calls   int
	Think, Latency   time.Duration
	Ramp             time.Duration
	Capacity         float64 // of the server, 0: no end
	Window           time.Duration
	Outages          []outage
	Deadlines        float64 // and other shares of calls or attempts
	Cancels          float64
	MaxWaits         float64
	Background       float64
	Once             float64
	Costs            float64
	Free             float64
	Throttle, Told   float64
	Blames           float64
	Transient        float64
	Permanent, Quota float64
	Panics, Exits    float64
	Deaf             float64 // to the end of their context
	Reports, Charges float64
	Meddles          float64 // with its own limiter
	Loops            float64 // by Attempts
}

type outage struct {
	From, To  time.Duration
	Throttled bool
}

type dice struct{ *rand.Rand }

func (d dice) chance(p float64) bool { return d.Float64() < p }

// within draws from least to most, to the nanosecond, so that no two moments are the same.
func (d dice) within(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)+1))
}

// apart draws up to most, and differently for each caller, so that those who begin at one moment do
// not end at one.
func (d dice) apart(caller int, most time.Duration) time.Duration {
	return time.Duration(d.Int64N(max(100, int64(most)/64))*64 + int64(caller) + 1)
}

// share is 0 mostly, else up to most.
func (d dice) share(often, most float64) float64 {
	p := d.Float64() * most
	if !d.chance(often) {
		return 0
	}
	return p
}

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func newPlan(seed uint64) *plan {
	d := dice{rand.New(rand.NewPCG(seed, 1))}
	p := &plan{Seed: seed}
	p.Kind = pick(d, adaptive, adaptive, adaptive, bucket, bucket, window, window, share, share, delays, none)
	p.Rate = pick(d, .5, 2, 10, 50, 300) * (.5 + d.Float64())
	p.Retriers = pick(d, 1, 1, 2)
	p.Levels, p.Keys = pick(d, 0, 0, 1, 2), 1+d.IntN(4)
	p.ScopeKind = pick(d, adaptive, bucket, window)
	switch p.Kind {
	case adaptive, share:
		if p.Kind == share {
			p.Retriers = 1 + d.IntN(4)
			p.StoreFails, p.StoreHangs, p.StorePanics = d.share(.3, .5), d.share(.2, .3), d.share(.1, .1)
			p.Fallback = pick(d, shared.FallbackShare, shared.FallbackShare, shared.FallbackClosed, shared.FallbackOpen)
			p.PauseOnly = d.chance(.15)
		}
		if d.chance(.6) {
			p.Max = p.Rate
		}
		if d.chance(.3) {
			p.Initial = p.Rate * (.2 + .8*d.Float64())
		}
		if d.chance(.2) {
			p.Min = p.Rate * .2
		}
		if d.chance(.3) {
			p.Burst = 3 + d.IntN(10)
		}
		p.Own = p.Kind == adaptive && (p.ScopeKind == adaptive || d.chance(.5))
	case bucket:
		p.Burst = pick(d, 3, 5, 20)
	case window:
		p.Windows = append(p.Windows, cruise.Window{Calls: 3 + d.IntN(30), Per: d.within(time.Second/2, 20*time.Second)})
		if d.chance(.4) {
			p.Windows = append(p.Windows, cruise.Window{Calls: 40 + d.IntN(60), Per: d.within(time.Minute, time.Hour)})
		}
	case delays:
		p.Rule, p.Levels = d.IntN(5), 0
	}
	if d.chance(.7) {
		p.Budget = []float64{float64(1 + d.IntN(20)), d.Float64() * .5, d.Float64()}
	} else {
		p.WithoutBudget = d.chance(.3)
	}
	p.Backoff = d.IntN(6)
	p.ThrottleBackoff = d.chance(.2)
	if d.chance(.5) {
		p.MaxAttempts = 1 + d.IntN(8)
	}
	if d.chance(.2) {
		p.MaxElapsed = d.within(time.Second, 5*time.Minute)
	}
	if d.chance(.2) {
		p.AttemptTimeout = d.within(10*time.Millisecond, 10*time.Second)
	}
	if d.chance(.3) {
		p.MaxServerDelay = d.within(time.Second, time.Hour)
	}
	if d.chance(.15) {
		p.Uncounted, p.MaxElapsed = true, d.within(time.Minute, time.Hour)
	}
	p.Observer = pick(d, 0, 0, 1, 2, 3)
	p.Callers = 1 + d.IntN(30)
	p.Calls = 1 + d.IntN(max(1, 260/p.Callers))
	p.Think = pick(d, 0, time.Millisecond, 50*time.Millisecond, time.Second, time.Minute)
	p.Latency = pick(d, time.Microsecond, 5*time.Millisecond, 100*time.Millisecond, 3*time.Second)
	p.Ramp = pick(d, 0, time.Second, time.Minute)
	if d.chance(.6) {
		p.Capacity = pick(d, .5, 3, 20, 200) * (.5 + d.Float64())
		p.Window = pick(d, 0, time.Second, 10*time.Second, time.Minute)
	}
	for from := time.Duration(0); d.chance(.3) && len(p.Outages) < 3; {
		from += d.within(time.Second, 2*time.Minute)
		to := from + d.within(time.Second, 5*time.Minute)
		p.Outages = append(p.Outages, outage{from, to, d.chance(.5)})
		from = to
	}
	p.Deadlines, p.Cancels, p.MaxWaits = d.share(.4, 1), d.share(.4, .5), d.share(.2, .6)
	p.Background, p.Once = d.share(.4, .6), d.share(.2, .5)
	p.Costs, p.Free = d.share(.4, .8), d.share(.1, .2)
	p.Throttle, p.Told, p.Blames = d.share(.4, .4), d.share(.7, 1), d.share(.4, .8)
	p.Transient, p.Permanent, p.Quota = d.share(.5, .5), d.share(.3, .2), d.share(.1, .05)
	p.Panics, p.Exits, p.Deaf = d.share(.25, .2), d.share(.25, .2), d.share(.2, .5)
	p.Reports, p.Charges, p.Meddles = d.share(.3, .6), d.share(.2, .4), d.share(.25, .2)
	p.Loops = d.share(.5, 1)
	return p
}

// limits are the options of an adaptive or shared limiter with a maximum rate, 0 for none.
func (p *plan) limits(most float64) (opts []cruise.LimiterOption) {
	if most > 0 {
		opts = append(opts, cruise.WithMaxRate(rate.Limit(most)))
	}
	if p.Min > 0 {
		opts = append(opts, cruise.WithTuning(cruise.Tuning{MinRate: rate.Limit(p.Min)}))
	}
	if p.Initial > 0 {
		opts = append(opts, cruise.WithInitialRate(rate.Limit(p.Initial)))
	}
	if p.Burst > 0 {
		opts = append(opts, cruise.WithTuning(cruise.Tuning{Burst: p.Burst}))
	}
	return opts
}

// limiter makes the limiter of the i-th Retrier; nil if that makes its own.
func (p *plan) limiter(i int, store *shared.MemoryStore) cruise.Limiter {
	switch p.Kind {
	case bucket:
		return cruise.Must(cruise.NewTokenBucket(rate.Limit(p.Rate), p.Burst))
	case window:
		return cruise.Must(cruise.NewSlidingWindow(p.Windows...))
	case delays:
		rules := []delay.Rule{delay.Responsive(), delay.Linear(100 * time.Millisecond), delay.HerokuGradual(), delay.HerokuProportional(), delay.HerokuRemaining()}
		return cruise.Must(delay.New(rules[p.Rule]))
	case share:
		opts := []shared.Option{shared.WithFallback(p.Fallback)}
		if p.PauseOnly {
			opts = append(opts, shared.WithPauseOnly())
		}
		for _, o := range p.limits(p.Max) {
			opts = append(opts, o)
		}
		return cruise.Must(shared.New(&faultyStore{
			Store: store, plan: p, begun: time.Now(), dice: dice{rand.New(rand.NewPCG(p.Seed, 1000+uint64(i)))},
		}, opts...))
	case adaptive:
		if !p.Own {
			return cruise.Must(cruise.NewAdaptiveLimiter(p.limits(p.Max)...))
		}
	}
	return nil
}

// The limits of keys that are not adaptive. They differ from key to key, as else timers of several
// keys would fire at one moment, in an order that no seed decides.
const scopeBurst = 4

func (p *plan) scopeRate(name string) float64 { return p.Rate * (.4 + spread(name)) }

func (p *plan) scopeWindow(name string) cruise.Window {
	return cruise.Window{Calls: 5, Per: time.Duration((1.5 + spread(name)) * 1e9)}
}

// most is the maximum rate of the limiter of a key beside a maximum for all.
func (p *plan) most(name string) float64 { return p.Max * (1 + spread(name)) }

func nameOf(retrier int, scope, key string) string { return fmt.Sprint(retrier, "/", scope, "=", key) }

// spread is from 0 to .25.
func spread(name string) float64 {
	h := fnv.New64a()
	io.WriteString(h, name)
	return rand.New(rand.NewPCG(h.Sum64(), 0)).Float64() / 4
}

// options are those of each Retrier.
func (p *plan) options(i int, l cruise.Limiter, budget *cruise.Budget, o cruise.Observer) (opts []cruise.Option) {
	add := func(when bool, o func() cruise.Option) {
		if when {
			opts = append(opts, o())
		}
	}
	add(l != nil, func() cruise.Option { return cruise.WithLimiter(l) })
	add(p.Kind == none, cruise.WithoutLimiter)
	if p.Own {
		for _, o := range p.limits(p.Max) {
			opts = append(opts, o)
		}
	}
	add(p.ScopeKind != adaptive || p.Own && p.Max > 0, func() cruise.Option {
		return cruise.WithScopeLimiter(func(scope, key string) (cruise.Limiter, error) {
			switch p.ScopeKind {
			case adaptive:
				return cruise.NewAdaptiveLimiter(p.limits(p.most(nameOf(i, scope, key)))...)
			case bucket:
				return cruise.NewTokenBucket(rate.Limit(p.scopeRate(nameOf(i, scope, key))), scopeBurst)
			}
			return cruise.NewSlidingWindow(p.scopeWindow(nameOf(i, scope, key)))
		})
	})
	add(budget != nil, func() cruise.Option { return cruise.WithBudget(budget) })
	add(p.WithoutBudget, cruise.WithoutBudget)
	switch p.Backoff {
	case 1:
		opts = append(opts, cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(300*time.Millisecond))))
	case 2:
		opts = append(opts, cruise.WithBackoff(cruise.Must(cruise.NewBackoff(cruise.DecorrelatedJitter()))))
	case 3:
		opts = append(opts, cruise.WithBackoff(cruise.Must(cruise.LinearBackoff(time.Second, time.Minute))))
	case 4:
		opts = append(opts, cruise.WithBackoff(cruise.GoogleBackoff()))
	case 5:
		opts = append(opts, cruise.WithBackoff(func(retry int, previous time.Duration) time.Duration {
			return previous + time.Duration(retry)*7*time.Millisecond
		}))
	}
	add(p.ThrottleBackoff, func() cruise.Option { return cruise.WithThrottleBackoff(cruise.AWSBackoff()) })
	add(p.MaxAttempts > 0, func() cruise.Option { return cruise.WithMaxAttempts(p.MaxAttempts) })
	add(p.MaxElapsed > 0, func() cruise.Option { return cruise.WithMaxElapsed(p.MaxElapsed) })
	add(p.AttemptTimeout > 0, func() cruise.Option { return cruise.WithAttemptTimeout(p.AttemptTimeout) })
	add(p.MaxServerDelay > 0, func() cruise.Option { return cruise.WithMaxServerDelay(p.MaxServerDelay) })
	add(p.Uncounted, cruise.WithUncountedThrottles)
	add(o != nil, func() cruise.Option { return cruise.WithObserver(o) })
	return opts
}

func (p *plan) String() string { return fmt.Sprintf("%+v", *p) }
