package delay

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
)

func TestNew(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name   string
		change func(*Rule)
		want   string // in the error; "" for none
	}{
		{"as it is", func(*Rule) {}, ""},
		{"no factor is 1", func(r *Rule) { r.Factor = 0 }, ""},
		{"longest", func(r *Rule) { r.First, r.Max = clock.Farthest, clock.Farthest }, ""},
		{"no first", func(r *Rule) { r.First = 0 }, "First 0s"},
		{"negative first", func(r *Rule) { r.First = -1 }, "First -1ns"},
		{"negative step", func(r *Rule) { r.Add = -1 }, "Add -1ns"},
		{"factor below 1", func(r *Rule) { r.Factor = math.Nextafter(1, 0) }, "Factor"},
		{"factor NaN", func(r *Rule) { r.Factor = nan }, "Factor NaN"},
		{"factor infinite", func(r *Rule) { r.Factor = inf }, "Factor +Inf"},
		{"max below first", func(r *Rule) { r.Max = r.First - 1 }, "Max"},
		{"max too far", func(r *Rule) { r.Max = math.MaxInt64 }, "Max"},
		{"negative every", func(r *Rule) { r.Every = -1 }, "Every -1"},
		{"lowering by 1", func(r *Rule) { r.LowerFactor = 1 }, "LowerFactor 1"},
		{"lowering by less than nothing", func(r *Rule) { r.LowerFactor = -.1 }, "LowerFactor -0.1"},
		{"lowering NaN", func(r *Rule) { r.LowerFactor = nan }, "LowerFactor NaN"},
		{"lowering negative", func(r *Rule) { r.LowerBy = -1 }, "LowerBy"},
		{"remaining negative", func(r *Rule) { r.LowerRemaining = -1 }, "LowerRemaining"},
		{"nothing lowers", func(r *Rule) { r.LowerFactor = 0 }, "nothing lowers"},
		{"none below negative", func(r *Rule) { r.NoneBelow = -1 }, "NoneBelow"},
		{"jitter above 1", func(r *Rule) { r.JitterBelow, r.JitterAbove = 1.1, 1.1 }, "JitterBelow 1.1: want 0 to 1\ncruise: delay.Rule: JitterAbove 1.1"},
		{"jitter below 0", func(r *Rule) { r.JitterBelow, r.JitterAbove = -.1, -.1 }, "JitterBelow -0.1: want 0 to 1\ncruise: delay.Rule: JitterAbove -0.1"},
		{"jitter at its highest", func(r *Rule) { r.JitterBelow, r.JitterAbove = 1, 1 }, ""},
		{"jitter NaN", func(r *Rule) { r.JitterBelow = nan }, "JitterBelow NaN"},
		{"jitter max negative", func(r *Rule) { r.JitterMax = -1 }, "JitterMax"},
		{"zero", func(r *Rule) { *r = Rule{} }, "First 0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule := Responsive()
			tt.change(&rule)
			d, err := New(rule)
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want != "" && (err == nil || d != nil || !strings.Contains(err.Error(), tt.want)):
				t.Fatalf("got %v, %v, want an error with %q", d, err, tt.want)
			}
		})
	}
}

var presets = map[string]Rule{
	"responsive":          Responsive(),
	"linear":              Linear(time.Second),
	"Heroku gradual":      HerokuGradual(),
	"Heroku proportional": HerokuProportional(),
	"Heroku remaining":    HerokuRemaining(),
}

func TestPresets(t *testing.T) {
	const up, ok = "up", "ok"
	n := func(n int, event string) []string {
		return strings.Split(strings.Repeat(","+event, n)[1:], ",")
	}
	for _, tt := range []struct {
		rule   string
		quota  *cruise.Quota
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
		// The Ruby client shares this delay after the throttles of one call and its success:
		// 0.8 s × (1.2 + 1.2² + …), less the step of a success.
		{"Heroku gradual", nil, n(1, up), 960 * ms},
		{"Heroku gradual", nil, n(100, up), 15 * time.Minute},
		{"Heroku gradual", nil, append(n(1, up), ok), 160 * ms},
		{"Heroku gradual", &cruise.Quota{Remaining: 50, Limit: 100}, append(n(1, up), ok), 160 * ms},
		{"Heroku gradual", nil, append(n(3, up), ok), 2694400 * time.Microsecond},
		{"Heroku gradual", nil, append(n(1, up), ok, ok), 0},
		{"Heroku proportional", nil, append(n(3, up), ok), 3493623466},
		{"Heroku remaining", &cruise.Quota{Remaining: 2250}, append(n(3, up), ok), 1747200 * time.Microsecond},
		{"Heroku remaining", &cruise.Quota{Remaining: 4500}, append(n(3, up), ok), 0},
		{"Heroku remaining", &cruise.Quota{Remaining: 90000}, append(n(3, up), ok), 0},
		{"Heroku remaining", &cruise.Quota{Remaining: 0}, append(n(3, up), ok), 3494400 * time.Microsecond},
		{"Heroku remaining", &cruise.Quota{Remaining: 10, Limit: 100}, append(n(3, up), ok), 3144960 * time.Microsecond},
		{"Heroku remaining", nil, append(n(3, up), ok), 3494400 * time.Microsecond},
	} {
		d := Limiter{rule: presets[tt.rule].withDefaults()}
		for i, event := range tt.events {
			if event == up {
				d.raise(clock.Instant(i+1), cruise.Feedback{})
			} else {
				d.answered(tt.quota)
			}
		}
		if d.delay != tt.want {
			t.Errorf("%s, %d events, quota %v: got %v, want %v", tt.rule, len(tt.events), tt.quota, d.delay, tt.want)
		}
	}
}

