package swarm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/shared"
)

// A node is a limiter, as the checks know it.
type node struct {
	name  string
	kind  kind
	scope string // "" for that of a Retrier
	store bool   // is the same on all Retriers
}

// An entry is what happened at one moment.
type entry struct {
	at     time.Duration
	seq    int
	what   what
	call   *call
	number int   // of the attempt
	nodes  []int // concerned, the outermost first
	cost   int
	told   time.Duration // to wait
	limit  float64
	alone  bool // concerns this call alone, perhaps
	result string
}

type what uint8

const (
	admitted what = iota
	ended
	paused
	resumed
	relimited
	charged
	came
)

// A call is one Do.
type call struct {
	caller, number int
	retrier        int
	path           []int
	came, gone     time.Duration
	cost           int
	background     bool
	attempts       int
	last           error // of the server, or the end of a context
	server         error // of the server alone
	went           time.Duration
	succeeded      bool
	row            int  // of throttles, up to now
	leaves         bool // without a word on how the attempt ended
}

// A world is one run.
type world struct {
	*plan
	start    time.Time
	retriers []*cruise.Retrier
	budget   *cruise.Budget
	nodes    []node
	byName   map[string]int

	mu      sync.Mutex // guards the fields below
	log     []entry
	faults  []string
	healthy bool
	tokens  float64 // of the server
	filled  time.Duration
	busy    map[int]string // what callers do
	refused map[int]int    // retries, by the innermost node
}

func (w *world) now() time.Duration { return time.Since(w.start) }

func (w *world) note(e entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.at, e.seq = w.now(), len(w.log)
	w.log = append(w.log, e)
}

func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf("%v: ", w.now())+fmt.Sprintf(format, args...))
}

func (w *world) node(n node) int {
	if i, ok := w.byName[n.name]; ok {
		return i
	}
	w.byName[n.name] = len(w.nodes)
	w.nodes = append(w.nodes, n)
	return len(w.nodes) - 1
}

// A place is where calls go: a Retrier, or one of its scopes.
type place struct {
	*cruise.Retrier
	index int
	path  []int
}

func (w *world) places() (all []place) {
	for i, r := range w.retriers {
		var path []int
		if w.Kind != none {
			name := "root"
			if w.Kind == share || w.Own {
				name = fmt.Sprint("root", i)
			}
			path = []int{w.node(node{name: name, kind: w.Kind, store: w.Kind == share})}
		}
		if w.Levels == 0 {
			all = append(all, place{r, i, path})
			continue
		}
		for k := range w.Keys {
			inner, within := r, path
			for l := range w.Levels {
				scope := fmt.Sprint("scope", l)
				key := fmt.Sprint(k)
				if l+1 < w.Levels {
					key = fmt.Sprint(k / 2) // two keys within one
				}
				inner = inner.Scope(scope, key)
				within = append(slices.Clone(within), w.node(node{name: nameOf(i, scope, key), kind: w.ScopeKind, scope: scope}))
			}
			all = append(all, place{inner, i, within})
		}
	}
	return all
}

// A faultyStore is far away, and fails at times.
type faultyStore struct {
	shared.Store
	*plan
	begun time.Time
	dice  dice
}

func (f *faultyStore) Sync(ctx context.Context, q shared.Request) (shared.Reply, error) {
	there, back := f.dice.within(time.Microsecond, 20*time.Millisecond), f.dice.within(time.Microsecond, 20*time.Millisecond)
	fails, hangs, panics, lost := f.dice.chance(f.StoreFails), f.dice.chance(f.StoreHangs), f.dice.chance(f.StorePanics), f.dice.chance(.5)
	if time.Since(f.begun) > storeFaults {
		fails, hangs, panics = false, false, false
	}
	time.Sleep(there)
	switch {
	case panics:
		panic("store")
	case hangs:
		if lost {
			time.Sleep(4 * time.Second) // whatever the context says
		}
		<-ctx.Done()
		return shared.Reply{}, ctx.Err()
	case fails && !lost:
		return shared.Reply{}, errors.New("store is down")
	}
	r, err := f.Store.Sync(ctx, q)
	time.Sleep(back)
	if fails {
		return shared.Reply{}, errors.New("answer is lost")
	}
	return r, err
}

// aloneAfter is how many retries a limiter sees refused before a throttle may concern its call alone.
const aloneAfter = 2

// perhapsAlone reports whether a throttle may concern its call alone.
func (w *world) perhapsAlone(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	inner := c.path[len(c.path)-1]
	if c.row > 1 {
		w.refused[inner]++
	}
	return w.refused[inner] >= aloneAfter
}

// storeFaults is how long stores fail, and patience after which a caller that has not ended counts as starved.
const (
	storeFaults = 20 * time.Minute
	patience    = 60 * 24 * time.Hour
)

