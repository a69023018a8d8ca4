package cruise

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

func TestNewDelayLimiter(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name   string
		change func(*DelayRule)
		want   string // in the error; "" for none
	}{
		{"as it is", func(*DelayRule) {}, ""},
		{"no factor is 1", func(r *DelayRule) { r.Factor = 0 }, ""},
		{"longest", func(r *DelayRule) { r.First, r.Max = clock.Farthest, clock.Farthest }, ""},
		{"no first", func(r *DelayRule) { r.First = 0 }, "First 0s"},
		{"negative first", func(r *DelayRule) { r.First = -1 }, "First -1ns"},
		{"negative step", func(r *DelayRule) { r.Add = -1 }, "Add -1ns"},
		{"factor below 1", func(r *DelayRule) { r.Factor = justBelow1 }, "Factor"},
		{"factor NaN", func(r *DelayRule) { r.Factor = nan }, "Factor NaN"},
		{"factor infinite", func(r *DelayRule) { r.Factor = inf }, "Factor +Inf"},
		{"max below first", func(r *DelayRule) { r.Max = r.First - 1 }, "Max"},
		{"max too far", func(r *DelayRule) { r.Max = math.MaxInt64 }, "Max"},
		{"negative every", func(r *DelayRule) { r.Every = -1 }, "Every -1"},
		{"lowering by 1", func(r *DelayRule) { r.LowerFactor = 1 }, "LowerFactor 1"},
		{"lowering by less than nothing", func(r *DelayRule) { r.LowerFactor = -.1 }, "LowerFactor -0.1"},
		{"lowering NaN", func(r *DelayRule) { r.LowerFactor = nan }, "LowerFactor NaN"},
		{"lowering negative", func(r *DelayRule) { r.LowerBy = -1 }, "LowerBy"},
		{"remaining negative", func(r *DelayRule) { r.LowerRemaining = -1 }, "LowerRemaining"},
		{"nothing lowers", func(r *DelayRule) { r.LowerFactor = 0 }, "nothing lowers"},
		{"none below negative", func(r *DelayRule) { r.NoneBelow = -1 }, "NoneBelow"},
		{"jitter above 1", func(r *DelayRule) { r.JitterBelow, r.JitterAbove = 1.1, 1.1 }, "JitterBelow 1.1: want 0 to 1\ncruise: DelayRule: JitterAbove 1.1"},
		{"jitter below 0", func(r *DelayRule) { r.JitterBelow, r.JitterAbove = -.1, -.1 }, "JitterBelow -0.1: want 0 to 1\ncruise: DelayRule: JitterAbove -0.1"},
		{"jitter at its highest", func(r *DelayRule) { r.JitterBelow, r.JitterAbove = 1, 1 }, ""},
		{"jitter NaN", func(r *DelayRule) { r.JitterBelow = nan }, "JitterBelow NaN"},
		{"jitter max negative", func(r *DelayRule) { r.JitterMax = -1 }, "JitterMax"},
		{"zero", func(r *DelayRule) { *r = DelayRule{} }, "First 0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule := ResponsiveDelay()
			tt.change(&rule)
			d, err := NewDelayLimiter(rule)
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want != "" && (err == nil || d != nil || !strings.Contains(err.Error(), tt.want)):
				t.Fatalf("got %v, %v, want an error with %q", d, err, tt.want)
			}
		})
	}
}

var presets = map[string]DelayRule{
	"responsive":          ResponsiveDelay(),
	"linear":              LinearDelay(time.Second),
	"Heroku gradual":      HerokuGradual(),
	"Heroku proportional": HerokuProportional(),
	"Heroku remaining":    HerokuRemaining(),
}

