package server

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func build(t *testing.T, spec Spec) *Server {
	t.Helper()
	return New(spec, rand.New(rand.NewPCG(1, 2)))
}

func passes(s *Server, at time.Duration) bool { return !s.Take(at).Throttled }

func TestSignalsHaveNames(t *testing.T) {
	seen := map[string]Signal{}
	for _, s := range append(Signals, Reset) {
		if other, ok := seen[s.String()]; ok || s.String() == "" {
			t.Errorf("%q is %b and %b", s, s, other)
		}
		seen[s.String()] = s
	}
}

func TestBucketServesItsBurstAndThenItsRate(t *testing.T) {
	s := build(t, Spec{Kind: Bucket, Rate: Constant(4), Burst: 4})
	n := 0
	for at := time.Duration(0); at < 10*time.Second; at += time.Millisecond {
		if passes(s, at) {
			n++
		}
	}
	if want := 4 + 39; n != want {
		t.Errorf("%d passed in 10 s, want %d", n, want)
	}
}

func TestRetryAfterIsExact(t *testing.T) {
	specs := map[string]Spec{
		"bucket":                       {Kind: Bucket, Rate: Constant(3), Burst: 2},
		"bucket whose limit rises":     {Kind: Bucket, Rate: Schedule{{0, .5}, {time.Second, 7}}, Burst: 2},
		"fixed":                        {Kind: FixedWindow, Rate: Constant(3), Window: 2 * time.Second},
		"fixed whose limit rises":      {Kind: FixedWindow, Rate: Schedule{{0, 1}, {time.Second, 3}}, Window: 2 * time.Second},
		"fixed whose limit falls":      {Kind: FixedWindow, Rate: Schedule{{0, 3}, {time.Second, 1}}, Window: 2 * time.Second},
		"fixed that rises later":       {Kind: FixedWindow, Rate: Schedule{{0, 1}, {time.Second, .5}, {1500 * time.Millisecond, 3}}, Window: 2 * time.Second},
		"sliding":                      {Kind: SlidingWindow, Rate: Constant(3), Window: 2 * time.Second},
		"sliding whose limit rises":    {Kind: SlidingWindow, Rate: Schedule{{0, 1}, {time.Second, 3}}, Window: 2 * time.Second},
		"sliding whose limit falls":    {Kind: SlidingWindow, Rate: Schedule{{0, 3}, {time.Second, 1}}, Window: 2 * time.Second},
		"sliding that falls and rises": {Kind: SlidingWindow, Rate: Schedule{{0, 3}, {time.Second, 1}, {2150 * time.Millisecond, 2}}, Window: 2 * time.Second},
		"concurrency":                  {Kind: Concurrency, Burst: 2, Work: 300 * time.Millisecond},
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			spec.Signal = RetryAfter
			early, late := build(t, spec), build(t, spec)
			at := 100 * time.Millisecond
			for range 20 {
				r := late.Take(at)
				early.Take(at)
				if !r.Throttled {
					at += 7 * time.Millisecond
					continue
				}
				if passes(early, at+r.RetryAfter-2*time.Nanosecond) {
					t.Fatalf("two nanoseconds before %v passes", r.RetryAfter)
				}
				at += r.RetryAfter
				if !passes(late, at) || !passes(early, at) {
					t.Fatalf("after %v it does not pass", r.RetryAfter)
				}
			}
		})
	}
}

func TestRetryAfterMayBeRoundedUpOrWrong(t *testing.T) {
	for _, c := range []struct {
		rate   float64
		signal Signal
		lie    float64
		want   time.Duration
	}{
		{.8, RetryAfter, 0, 1250 * time.Millisecond},
		{.8, RetryAfter | WholeSeconds, 0, 2 * time.Second},
		{.5, RetryAfter | WholeSeconds, 0, 2 * time.Second},
		{20, RetryAfter | WholeSeconds, 0, time.Second},
		{.8, RetryAfter, .1, 125 * time.Millisecond},
		{.8, RetryAfter, 10, 12500 * time.Millisecond},
		{.8, Remaining, 0, 0},
	} {
		s := build(t, Spec{Kind: Bucket, Rate: Constant(c.rate), Burst: 1, Signal: c.signal, Lie: c.lie})
		s.Take(0)
		if got := s.Take(0).RetryAfter; got != c.want {
			t.Errorf("%v a second, signal %b, lie %v: Retry-After %v, want %v", c.rate, c.signal, c.lie, got, c.want)
		}
	}
}

func TestNoWindowHoldsMoreThanItsLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, kind := range []Kind{FixedWindow, SlidingWindow} {
		s := build(t, Spec{Kind: kind, Rate: Constant(10), Window: time.Second})
		var passed []time.Duration
		for at := time.Duration(0); at < 30*time.Second; at += time.Duration(rng.Int64N(int64(60 * time.Millisecond))) {
			if passes(s, at) {
				passed = append(passed, at)
			}
		}
		if len(passed) < 290 {
			t.Errorf("%v: only %d of 300 passed", kind, len(passed))
		}
		for i := range len(passed) - 10 {
			a, b := passed[i], passed[i+10]
			if kind == SlidingWindow && b-a < time.Second || kind == FixedWindow && a/time.Second == b/time.Second {
				t.Errorf("%v: eleven from %v to %v", kind, a, b)
			}
		}
	}
}

func TestAnEmptyServerServesNoCallAtFirst(t *testing.T) {
	for _, c := range []struct {
		spec  Spec
		first time.Duration
	}{
		{Spec{Kind: Bucket, Rate: Constant(5), Burst: 10}, 200 * time.Millisecond},
		{Spec{Kind: FixedWindow, Rate: Constant(5), Window: 2 * time.Second}, 2 * time.Second},
		{Spec{Kind: SlidingWindow, Rate: Constant(5), Window: 2 * time.Second}, 200 * time.Millisecond},
	} {
		c.spec.Empty = true
		s := build(t, c.spec)
		at := time.Duration(0)
		for !passes(s, at) {
			at += time.Millisecond
		}
		if at != c.first {
			t.Errorf("%v: the first passes at %v, want %v", c.spec.Kind, at, c.first)
		}
	}
}

func TestQuotaTellsTheRest(t *testing.T) {
	for _, spec := range []Spec{
		{Kind: Bucket, Rate: Constant(1), Burst: 3},
		{Kind: FixedWindow, Rate: Constant(1), Window: 3 * time.Second},
		{Kind: SlidingWindow, Rate: Constant(1), Window: 3 * time.Second},
		{Kind: Concurrency, Burst: 3, Work: 3 * time.Second},
	} {
		spec.Signal = Remaining | Reset
		s := build(t, spec)
		for _, left := range []int{2, 1, 0, 0} {
			q := s.Take(0).Quota
			if !q.Known || q.Limit != 3 || q.Remaining != left {
				t.Errorf("%v: quota %+v, want %d of 3 left", spec.Kind, q, left)
			}
		}
		spec.Signal |= NoLimit
		if q := build(t, spec).Take(0).Quota; !q.Known || q.Limit != 0 || q.Remaining != 2 {
			t.Errorf("%v: quota %+v, want 2 left of nobody knows how many", spec.Kind, q)
		}
		if reset := s.Take(0).Quota.Reset; reset != 3*time.Second {
			t.Errorf("%v: whole again in %v, want 3s", spec.Kind, reset)
		}
	}
}

func TestOutagesThrottleWithoutAReasonAndFailuresAreNoThrottles(t *testing.T) {
	span := []Span{{time.Second, 2 * time.Second}}
	s := build(t, Spec{Kind: Bucket, Rate: Constant(9), Burst: 9, Signal: RetryAfter, Down: span})
	if r := s.Take(time.Second); !r.Throttled || r.RetryAfter != 0 {
		t.Errorf("in the outage: %+v", r)
	}
	if r := s.Take(2 * time.Second); r.Throttled {
		t.Errorf("after the outage: %+v", r)
	}
	s = build(t, Spec{Kind: Bucket, Rate: Constant(9), Burst: 9, Broken: span})
	if r := s.Take(time.Second); r.Throttled || !r.Failed {
		t.Errorf("while broken: %+v", r)
	}
}

func TestGreedyCompetitorTakesAllItCan(t *testing.T) {
	s := build(t, Spec{Kind: Bucket, Rate: Constant(10), Burst: 10, Greedy: 5})
	s.Finish(100 * time.Second)
	if s.Rivals < 480 || s.Rivals > 520 {
		t.Errorf("the competitor got %d, want about 500", s.Rivals)
	}
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		least, most = min(least, s.gap()), max(most, s.gap())
	}
	if least < 100*time.Millisecond || least > 105*time.Millisecond || most < 295*time.Millisecond || most > 300*time.Millisecond {
		t.Errorf("its gaps are from %v to %v, want half to one and a half of 200ms", least, most)
	}
	half := []Span{{0, 50 * time.Second}}
	for _, spec := range []Spec{{Down: half}, {Broken: half}} {
		spec.Kind, spec.Rate, spec.Burst, spec.Greedy = Bucket, Constant(10), 10, 5
		s = build(t, spec)
		s.Finish(100 * time.Second)
		if s.Rivals < 230 || s.Rivals > 270 {
			t.Errorf("the competitor got %d of a server that works half of the time, want about 250", s.Rivals)
		}
	}
}