// run is the whole run, within its bubble.
func (w *world) run() {
	w.start, w.byName, w.busy, w.refused = time.Now(), map[string]int{}, map[int]string{}, map[int]int{}
	if w.Budget != nil {
		w.budget = cruise.Must(cruise.NewBudget(w.Budget[0], w.Budget[1], w.Budget[2]))
	}
	var observer cruise.Observer
	if w.Observer > 0 {
		observer = cruise.ObserverFunc(w.observe)
	}
	store := shared.NewMemoryStore()
	var common cruise.Limiter
	for i := range w.Retriers {
		if i == 0 || w.Kind == share {
			common = w.limiter(i, store)
		}
		w.retriers = append(w.retriers, cruise.Must(cruise.New(w.options(i, common, w.budget, observer)...)))
	}
	places := w.places()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch := time.AfterFunc(patience, func() {
		w.mu.Lock()
		busy := fmt.Sprint(w.busy)
		w.mu.Unlock()
		w.fault("still under way: %s", busy)
		cancel()
	})
	var wg sync.WaitGroup
	for c := range w.Callers {
		wg.Go(func() {
			d := dice{rand.New(rand.NewPCG(w.Seed, 10_000+uint64(c)))}
			time.Sleep(d.apart(c, w.Ramp))
			for n := range w.Calls {
				if ctx.Err() != nil {
					return
				}
				w.one(ctx, d, places[d.IntN(len(places))], c, n)
				time.Sleep(d.apart(c, 2*w.Think))
			}
		})
	}
	wg.Wait()
	watch.Stop()
	for _, r := range w.retriers {
		for s := range r.Scopes() {
			if s.Waiting != 0 {
				w.fault("%d wait at %v in the end", s.Waiting, s.Path)
			}
		}
	}
	if len(w.faults) == 0 {
		w.probe(places)
	}
	time.Sleep(time.Minute) // for syncs, and for stores that hang
}

// probe makes a call of every place. All faults have ended, so each must get through.
func (w *world) probe(places []place) {
	w.mu.Lock()
	w.healthy = true
	w.mu.Unlock()
	if w.Kind == share {
		time.Sleep(max(0, storeFaults-w.now()))
	}
	for _, r := range w.retriers {
		for s := range r.Scopes() {
			if l, ok := s.Limiter.(interface{ Resume() }); ok {
				l.Resume()
			}
		}
	}
	began := w.now()
	for _, p := range places {
		ok, tries := false, 0
		var err error
		for ; !ok && tries < 20; tries++ {
			err = p.Do(context.Background(), func(context.Context) error { ok = true; return nil }, cruise.WithMaxElapsed(patience))
			if !ok {
				time.Sleep(time.Minute)
			}
		}
		if !ok || w.now()-began > 7*24*time.Hour {
			w.fault("a last call did not get through in %d tries: %v", tries, err)
			return
		}
	}
}

// observe looks at all there is, from within an event.
func (w *world) observe(ctx context.Context, e cruise.Event) {
	if w.Observer == 3 {
		panic("observer")
	}
	r := w.retriers[0]
	_ = cruise.ScopeOf(ctx)
	r.Budget().Left()
	order := time.Duration(0)
	for s := range r.Scopes() {
		order++
		if w.Observer < 2 {
			continue
		}
		h := uint64(w.now())*0x9E3779B97F4A7C15 + w.Seed // chance without an order
		if l, ok := s.Limiter.(interface {
			Pause(time.Duration)
			WaitN(context.Context, int) error
		}); ok && h>>40%50 == 0 && (w.Kind != share || len(s.Path) > 0) {
			l.Pause(time.Duration(h>>40%1000)*64 + order)
			_ = l.WaitN(ctx, 0)
		}
	}
	_ = fmt.Sprint(e)
}