func TestDelayPresets(t *testing.T) {
	const up, ok = "up", "ok"
	n := func(n int, event string) []string {
		return strings.Split(strings.Repeat(","+event, n)[1:], ",")
	}
	for _, tt := range []struct {
		rule   string
		quota  *Quota
		events []string
		want   time.Duration
	}{
		{"responsive", nil, n(1, up), 500 * ms},
		{"responsive", nil, n(3, up), 1125 * ms},
		{"responsive", nil, n(100, up), 15 * time.Minute},
		{"responsive", nil, append(n(3, up), n(9, ok)...), 1125 * ms},
		{"responsive", nil, append(n(3, up), n(10, ok)...), 1012500 * time.Microsecond},
		{"responsive", nil, append(n(1, up), n(10, ok)...), 0},
		{"responsive", nil, slices.Concat(n(3, up), n(9, ok), n(1, up), n(9, ok)), 1687500 * time.Microsecond},
		{"linear", nil, n(5, up), 5 * time.Second},
		{"linear", nil, append(n(5, up), ok), 0},
		{"linear", nil, n(2000, up), 15 * time.Minute},
		// What the Ruby client shares after so many throttles of one call and its
		// success: 0.8 s × (1.2 + 1.2² + …), less what a success takes.
		{"Heroku gradual", nil, n(1, up), 960 * ms},
		{"Heroku gradual", nil, n(100, up), 15 * time.Minute},
		{"Heroku gradual", nil, append(n(1, up), ok), 160 * ms},
		{"Heroku gradual", &Quota{Remaining: 50, Limit: 100}, append(n(1, up), ok), 160 * ms},
		{"Heroku gradual", nil, append(n(3, up), ok), 2694400 * time.Microsecond},
		{"Heroku gradual", nil, append(n(1, up), ok, ok), 0},
		{"Heroku proportional", nil, append(n(3, up), ok), 3493623466},
		{"Heroku remaining", &Quota{Remaining: 2250}, append(n(3, up), ok), 1747200 * time.Microsecond},
		{"Heroku remaining", &Quota{Remaining: 4500}, append(n(3, up), ok), 0},
		{"Heroku remaining", &Quota{Remaining: 90000}, append(n(3, up), ok), 0},
		{"Heroku remaining", &Quota{Remaining: 0}, append(n(3, up), ok), 3494400 * time.Microsecond},
		{"Heroku remaining", &Quota{Remaining: 10, Limit: 100}, append(n(3, up), ok), 3144960 * time.Microsecond},
		{"Heroku remaining", nil, append(n(3, up), ok), 3494400 * time.Microsecond},
	} {
		d := delays{rule: presets[tt.rule]}
		d.rule.Factor = max(1, d.rule.Factor)
		for i, event := range tt.events {
			at := clock.Instant(1).Add(time.Duration(i+1) * time.Minute)
			e := ending{outcome: OutcomeSuccess, sent: at - clock.Instant(time.Second), quota: tt.quota}
			if event == up {
				e.outcome, e.quota = OutcomeThrottled, nil
			}
			d.learn(at, e)
		}
		if d.delay != tt.want {
			t.Errorf("%s, %d events, quota %v: got %v, want %v", tt.rule, len(tt.events), tt.quota, d.delay, tt.want)
		}
	}
}

// The settings of the example in "Responsive exponential backoff in Go" give the
// curve that it describes: past 291.9 ms while shorter delays fail, then never
// long below 60 ms when that is enough.
func TestResponsiveDelayCurve(t *testing.T) {
	d := Must(NewDelayLimiter(priyan()))
	enough := 291900 * time.Microsecond
	var climb []time.Duration
	for d.Delay() < enough {
		d.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
		climb = append(climb, d.Delay())
	}
	if got := climb[len(climb)-1]; len(climb) != 15 || got.Round(100*time.Microsecond) != enough {
		t.Fatalf("climbed %v", climb)
	}
	enough = 60 * ms
	var low, high time.Duration = clock.Never, 0
	settled := false
	for i := range 1000 {
		outcome := OutcomeSuccess
		if d.Delay() < enough {
			outcome, settled = OutcomeThrottled, true
		}
		d.Learn(Feedback{Outcome: outcome, Cost: 1})
		if settled && i > 50 {
			low, high = min(low, d.Delay()), max(high, d.Delay())
		}
	}
	if low < 36*ms || high > 90*ms {
		t.Errorf("settled from %v to %v", low, high)
	}
}