// The settings of the example in "Responsive exponential backoff in Go" give the curve that it
// describes: past 291.9 ms while shorter delays fail, then never long below 60 ms when 60 ms
// are enough.
func TestResponsiveCurve(t *testing.T) {
	d := cruise.Must(New(priyan()))
	enough := 291900 * time.Microsecond
	var climb []time.Duration
	for d.Delay() < enough {
		d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
		climb = append(climb, d.Delay())
	}
	if got := climb[len(climb)-1]; len(climb) != 15 || got.Round(100*time.Microsecond) != enough {
		t.Fatalf("climbed %v", climb)
	}
	enough = 60 * ms
	var low, high time.Duration = clock.Never, 0
	settled := false
	for i := range 1000 {
		outcome := cruise.OutcomeSuccess
		if d.Delay() < enough {
			outcome, settled = cruise.OutcomeThrottled, true
		}
		d.Learn(cruise.Feedback{Outcome: outcome, Cost: 1})
		if settled && i > 50 {
			low, high = min(low, d.Delay()), max(high, d.Delay())
		}
	}
	if low < 36*ms || high > 90*ms {
		t.Errorf("settled from %v to %v", low, high)
	}
}

// The rule of the article at both ends of its range.
func TestResponsiveBounds(t *testing.T) {
	r := Responsive()
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

func priyan() Rule {
	return Rule{
		First: ms, Factor: 1.5, Max: 15 * time.Minute, EachThrottle: true,
		Every: 5, LowerFactor: .6, NoneBelow: ms,
	}
}

func TestDelayStaysInBounds(t *testing.T) {
	for name, rule := range presets {
		d := Limiter{rule: rule.withDefaults()}
		for i := range 100_000 {
			if i%977 > 10 {
				d.answered(&cruise.Quota{Remaining: i % 5000})
			} else {
				d.raise(clock.Instant(i+1), cruise.Feedback{})
			}
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

func FuzzRule(f *testing.F) {
	f.Add(int64(time.Second), int64(0), 1.5, int64(time.Minute), 10, .9, int64(0), 0, .3, int64(0))
	f.Add(int64(-1), int64(math.MaxInt64), math.Inf(1), int64(math.MaxInt64), -1, math.NaN(), int64(-1), -1, -1., int64(-1))
	f.Add(int64(1), int64(math.MaxInt64), math.MaxFloat64, int64(clock.Farthest), math.MaxInt, 1e-300, int64(math.MaxInt64), math.MaxInt, 1., int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, first, add int64, factor float64, most int64, every int, lower float64, by int64, remaining int, jitter float64, jitterMax int64) {
		d, err := New(Rule{
			First: time.Duration(first), Add: time.Duration(add), Factor: factor, Max: time.Duration(most),
			Every: every, LowerFactor: lower, LowerBy: time.Duration(by), LowerRemaining: remaining,
			JitterBelow: jitter, JitterAbove: jitter, JitterMax: time.Duration(jitterMax),
		})
		if err != nil {
			return
		}
		for i := range 300 {
			outcome := cruise.OutcomeThrottled
			if i%3 > 0 || i > 200 {
				outcome = cruise.OutcomeSuccess
			}
			d.Learn(cruise.Feedback{Outcome: outcome, Cost: 1, Quota: &cruise.Quota{Remaining: i}})
			delay := d.Delay()
			if delay < 0 || delay > time.Duration(most) {
				t.Fatalf("delay %v", delay)
			}
			for _, luck := range []float64{0, 1} {
				if got := d.rule.jittered(delay, luck); got < 0 || got > 2*delay+1+delay>>50 { // rounding of float64
					t.Fatalf("jittered %v of %v", got, delay)
				}
			}
		}
	})
}