// one makes one call.
func (w *world) one(ctx context.Context, d dice, p place, caller, number int) {
	c := &call{caller: caller, number: number, retrier: p.index, path: p.path, cost: 1}
	var opts []cruise.CallOption
	if d.chance(w.Costs) {
		c.cost = 1 + d.IntN(3)
		opts = append(opts, cruise.WithCost(c.cost))
	}
	if d.chance(w.Free) {
		c.cost = 0
		opts = append(opts, cruise.WithCost(0))
	}
	if c.background = d.chance(w.Background); c.background {
		opts = append(opts, cruise.WithBackground())
	}
	if d.chance(w.Once) {
		opts = append(opts, cruise.WithoutRetries())
	}
	if d.chance(w.MaxWaits) {
		opts = append(opts, cruise.WithMaxWait(d.within(0, pick(d, 0, time.Second, time.Minute))))
	}
	stop := context.CancelFunc(func() {})
	if d.chance(w.Deadlines) {
		ctx, stop = context.WithTimeout(ctx, d.within(1, pick(d, 10*time.Millisecond, time.Second, time.Minute, time.Hour)))
	}
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d.chance(w.Cancels) {
		defer time.AfterFunc(d.within(1, pick(d, 10*time.Millisecond, time.Second, time.Minute)), func() { cancel(errors.New("given up")) }).Stop()
	}
	loop, leave := d.chance(w.Loops), d.chance(.1)
	c.leaves = loop && leave
	c.came = w.now()
	w.mu.Lock()
	w.busy[caller] = fmt.Sprintf("call %d since %v", number, c.came)
	w.mu.Unlock()
	w.note(entry{what: came, call: c, nodes: c.path, cost: c.cost})
	attempt := func(ctx context.Context) error { return w.attempt(ctx, d, p, c) }

	var err error
	returned, left := false, false
	done := make(chan struct{})
	go func() { // as the call may end its goroutine
		defer close(done)
		defer func() { _ = recover() }()
		if !loop {
			err = p.Do(ctx, attempt, opts...)
		} else {
			for a, end := range p.Attempts(ctx, opts...) {
				if err = end; end != nil {
					break
				}
				err = attempt(a.Context())
				if leave {
					left = true
					break
				}
				if a.Done(err); err == nil {
					break
				}
			}
		}
		returned = true
	}()
	<-done
	c.gone = w.now()
	w.mu.Lock()
	delete(w.busy, caller)
	w.mu.Unlock()
	if returned && !left {
		w.checkEnd(ctx, c, err)
	}
}

// checkEnd checks what a call ended with.
func (w *world) checkEnd(ctx context.Context, c *call, err error) {
	e, ok := errors.AsType[*cruise.Error](err)
	switch {
	case err == nil && !c.succeeded:
		w.fault("call %d.%d ended well without success", c.caller, c.number)
	case err != nil && c.succeeded:
		w.fault("call %d.%d succeeded and ended with %v", c.caller, c.number, err)
	case err == nil:
	case !ok:
		if c.last == nil || !errors.Is(err, c.last) {
			w.fault("call %d.%d ended with %v, said last was %v", c.caller, c.number, err, c.last)
		}
	case e.Attempts != c.attempts:
		w.fault("call %d.%d: %v tells %d attempts of %d", c.caller, c.number, err, e.Attempts, c.attempts)
	case c.attempts == 0 && e.Last != nil:
		w.fault("call %d.%d was never made and has %v", c.caller, c.number, e.Last)
	case c.server != nil && ctx.Err() != nil && !errors.Is(e.Last, c.server) && !errors.Is(e.Last, c.last),
		c.last != nil && ctx.Err() == nil && !errors.Is(e.Last, c.last):
		w.fault("call %d.%d: %v hides what was said last: %v", c.caller, c.number, err, c.last)
	case e.Reason == nil || e.RetryAfter < 0 || e.Paused < 0 || e.Ahead < 0:
		w.fault("call %d.%d: %+v", c.caller, c.number, e)
	}
}