// The rule of the article, at its ends.
func TestResponsiveDelayBounds(t *testing.T) {
	r := ResponsiveDelay()
	for _, tt := range []struct {
		name      string
		got, want time.Duration
	}{
		{"the first", r.raised(0), 500 * ms},
		{"the second", r.raised(500 * ms), 750 * ms},
		{"the longest", r.raised(14 * time.Minute), 15 * time.Minute},
		{"lowered", r.lowered(time.Second, nil), 900 * ms},
		{"lowered to the least", r.lowered(555555556, nil), 500 * ms},
		{"lowered to none", r.lowered(555*ms, nil), 0},
		{"luck", r.jittered(time.Second, 0), 700 * ms},
		{"bad luck", r.jittered(time.Second, 1), 1300 * ms},
		{"luck at the longest", r.jittered(15*time.Minute, 0), 13 * time.Minute},
		{"bad luck at the longest", r.jittered(15*time.Minute, 1), 17 * time.Minute},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	if r.Every != 10 || !r.EachThrottle {
		t.Errorf("%+v", r)
	}
}

func priyan() DelayRule {
	return DelayRule{
		First: ms, Factor: 1.5, Max: 15 * time.Minute, EachThrottle: true,
		Every: 5, LowerFactor: .6, NoneBelow: ms,
	}
}

// plain is a rule without jitter.
var plain = DelayRule{First: time.Second, Factor: 2, Max: time.Minute, LowerBy: time.Second}

func TestDelayWaitersWaitSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Must(NewDelayLimiter(plain))
		start := time.Now()
		_ = d.WaitN(t.Context(), 1)
		if time.Since(start) != 0 {
			t.Error("waits before the first throttle")
		}
		d.Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1})
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				came := time.Now()
				_ = d.WaitN(t.Context(), 1+i*100)
				if got := time.Since(came); got != time.Second {
					t.Errorf("waiter %d waited %v", i+1, got)
				}
			})
			synctest.Wait()
			if n := d.Stats().Waiting; n != i+1 {
				t.Errorf("%d wait", n)
			}
			time.Sleep(100 * ms)
		}
		wg.Wait()
		s := d.Stats()
		if want := (DelayStats{Delay: time.Second, Calls: 6, WentUp: 1, Slept: 5, TotalSleep: 5 * time.Second}); s != want {
			t.Errorf("got %+v, want %+v", s, want)
		}
	})
}

// What is counted is how often the delay moved.
func TestDelayCountsItsMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Must(NewDelayLimiter(DelayRule{First: time.Second, Max: time.Second, LowerRemaining: 10}))
		for _, q := range []*Quota{nil, {Remaining: 10}} {
			for range 3 {
				time.Sleep(ms)
				d.Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1})
			}
			d.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1, Quota: q})
		}
		if s := d.Stats(); s.WentUp != 1 || s.WentDown != 1 || s.Delay != 0 || s.PauseLeft != 0 {
			t.Errorf("%+v", s)
		}
		d.Pause(time.Minute)
		if s := d.Stats(); s.PauseLeft != time.Minute {
			t.Errorf("%+v", s)
		}
	})
}