func TestQueueMakesEverybodyWait(t *testing.T) {
	s := build(t, Spec{Kind: Queue, Rate: Constant(10), Stall: []Span{{time.Second, 3 * time.Second}}})
	for _, c := range []struct{ at, hold time.Duration }{
		{0, 100 * time.Millisecond},
		{0, 200 * time.Millisecond},
		{time.Second, 2100 * time.Millisecond},
		{time.Second, 2200 * time.Millisecond},
	} {
		if got := s.Take(c.at).Hold; got != c.hold {
			t.Errorf("at %v: held for %v, want %v", c.at, got, c.hold)
		}
	}
}

func TestScheduleAddsUp(t *testing.T) {
	s := Schedule{{0, 10}, {time.Second, 0}, {3 * time.Second, 4}}
	for _, c := range []struct {
		a, b time.Duration
		want float64
	}{{0, time.Second, 10}, {500 * time.Millisecond, 2 * time.Second, 5}, {0, 4 * time.Second, 14}, {2 * time.Second, time.Second, 0}} {
		if got := s.Between(c.a, c.b); got != c.want {
			t.Errorf("from %v to %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
	if got := s.After(500*time.Millisecond, 7); got != 3*time.Second {
		t.Errorf("seven more after %v, want 3s", got)
	}
}

func TestALimitMayBeSeveral(t *testing.T) {
	s := build(t, Spec{Kind: FixedWindow, Rate: Constant(1), Window: 10 * time.Second, Signal: RetryAfter | Remaining,
		And: []Spec{{Kind: FixedWindow, Rate: Constant(4), Window: time.Second}}})
	for _, c := range []struct {
		at    time.Duration
		wait  time.Duration // 0 passes
		rest  int           // of ten
		about string
	}{
		{0, 0, 9, "the first of four in a second"},
		{100 * time.Millisecond, 0, 8, "the second"},
		{200 * time.Millisecond, 0, 7, "the third"},
		{300 * time.Millisecond, 0, 6, "the fourth"},
		{400 * time.Millisecond, 600 * time.Millisecond, 6, "one too many for the second, which takes nothing of the ten"},
		{time.Second, 0, 5, "the next second"},
		{1100 * time.Millisecond, 0, 4, ""}, {1200 * time.Millisecond, 0, 3, ""}, {1300 * time.Millisecond, 0, 2, ""},
		{2 * time.Second, 0, 1, "and the one after it"}, {2100 * time.Millisecond, 0, 0, ""},
		{2200 * time.Millisecond, 7800 * time.Millisecond, 0, "one too many for the ten"},
		{10 * time.Second, 0, 9, "the next ten seconds"},
	} {
		if r := s.Take(c.at); r.Throttled != (c.wait > 0) || r.RetryAfter != c.wait || r.Quota.Remaining != c.rest {
			t.Errorf("at %v, %s: %+v", c.at, c.about, r)
		}
	}
}

func TestMethodsHaveLimitsOfTheirOwn(t *testing.T) {
	one := func(n float64) Spec { return Spec{Kind: Bucket, Rate: Constant(1), Burst: n} }
	s := build(t, Spec{Methods: []Spec{one(1), one(3)}})
	passed := make([]int, 4)
	for i := range passed {
		for range 2 {
			if passes(s.Of(i), 0) {
				passed[i]++
			}
		}
	}
	// Callers 0 and 2 share one method, 1 and 3 the other.
	if want := []int{1, 2, 0, 1}; !slices.Equal(passed, want) {
		t.Errorf("%v passed, want %v", passed, want)
	}
}

func TestAPenaltyRefusesEverything(t *testing.T) {
	s := build(t, Spec{Kind: Bucket, Rate: Constant(1), Burst: 1, Penalty: 30 * time.Second, Signal: RetryAfter})
	for _, c := range []struct{ at, wait time.Duration }{
		{0, 0}, {500 * time.Millisecond, 30 * time.Second}, {2 * time.Second, 28500 * time.Millisecond},
		{30500 * time.Millisecond, 0}, {31500 * time.Millisecond, 0},
	} {
		if r := s.Take(c.at); r.RetryAfter != c.wait || r.Throttled != (c.wait > 0) {
			t.Errorf("at %v: %+v, want a wait of %v", c.at, r, c.wait)
		}
	}
}

func TestAShareIsThrottledByChance(t *testing.T) {
	s := build(t, Spec{Kind: Bucket, Rate: Constant(1), Burst: 20_000, Chance: .01})
	throttled, passed := 0, 0
	for range 10_000 {
		if s.Take(0).Throttled {
			throttled++
		} else {
			passed++
		}
	}
	if throttled < 60 || throttled > 140 {
		t.Errorf("%d of 10,000 throttled, want about 100", throttled)
	}
	if _, left, _ := s.model.quota(0); int(left+.5) != 20_000-passed {
		t.Errorf("%v tokens left after %d requests that passed: a throttle takes none", left, passed)
	}
}

func TestToldWaitsMayBeConstantOrWhole(t *testing.T) {
	s := build(t, Spec{Kind: Bucket, Rate: Constant(10), Burst: 2, Says: time.Minute, Signal: Remaining | ResetSeconds})
	for _, want := range []Reply{
		{Quota: Quota{Known: true, Limit: 2, Remaining: 1, Reset: time.Second}},
		{Quota: Quota{Known: true, Limit: 2, Reset: time.Second}},
		{Throttled: true, RetryAfter: time.Minute, Quota: Quota{Known: true, Limit: 2, Reset: time.Second}},
	} {
		if got := s.Take(0); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// Each success drops the fraction of a token.
func TestABucketOfWholeTokens(t *testing.T) {
	s := build(t, Spec{Kind: Bucket, Rate: Constant(10), Burst: 2, Whole: true, Signal: RetryAfter})
	for _, c := range []struct{ at, wait time.Duration }{
		{0, 0}, {50 * time.Millisecond, 0}, // the half of a token is lost
		{100 * time.Millisecond, 50 * time.Millisecond}, {150 * time.Millisecond, 0},
		{340 * time.Millisecond, 0}, // and nearly one here
		{390 * time.Millisecond, 50 * time.Millisecond},
		{640 * time.Millisecond, 0}, {640 * time.Millisecond, 0}, // two of three: no more than two are kept
		{640 * time.Millisecond, 100 * time.Millisecond},
	} {
		if r := s.Take(c.at); r.RetryAfter != c.wait {
			t.Errorf("at %v: %+v, want a wait of %v", c.at, r, c.wait)
		}
	}
}

func TestACounterWeighsTheWindowBefore(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name      string
		countsAll bool
		takes     []time.Duration
		at        time.Duration
		passes    bool
		rest      int
		wait      time.Duration
	}{
		{name: "the first window", takes: []time.Duration{0, 0, 0}, at: s, passes: true, rest: 0},
		{name: "a full window", takes: []time.Duration{0, 0, 0, 0}, at: s, rest: 0, wait: 9*s + 1250*time.Millisecond},
		{name: "little of the next is over", takes: []time.Duration{0, 0, 0, 0}, at: 11 * s, rest: 0, wait: 250 * time.Millisecond},
		{name: "enough of it is over", takes: []time.Duration{0, 0, 0, 0}, at: 12 * s, passes: true, rest: 0},
		{name: "half of it is over", takes: []time.Duration{0, 0, 0, 0}, at: 15 * s, passes: true, rest: 1},
		{name: "two windows later", takes: []time.Duration{0, 0, 0, 0}, at: 20 * s, passes: true, rest: 3},
		{name: "what is refused counts", countsAll: true, takes: []time.Duration{0, 0, 0, 0, 0, 0, 0, 0}, at: 15 * s, rest: 0, wait: 1875 * time.Millisecond},
	} {
		srv := build(t, Spec{Kind: Counter, Rate: Constant(.4), Window: 10 * s, CountsAll: c.countsAll, Signal: RetryAfter | Remaining})
		for _, at := range c.takes {
			srv.Take(at)
		}
		r := srv.Take(c.at)
		if r.Throttled == c.passes || r.Quota.Remaining != c.rest || (r.RetryAfter-c.wait).Abs() > 2 {
			t.Errorf("%s: %+v", c.name, r)
		}
		if early, late := c.at+r.RetryAfter-2, c.at+r.RetryAfter; r.Throttled && !c.countsAll && (passes(srv, early) || !passes(srv, late)) {
			t.Errorf("%s: it passes before %v, or not then", c.name, late)
		}
	}
}