// attempt is one attempt of a call, at the server.
func (w *world) attempt(ctx context.Context, d dice, p place, c *call) (err error) {
	c.attempts++
	number := c.attempts
	if number == 1 {
		c.went = w.now()
	}
	w.note(entry{what: admitted, call: c, number: number, nodes: c.path, cost: c.cost})
	result, told, blamed := "left", time.Duration(0), []int(nil)
	defer func() {
		w.note(entry{what: ended, call: c, number: number, result: result, told: told, nodes: blamed, cost: c.cost})
		if result == "throttled" {
			c.row++
		} else {
			c.row = 0
		}
		alone := len(c.path) > 0 && w.perhapsAlone(c)
		if told > 0 && c.cost > 0 && len(blamed) > 0 && !c.leaves {
			w.note(entry{what: paused, call: c, number: number, nodes: blamed, told: told, alone: alone})
		}
	}()

	took, deaf := d.apart(c.caller, 2*w.Latency), d.chance(w.Deaf)
	timer := time.NewTimer(took)
	defer timer.Stop()
	end := ctx.Done()
	if deaf {
		end = nil
	}
	select {
	case <-timer.C:
	case <-end:
		time.Sleep(time.Duration(c.caller + 1)) // not all at one moment
		result, c.last = "given up", ctx.Err()
		if cause := context.Cause(ctx); w.AttemptTimeout > 0 && strings.Contains(cause.Error(), "WithAttemptTimeout") {
			c.server = cause // what the next attempt may end with, if the call is given up then
		}
		return ctx.Err()
	}
	if d.chance(w.Meddles) {
		w.meddle(d, p)
		time.Sleep(time.Duration(c.caller + 1)) // what that let go went before what follows
	}
	if d.chance(w.Reports) {
		cruise.Report(ctx, cruise.Quota{Limit: d.IntN(100), Remaining: d.IntN(100), Reset: d.within(0, time.Minute)})
	}
	if n := d.IntN(6) - 2; d.chance(w.Charges) && c.cost > 0 && n != 0 {
		if n < 0 {
			w.note(entry{what: charged, call: c, nodes: c.path, cost: n, number: number})
		}
		cruise.Charge(ctx, n)
		if n > 0 {
			w.note(entry{what: charged, call: c, nodes: c.path, cost: n, number: number})
		}
	}

	refused := w.refuses(d)
	throttled, waits, transient, permanent, quota := d.chance(w.Throttle), d.chance(w.Told), d.chance(w.Transient), d.chance(w.Permanent), d.chance(w.Quota)
	panics, exits, blames := d.chance(w.Panics), d.chance(w.Exits), d.chance(w.Blames)
	wait := d.within(1, pick(d, 20*time.Millisecond, time.Second, 30*time.Second, 10*time.Minute))
	scope := pick(d, "scope0", "scope1", "elsewhere")
	said := fmt.Errorf("answer %d.%d.%d", c.caller, c.number, number)
	var hints []cruise.Hint
	if waits {
		hints = append(hints, cruise.RetryAfter(wait))
	}
	if blames {
		hints = append(hints, cruise.InScope(scope))
	}
	if len(c.path) > 0 {
		blamed = c.path[len(c.path)-1:]
		if blames {
			blamed = c.path[:1]
			for _, n := range c.path {
				if w.nodes[n].scope == scope {
					blamed = []int{n}
				}
			}
		}
	}
	switch {
	case panics:
		result, blamed = "panicked", nil
		panic("call")
	case exits:
		result, blamed = "exited", nil
		runtime.Goexit()
	case refused == "throttled" || throttled:
		result, err = "throttled", cruise.Throttled(said, hints...)
	case quota:
		result, err = "quota", cruise.QuotaExhausted(said, hints...)
	case refused == "down" || transient:
		result, err, blamed = "transient", cruise.Transient(said), nil
	case permanent:
		result, err, blamed = "permanent", cruise.Permanent(said), nil
	default:
		result, blamed, c.succeeded = "ok", nil, true
		return nil
	}
	if waits && blamed != nil {
		told = wait
	}
	c.last, c.server = said, said
	return err
}

// refuses reports why the server takes no call now, "" if it does.
func (w *world) refuses(d dice) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if w.healthy {
		return ""
	}
	for _, o := range w.Outages {
		if o.From <= now && now < o.To {
			if o.Throttled {
				return "throttled"
			}
			return "down"
		}
	}
	if w.Capacity == 0 {
		return ""
	}
	if w.Window > 0 {
		if now/w.Window != w.filled/w.Window || w.filled == 0 {
			w.tokens = max(1, w.Capacity*w.Window.Seconds())
		}
	} else {
		w.tokens = min(max(1, w.Capacity), w.tokens+w.Capacity*(now-w.filled).Seconds())
	}
	w.filled = now
	if w.tokens < 1 {
		return "throttled"
	}
	w.tokens--
	return ""
}

// meddle changes the limiter from within a call.
func (w *world) meddle(d dice, p place) {
	how, wait, factor := d.IntN(4), d.within(1, pick(d, time.Second, time.Minute)), .5+d.Float64()
	l := p.Limiter()
	if l == nil {
		return
	}
	inner := p.path[len(p.path)-1:]
	switch how {
	case 0:
		if l, ok := l.(interface{ Pause(time.Duration) }); ok {
			l.Pause(wait)
			w.note(entry{what: paused, nodes: inner, told: wait})
		}
	case 1:
		if l, ok := l.(interface{ Resume() }); ok {
			w.note(entry{what: resumed, nodes: inner})
			l.Resume()
		}
	default:
		limit := w.Rate * factor
		if w.Max > 0 {
			limit = min(limit, w.Max)
		}
		limit = max(limit, w.Min)
		if l, ok := l.(interface{ SetLimit(rate.Limit) error }); ok {
			if err := l.SetLimit(rate.Limit(limit)); err != nil {
				w.fault("SetLimit(%v): %v", limit, err)
			}
			w.note(entry{what: relimited, nodes: inner, limit: limit})
		}
	}
}

// trace is what happened, in an order that does not depend on that of goroutines at one moment.
func (w *world) trace() []string {
	var lines []string
	for _, e := range w.log {
		if e.what == admitted || e.what == ended {
			lines = append(lines, fmt.Sprintf("%20d %3d.%d.%d %s%s", e.at, e.call.caller, e.call.number, e.number, strings.Repeat(" ", int(e.what)), e.result))
		}
	}
	slices.Sort(lines)
	return lines
}