// Answers lower the delay, whatever they say; failures do not.
func TestDelayGoesDownByAnswers(t *testing.T) {
	for outcome, want := range map[Outcome]time.Duration{
		OutcomeSuccess: 0, OutcomePermanent: 0,
		OutcomeTransient: time.Second, OutcomeQuotaExhausted: time.Second, OutcomeDropped: time.Second,
	} {
		t.Run(outcome.String(), func(t *testing.T) {
			d := Must(NewDelayLimiter(plain))
			d.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
			d.Learn(Feedback{Outcome: outcome, Cost: 1})
			if got := d.Delay(); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// The throttles of one burst raise the delay once, unless the rule says otherwise.
func TestDelayOfABurst(t *testing.T) {
	for each, want := range map[bool]time.Duration{false: time.Second, true: 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			rule := plain
			rule.EachThrottle = each
			d := Must(NewDelayLimiter(rule))
			sent := time.Now()
			for range 3 {
				time.Sleep(ms)
				d.Learn(Feedback{Outcome: OutcomeThrottled, Sent: sent, Cost: 1})
			}
			if got := d.Delay(); got != want {
				t.Errorf("each %v: %v, want %v", each, got, want)
			}
		})
	}
}

func TestDelayChangeReachesWaiters(t *testing.T) {
	throttled := func(sent time.Time) Feedback {
		return Feedback{Outcome: OutcomeThrottled, Sent: sent, Cost: 1}
	}
	for _, tt := range []struct {
		name   string
		change func(*DelayLimiter) // half a second after the waiter came, with a delay of 1 s
		want   time.Duration       // that it waits in all
	}{
		{"nothing", func(*DelayLimiter) {}, time.Second},
		{"raised", func(d *DelayLimiter) { d.Learn(throttled(time.Now())) }, 2 * time.Second},
		{"raised by a late throttle", func(d *DelayLimiter) { d.Learn(throttled(time.Now().Add(-time.Second))) }, time.Second},
		{"lowered to none", func(d *DelayLimiter) { d.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1}) }, 500 * ms},
		{"dropped", func(d *DelayLimiter) { d.Learn(Feedback{Outcome: OutcomeDropped, Cost: 1}) }, time.Second},
		{"never admitted", func(d *DelayLimiter) { d.Learn(Feedback{Outcome: OutcomeThrottled}) }, time.Second},
		{"paused for less", func(d *DelayLimiter) { d.Pause(100 * ms) }, time.Second},
		{"paused", func(d *DelayLimiter) { d.Pause(3 * time.Second) }, 3500 * ms},
		{"paused and resumed", func(d *DelayLimiter) { d.Pause(3 * time.Second); d.Resume() }, time.Second},
		{"told to wait", func(d *DelayLimiter) {
			d.Learn(Feedback{Outcome: OutcomeQuotaExhausted, Cost: 1, RetryAfter: 5 * time.Second})
		}, 5500 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := Must(NewDelayLimiter(plain))
				d.Learn(throttled(time.Now()))
				start := time.Now()
				done := make(chan time.Duration)
				go func() {
					_ = d.WaitN(t.Context(), 1)
					done <- time.Since(start)
				}()
				time.Sleep(500 * ms)
				tt.change(d)
				got := <-done
				// Whoever waited through a pause leaves within one delay after it.
				if spread := got - tt.want; spread < 0 || spread > 0 && (tt.want < 3*time.Second || spread >= time.Second) {
					t.Errorf("waited %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestDelayStaysInBounds(t *testing.T) {
	for name, rule := range presets {
		d := delays{rule: rule}
		if d.rule.JitterMax == 0 {
			d.rule.JitterMax = clock.Never
		}
		d.rule.Factor = max(1, d.rule.Factor)
		for i := range 100_000 {
			e := ending{outcome: OutcomeThrottled, quota: &Quota{Remaining: i % 5000}}
			if i%977 > 10 {
				e.outcome = OutcomeSuccess
			}
			d.learn(clock.Instant(i+1), e)
			if d.delay < 0 || d.delay > rule.Max || d.delay > 0 && d.delay < rule.NoneBelow {
				t.Fatalf("%s: delay %v", name, d.delay)
			}
			for _, luck := range []float64{0, .5, 1} {
				got := float64(d.rule.jittered(d.delay, luck))
				least, most := float64(d.delay)*(1-rule.JitterBelow)-1, float64(d.delay)*(1+rule.JitterAbove)+1
				if got < least || got > most {
					t.Fatalf("%s: %v of %v", name, got, d.delay)
				}
				if limit := rule.JitterMax; limit > 0 && math.Abs(got-float64(d.delay)) > float64(limit) {
					t.Fatalf("%s: %v of %v", name, got, d.delay)
				}
			}
		}
	}
}

// Callers that come at once and have different luck go by their luck, not by
// who came first.
func TestDelayJitterSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := plain
		rule.JitterBelow, rule.JitterAbove = .3, .3
		d := Must(NewDelayLimiter(rule))
		d.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
		var mu sync.Mutex
		seen := make(map[time.Duration]bool)
		var wg sync.WaitGroup
		start := time.Now()
		for range 200 {
			wg.Go(func() {
				_ = d.WaitN(t.Context(), 1)
				got := time.Since(start)
				if got < 700*ms || got > 1300*ms {
					t.Errorf("waited %v", got)
				}
				mu.Lock()
				seen[got] = true
				mu.Unlock()
			})
		}
		wg.Wait()
		if len(seen) < delayLevels-2 { // 200 callers miss 3 of 16 once in 10^14 runs
			t.Errorf("%d different waits", len(seen))
		}
	})
}

func TestDelayRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Must(NewDelayLimiter(plain))
		d.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
		if err := d.WaitN(t.Context(), -1); err == nil {
			t.Error("negative cost")
		}
		if err := d.WaitN(t.Context(), 0); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-1)
		defer cancel()
		start := time.Now()
		if err := d.WaitN(ctx, 1); !errors.Is(err, ErrDeadline) || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(300*ms, cancel)
		if err := d.WaitN(ctx, 1); !errors.Is(err, context.Canceled) || time.Since(start) != 300*ms {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if s := d.Stats(); s.Waiting != 0 || s.Calls != 0 {
			t.Errorf("%+v", s)
		}
		// One that waits is told once the delay, or a pause, has grown too long for it.
		for _, f := range []Feedback{
			{Outcome: OutcomeThrottled, Cost: 1},
			{Outcome: OutcomeQuotaExhausted, Cost: 1, RetryAfter: time.Minute},
		} {
			ctx, cancel = context.WithTimeout(t.Context(), d.Delay()+500*ms)
			defer cancel()
			start = time.Now()
			time.AfterFunc(400*ms, func() { d.Learn(f) })
			if err := d.WaitN(ctx, 1); !errors.Is(err, ErrDeadline) || time.Since(start) != 400*ms {
				t.Errorf("%v: got %v after %v", f.Outcome, err, time.Since(start))
			}
		}
	})
}

