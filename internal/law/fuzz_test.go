package law

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Whatever happens, the rate stays within its bounds, no call is shut out for good, and one call
// at a time probes a closed server.
func FuzzLaw(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(5) {
		f.Add(anyScript(rand.New(rand.NewPCG(seed, 1))))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if err := play(script); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRandomScripts(t *testing.T) {
	for seed := range uint64(3000) {
		script := anyScript(rand.New(rand.NewPCG(seed, 0)))
		require.NoError(t, play(script), "seed %d", seed)
	}
}

func anyScript(random *rand.Rand) []byte {
	script := make([]byte, random.IntN(2000))
	for i := range script {
		script[i] = byte(random.Uint32())
	}
	if random.IntN(2) == 0 { // long stretches of the same, as many rules look at many calls
		n := 1 + random.IntN(8)
		for i := range script {
			if i >= n && random.IntN(50) > 0 {
				script[i] = script[i-n]
			}
		}
	}
	return script
}

// A play of a script drives a law, and knows what is true of it from outside.
type player struct {
	script   []byte
	law      *Law
	now      clock.Instant
	sent     []clock.Instant // of calls in flight
	moved    clock.Instant   // when a call was last let go or done
	shutAt   clock.Instant   // the last throttle that was not late
	row      int             // throttles until a success, as in the law
	passed   bool            // something has succeeded
	lastStop clock.Instant   // until when everyone pauses
}

// next takes a number below n from the script, 0 where it has ended.
func (p *player) next(n int) int {
	if len(p.script) == 0 {
		return 0
	}
	b := p.script[0]
	p.script = p.script[1:]
	return int(b) % n
}

// span is 0 to some weeks, or nearly endless.
func (p *player) span() time.Duration {
	switch exp := p.next(16); exp {
	case 0:
		return 0
	case 15:
		return clock.Farthest
	default:
		return time.Duration(math.Pow(10, float64(exp)) * (1 + float64(p.next(9))))
	}
}

func (p *player) number() int {
	return []int{0, 1, p.next(10), p.next(256), 10 * p.next(256), 1000 * p.next(256), math.MaxInt32}[p.next(7)]
}

func play(script []byte) error {
	p := player{script: script, now: clock.Instant(time.Hour)}
	c := Config{Min: []float64{.001, 1. / 600, 2, 1e6}[p.next(4)], Max: inf, Decrease: .5, Increase: .1}
	if p.next(2) == 0 {
		c.Max = c.Min * []float64{1, 10, 1e6}[p.next(3)]
	}
	if p.next(4) == 0 {
		c.Decrease, c.Increase = []float64{.01, .5, .99}[p.next(3)], []float64{.001, .1, 1}[p.next(3)]
	}
	p.law = New(c)
	if !math.IsInf(c.Max, 1) || p.next(2) == 0 {
		p.law.SetRate(p.now, min(c.Max, c.Min*1000))
	}
	for step := 0; len(p.script) > 0; step++ {
		what, err := p.step()
		if err == nil {
			err = p.check()
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", step, what, err)
		}
	}
	return nil
}

func (p *player) step() (what string, err error) {
	l := p.law
	switch op := p.next(32); op {
	case 0, 1, 2, 3:
		if d := p.span(); d < 30*24*time.Hour {
			p.now = p.now.Add(d)
		}
		return "time goes by", nil
	case 4: // by call intervals
		p.now = p.now.Add(clock.CeilSeconds(min(1e6, float64(p.next(256))/64*l.gap())))
		return "a call interval goes by", nil
	case 5:
		l.Held(p.now)
		return "held", nil
	case 6:
		l.Free(p.now)
		return "free", nil
	case 7:
		rate := l.Max
		if p.next(2) == 0 {
			rate = min(l.Max, l.Min*math.Pow(10, float64(p.next(8))))
		}
		l.SetRate(p.now, rate)
		return "set rate", nil
	case 8:
		p.lastStop = p.now.Add(min(p.span(), 24*time.Hour))
		l.Stop(p.now, p.lastStop)
		return "stop", nil
	case 9:
		l.Settle()
		return "settle", nil
	case 10:
		p.now = max(p.now, min(p.lastStop, p.now.Add(24*time.Hour)))
		return "the pause goes by", nil
	case 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
		return "send", p.send()
	case 21, 22:
		wait := l.Wait(p.now)
		if wait > patienceMost && !l.unpaced() {
			return "wait", fmt.Errorf("wait of %v at a closed server", wait)
		}
		if wait < time.Hour {
			p.now = p.now.Add(wait)
			if again := l.Wait(p.now); again != 0 {
				return "wait", fmt.Errorf("wait of %v after %v", again, wait)
			}
		}
		return "wait", p.send()
	default:
		return "done", p.done(op)
	}
}

func (p *player) send() error {
	l, closed := p.law, p.row >= closedRow
	wait := l.Wait(p.now)
	if wait > 0 || p.now < p.lastStop {
		l.Held(p.now)
		return nil
	}
	if closed && len(p.sent) > 0 && p.now.Sub(p.moved) < patience {
		return fmt.Errorf("a second probe after %v", p.now.Sub(p.moved))
	}
	l.Sent(p.now)
	p.sent, p.moved = append(p.sent, p.now), p.now
	if closed && l.Wait(p.now) < patience {
		return fmt.Errorf("wait of %v beside a probe", l.Wait(p.now))
	}
	return nil
}

func (p *player) done(op int) error {
	a := Attempt{Kind: []Kind{Success, Success, Success, Success, Success, Throttle, Throttle, Kind(p.next(5)), Nothing}[op-23], Cost: 1}
	if len(p.sent) > 0 {
		i := p.next(len(p.sent))
		a.Sent = p.sent[i]
		p.sent = slices.Delete(p.sent, i, i+1)
	} // else somebody tells of a call that was never let go
	extras := p.next(16)
	if extras == 1 {
		a.Sent = 0
	}
	if extras&3 == 2 {
		a.Cost = p.next(256) // 0 is of somebody who does not know better
	}
	if a.Kind == Throttle && extras&4 > 0 {
		a.RetryAfter = p.span()
	}
	if extras&8 > 0 {
		a.Quota = &Quota{Limit: p.number(), Remaining: p.number(), Reset: p.span()}
	}
	a.Late = a.Sent != 0 && a.Sent <= p.shutAt
	was := p.law.Rate()
	d := p.law.Done(p.now, a)
	is := p.law.Rate()
	pause := a.RetryAfter
	if a.Kind == Throttle && a.RetryAfter == 0 && !a.Late {
		pause = min(d.AtMost, p.span())
	}
	p.law.Rest(p.now, a, pause, p.next(2) == 0)
	if pause > 0 {
		p.lastStop = max(p.lastStop, p.now.Add(pause))
	}
	p.moved = p.now
	cold := math.IsInf(was, 1) && !p.passed
	switch succeeded := a.Kind == Success || a.Kind == Denied; {
	case succeeded && (!a.Late || !p.passed):
		p.row, p.passed = 0, true
	case succeeded:
		p.passed = true
	case a.Kind == Throttle && !a.Late:
		p.shutAt = p.now
		p.row++
		if a.RetryAfter > 0 && p.law.row >= closedRow { // one that is long closes by itself
			p.row = max(p.row, closedRow)
		}
	}
	switch {
	case p.row != p.law.row:
		return fmt.Errorf("%d throttles in a row, want %d", p.law.row, p.row)
	case d.AtMost < 0:
		return fmt.Errorf("a pause of %v at most", d.AtMost)
	case d.Cold != cold:
		return fmt.Errorf("cold %v", d.Cold)
	case a.Kind == Throttle && is > was, (a.Kind == Nothing || a.Kind == Passed) && is != was:
		return fmt.Errorf("from %v to %v for kind %d", was, is, a.Kind)
	case a.Kind == Throttle && a.Late && is != was:
		return fmt.Errorf("from %v to %v for a late throttle", was, is)
	}
	return nil
}

// check looks at what must be true at any time.
func (p *player) check() error {
	l := p.law
	within := func(rate float64) bool { return rate >= l.Min && rate <= l.Max || math.IsInf(rate, 1) }
	in, renewed := l.Renewed(p.now)
	switch {
	case !within(l.Rate()):
		return fmt.Errorf("rate %v", l.Rate())
	case !math.IsInf(l.Max, 1) && math.IsInf(l.Rate(), 1):
		return fmt.Errorf("no rate, at a maximum of %v", l.Max)
	case !(l.Soon() >= l.Rate()):
		return fmt.Errorf("rate %v, and %v soon", l.Rate(), l.Soon())
	case in < 0 || !(renewed > 0):
		return fmt.Errorf("rate %v in %v", renewed, in)
	case l.InFlight() != len(p.sent):
		return fmt.Errorf("%d in flight, want %d", l.InFlight(), len(p.sent))
	case l.silent < 0 || l.silent > l.inflight:
		return fmt.Errorf("%d silent of %d", l.silent, l.inflight)
	case !(l.window >= 1):
		return fmt.Errorf("window %v", l.window)
	case l.Wait(p.now) < 0 || l.InFlight() == 0 && l.Wait(p.now) > 0:
		return fmt.Errorf("wait of %v", l.Wait(p.now))
	case !(l.Delivered(p.now) > 0):
		return fmt.Errorf("delivered %v", l.Delivered(p.now))
	case l.delivered.baseAt < 0 || l.delivered.baseAt > l.delivered.clock(p.now):
		return fmt.Errorf("counts from %v of %v", l.delivered.baseAt, l.delivered.clock(p.now))
	}
	for name, v := range map[string]float64{
		"ceiling": l.ceiling, "price": l.price, "unspread": l.unspread, "spare": l.spare, "given": l.given,
		"share": l.share, "short latency": l.short, "long latency": l.long, "part": l.ours.of(l.cost),
	} {
		if !(v >= 0) {
			return fmt.Errorf("%s %v", name, v)
		}
	}
	return nil
}