// Whoever is behind others waits for its own delay no less, and is told at once if it can't.
func TestDelayBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Must(NewDelayLimiter(plain))
		d.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
		for range 300 { // of every shade
			go func() { _ = d.WaitN(t.Context(), 1) }()
		}
		time.Sleep(900 * ms)
		start := time.Now()
		if err := d.WaitN(within(t, 500*ms), 1); !errors.Is(err, ErrDeadline) || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		time.Sleep(time.Second)
	})
}

// A delay that ends after a pause is over before that of who waited through it and
// leaves late, yet may be behind it: whoever cannot wait for that is told at once.
func TestDelayBehindThePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Must(NewDelayLimiter(DelayRule{First: 10 * time.Second, Max: 10 * time.Second, Reset: true}))
		d.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
		for range 300 {
			go func() { _ = d.WaitN(t.Context(), 1) }()
		}
		synctest.Wait()
		d.Pause(11 * time.Second)
		time.Sleep(1100 * ms) // who comes now is ready just after the pause
		for range 100 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
				defer cancel()
				if err := d.WaitN(ctx, 1); errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrDeadline) {
					t.Error("waited in vain")
				}
			}()
		}
		time.Sleep(time.Minute)
	})
}

// Pauses that follow each other within less than a delay let everyone go in the end, also
// those whom luck had put last.
func TestDelayBetweenShortPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Must(NewDelayLimiter(LinearDelay(time.Minute)))
		d.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
		for range 100 {
			go func() { _ = d.WaitN(t.Context(), 1) }()
			time.Sleep(10 * ms)
		}
		for range 1000 { // each lets one shade of 16 go
			d.Pause(900 * ms)
			time.Sleep(time.Second)
		}
		if left := d.Stats().Waiting; left > 0 {
			t.Errorf("%d still wait", left)
		}
		time.Sleep(time.Hour)
	})
}

// Who is behind one who waited through a pause may be ready before everybody else as soon as
// that one leaves.
func TestDelayBehindOneWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Must(NewDelayLimiter(DelayRule{First: 10 * time.Second, Max: 10 * time.Second, Reset: true}))
		d.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
		start := time.Now()
		join := func(shade int) (leave context.CancelFunc, went chan time.Duration) {
			for {
				ctx, cancel := context.WithCancel(t.Context())
				last, went := d.delays.lines[shade].tail, make(chan time.Duration, 1)
				go func() {
					if d.WaitN(ctx, 1) == nil {
						went <- time.Since(start)
					}
				}()
				synctest.Wait()
				if d.delays.lines[shade].tail != last {
					return cancel, went
				}
				cancel() // of another shade
				synctest.Wait()
			}
		}
		join(4) // has the timer
		leave, _ := join(8)
		d.Pause(11 * time.Second)
		time.Sleep(1100 * ms)
		_, went := join(8)
		leave()
		if got, want := <-went, 11100*ms; got != want {
			t.Errorf("went after %v, want %v", got, want)
		}
		time.Sleep(time.Minute)
	})
}

func FuzzDelayRule(f *testing.F) {
	f.Add(int64(time.Second), int64(0), 1.5, int64(time.Minute), 10, .9, int64(0), 0, .3, int64(0))
	f.Add(int64(-1), int64(math.MaxInt64), math.Inf(1), int64(math.MaxInt64), -1, math.NaN(), int64(-1), -1, -1., int64(-1))
	f.Add(int64(1), int64(math.MaxInt64), math.MaxFloat64, int64(clock.Farthest), math.MaxInt, 1e-300, int64(math.MaxInt64), math.MaxInt, 1., int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, first, add int64, factor float64, most int64, every int, lower float64, by int64, remaining int, jitter float64, jitterMax int64) {
		d, err := NewDelayLimiter(DelayRule{
			First: time.Duration(first), Add: time.Duration(add), Factor: factor, Max: time.Duration(most),
			Every: every, LowerFactor: lower, LowerBy: time.Duration(by), LowerRemaining: remaining,
			JitterBelow: jitter, JitterAbove: jitter, JitterMax: time.Duration(jitterMax),
		})
		if err != nil {
			return
		}
		for i := range 300 {
			outcome := OutcomeThrottled
			if i%3 > 0 || i > 200 {
				outcome = OutcomeSuccess
			}
			d.Learn(Feedback{Outcome: outcome, Cost: 1, Quota: &Quota{Remaining: i}})
			delay := d.Delay()
			if delay < 0 || delay > time.Duration(most) {
				t.Fatalf("delay %v", delay)
			}
			for _, luck := range []float64{0, 1} {
				if got := d.delays.rule.jittered(delay, luck); got < 0 || got > 2*delay+1+delay>>50 { // what float64 rounds
					t.Fatalf("jittered %v of %v", got, delay)
				}
			}
		}
	})
}
