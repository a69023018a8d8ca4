package scenario

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/a7df5faa/cruise/simulation/server"
)

func TestTheSuiteIsThirteenScenariosAndNamesAreUnique(t *testing.T) {
	if n := len(Suite()); n != 13 {
		t.Errorf("%d scenarios in the suite", n)
	}
	seen := map[string]bool{}
	for _, s := range Named() {
		if seen[s.Name] {
			t.Errorf("two scenarios are called %q", s.Name)
		}
		seen[s.Name] = true
		if found, err := Find(s.Name); err != nil || found.Name != s.Name {
			t.Errorf("cannot find %q: %v", s.Name, err)
		}
	}
}

func TestFindTakesRandomScenariosBySeed(t *testing.T) {
	for _, seed := range []uint64{0, 5, math.MaxUint64} {
		want := Random(seed)
		if found, err := Find(want.Name); err != nil || found.Name != want.Name {
			t.Errorf("cannot find %q: %v", want.Name, err)
		}
	}
	for _, name := range []string{"random-", "random-5junk", "random--1", "random-18446744073709551616", "nowhere", ""} {
		if _, err := Find(name); err == nil {
			t.Errorf("found %q", name)
		}
	}
}

func TestTheBestPossibleByArithmetic(t *testing.T) {
	want := map[string]float64{ // successes
		"heroku-30min":         1.25 * 1800,
		"heroku-10x1":          1.25 * 1800,
		"heroku-4x5":           4500 + 1.25*3*3600,
		"step-50-5-50":         50 + 50*120 + 5*120 + 50*120,
		"wave-20-8":            20 + 14*600,
		"join-8":               40 + 40*480,
		"grow-10x2^n":          100 + 120*(10+20+40+80+160),
		"high-1000":            1000 + 60*1000,
		"window-100/min":       20 * 100,
		"sliding-100/10s":      60 * 100,
		"retry-after-2/s":      10 + 2*900,
		"idle-limit-never-hit": 100 / .02 * 30,
		"outage-1m":            50 + 50*300 + 50, // a full bucket after the outage
		"outage-10m":           20 + 20*720 + 20,
		"bursts-20/s":          10 * (100 + 20*20 + 20), // the last that each caller began is served while it is idle
		"concurrency-8":        32 * 300,
		"metastable-240":       240 * 180, // the calls of the stall are served after it, in time
	}
	for name, n := range want {
		s, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Ideal().Successes; math.Abs(got/n-1) > .005 {
			t.Errorf("%s: %.1f, want %.1f", name, got, n)
		}
	}
	for name, seconds := range map[string]float64{"heroku-clear": 4490 * .165 / 10, "emr-1000": 249} {
		s, _ := Find(name)
		if got := s.Ideal().Time.Seconds(); math.Abs(got/seconds-1) > .005 {
			t.Errorf("%s: %.1f s, want %.1f s", name, got, seconds)
		}
	}
}

// Slots and callers that are free at the start count, however long the work takes.
func TestTheBestPossibleOfSlots(t *testing.T) {
	for _, c := range []struct {
		name           string
		slots, callers int
		work, latency  time.Duration
		duration       time.Duration
		want           float64
	}{
		{"a slot for each caller", 8, 8, time.Minute, 100 * time.Millisecond, 30 * time.Second, 8},
		{"a caller for each slot, again", 8, 8, time.Minute, 100 * time.Millisecond, 90 * time.Second, 16},
		{"callers wait for slots", 8, 16, time.Minute, 100 * time.Millisecond, 70 * time.Second, 16},
		{"some callers wait for slots", 8, 12, time.Minute, time.Minute, 100 * time.Second, 12},
		{"slots wait for callers", 8, 2, time.Minute, time.Minute, 100 * time.Second, 2},
		{"a long way to the server and back", 19, 53, 5 * time.Millisecond, 8 * time.Second, 20 * time.Second, 2 * 53},
		{"many times, more callers", 8, 24, 250 * time.Millisecond, 40 * time.Millisecond, 5 * time.Minute, 32 * 300},
		{"many times, more slots", 8, 4, 250 * time.Millisecond, 40 * time.Millisecond, 5 * time.Minute, 4 / .29 * 300},
		{"many times, a caller more", 8, 9, 250 * time.Millisecond, 40 * time.Millisecond, 5 * time.Minute, 9 / .29 * 300},
		{"soon free again, more callers", 8, 200, time.Millisecond, 10 * time.Millisecond, time.Minute, 8000 * 60},
		{"soon free again, more slots", 8, 4, time.Millisecond, 10 * time.Millisecond, time.Minute, 4 / .011 * 60},
	} {
		s := &Scenario{
			Server:    server.Spec{Kind: server.Concurrency, Burst: float64(c.slots), Work: c.work},
			Processes: 1, Callers: c.callers, Latency: c.latency, Duration: c.duration,
		}
		if got := s.Ideal().Successes; math.Abs(got/c.want-1) > .005 {
			t.Errorf("%s: %.1f, want %.1f", c.name, got, c.want)
		}
	}
}

// A caller that becomes idle still gets the result of its last call.
func TestTheBestPossibleIncludesCallsThatWaitThroughIdleTime(t *testing.T) {
	s := &Scenario{
		Server:    server.Spec{Kind: server.Bucket, Burst: 1},
		Processes: 1, Callers: 9, Latency: 100 * time.Millisecond, Duration: 200 * time.Second, Period: 10 * time.Second, Duty: .1,
	}
	for rate, want := range map[float64]float64{
		.5:   .5 * 200,         // all that there is
		2:    20 * (2 + 9 + 1), // the busy second, one call of each caller, and the saved token
		1000: 20 * 9 * 10.5,    // ten calls of each caller, and the calls on their way
	} {
		s.Server.Rate = server.Constant(rate)
		if got := s.Ideal().Successes; math.Abs(got/want-1) > .02 {
			t.Errorf("%v a second: %.1f, want %.1f", rate, got, want)
		}
	}
}

// However many windows there are, each is worked out in steps of its own.
func TestTheBestPossibleOfManyWindows(t *testing.T) {
	s := &Scenario{Processes: 1, Callers: 10, Latency: 100 * time.Millisecond, Duration: 24 * time.Hour}
	for _, kind := range []server.Kind{server.FixedWindow, server.SlidingWindow} {
		s.Server = server.Spec{Kind: kind, Rate: server.Constant(20), Window: 500 * time.Millisecond}
		if got := s.Ideal().Successes / (20 * 24 * 3600); math.Abs(got-1) > .001 {
			t.Errorf("%v: %.3f of what there is", kind, got)
		}
	}
}

// A window that is no whole number of a run's parts is neither longer nor shorter.
func TestTheBestPossibleOfOddWindows(t *testing.T) {
	s := &Scenario{Processes: 1, Callers: 100, Latency: 100 * time.Millisecond, Duration: 1000 * time.Second}
	for _, kind := range []server.Kind{server.FixedWindow, server.SlidingWindow} {
		s.Server = server.Spec{Kind: kind, Rate: server.Constant(50 / 10.11), Window: 10110 * time.Millisecond}
		if got, want := s.Ideal().Successes, 99*50.; math.Abs(got/want-1) > .001 { // 98.9 windows, the last one used at once
			t.Errorf("%v: %.1f, want %.1f", kind, got, want)
		}
	}
}

func TestFairSharesFollowTheProcessesPresent(t *testing.T) {
	s := &Scenario{
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: 1},
		Processes: 2, Callers: 10, Latency: 10 * time.Millisecond, Duration: 100 * time.Second, Join: 40 * time.Second,
	}
	fair := s.Ideal().Fair
	if math.Abs(fair[0]-700) > 7 || math.Abs(fair[1]-300) > 7 {
		t.Errorf("shares %.0f, want 700 and 300", fair)
	}
}

func TestIdleTimeIsCounted(t *testing.T) {
	s := &Scenario{Period: 10 * time.Second, Duty: .4}
	for _, c := range []struct{ a, b, want time.Duration }{
		{0, 4, 0}, {0, 5, 1}, {3, 12, 6}, {5, 9, 4}, {0, 30, 18}, {13, 26, 8},
	} {
		if got := s.IdleBetween(c.a*time.Second, c.b*time.Second); got != c.want*time.Second {
			t.Errorf("from %d to %d: %v, want %d s", c.a, c.b, got, c.want)
		}
	}
	if until, idle := s.Idle(7 * time.Second); !idle || until != 10*time.Second {
		t.Errorf("at 7 s: idle %v until %v", idle, until)
	}
}

func TestASeedAlwaysGivesTheSameScenario(t *testing.T) {
	for seed := range uint64(50) {
		if a, b := Random(seed), Random(seed); !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d: %+v and %+v", seed, a, b)
		}
	}
}

func TestRandomScenariosKeepTheirBounds(t *testing.T) {
	for seed := range uint64(2000) {
		s := Random(seed)
		name := func(ok bool, what string) {
			if !ok {
				t.Errorf("seed %d: %s: %+v", seed, what, s)
			}
		}
		n := s.Server.Rate.Between(0, s.Duration)
		name(s.Processes >= 1 && s.Processes <= 16, "processes")
		name(s.Callers >= 1 && s.Callers <= 40, "callers")
		name(s.Latency >= 2*time.Millisecond && s.Latency <= 2*time.Second, "latency")
		name(s.Jitter >= 0 && s.Jitter <= .5, "jitter")
		name(s.Duration >= 10*time.Second, "duration")
		name(n > 100 && n < 60_000, "requests")
		name(s.Server.Greedy == 0 || s.Server.Greedy < .71*s.Server.Rate.At(0), "competitor")
		switch s.Server.Kind {
		case server.Bucket:
			name(s.Server.Burst >= 1, "burst")
		default:
			name(server.Allowed(s.Server.Rate, s.Server.Window, 0) >= 1, "window")
		}
		if s.Join > 0 || s.Leave > 0 {
			name(s.Processes >= 2, "joining alone")
		}
		if s.Server.Signal&server.WholeSeconds != 0 {
			name(s.Duration >= 30*time.Second, "whole seconds in a short run")
		}
		name(s.Ideal().Successes > 0, "nothing to get")
	}
}

func TestTheBestPossibleOfUsersScenarios(t *testing.T) {
	want := map[string]float64{ // successes
		"doomed":               10 * 600,
		"doomed-after":         10 * 1800,
		"newcomer-4@3":         3 + 10*660,
		"two-windows":          10 * 1000,
		"secondary-900/min":    15 * 900,
		"left-20-400":          1000 + 210*240,
		"says-60s-1h":          5 + 100*60,
		"methods-20-50/min":    10 * (20 + 50),
		"gcra-50/s-x10":        50 * 480, // without the first two minutes
		"httprate-600/min-x10": 10 * 60 * 18,
		"ulule-10/s-x1":        10 * 60 * 18,
		"long-polls":           20 * 60,
		"grow-.15x2^n":         .15 * 31 * 480,
	}
	for name, n := range want {
		s, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		b := s.Ideal()
		if math.Abs(b.Successes/n-1) > .01 {
			t.Errorf("%s: %.1f, want %.1f", name, b.Successes, n)
		}
		fair := 0.0
		for _, share := range b.Fair {
			fair += share
		}
		if math.Abs(fair/b.Successes-1) > 1e-6 {
			t.Errorf("%s: shares of %.1f, want %.1f in all", name, fair, b.Successes)
		}
	}
	for name, seconds := range map[string]float64{
		"fits-90/15min":  9 * .01,
		"fits-4000/h":    400 * .1,
		"bulk-10000":     49.8, // 50 at once and 200 a second
		"haproxy-240":    24,   // 50 in each window: at once, then as the one before fades
		"vsthrottle-240": 19,
	} {
		s, _ := Find(name)
		if got := s.Ideal().Time.Seconds(); math.Abs(got/seconds-1) > .1 && math.Abs(got-seconds) > .02 {
			t.Errorf("%s: %.3f s, want %.3f s", name, got, seconds)
		}
	}
}

func TestTheLastProcessComesLate(t *testing.T) {
	s := &Scenario{Processes: 3, Duration: time.Minute, Late: 20 * time.Second, Join: time.Second}
	for p, from := range []time.Duration{0, time.Second, 22 * time.Second} {
		if got := s.Present(p).From; got != from {
			t.Errorf("process %d joins after %v, want %v", p, got, from)
		}
	}
	if one := (&Scenario{Processes: 1, Late: time.Second}); one.Joins() || !s.Joins() {
		t.Error("who joins whom?")
	}
}

func TestOddCallersAreAnsweredByThemselves(t *testing.T) {
	for _, c := range []struct {
		odd  Odd
		at   time.Duration
		want server.Reply
	}{
		{Odd{Hold: time.Minute}, 0, server.Reply{Hold: time.Minute}},
		{Odd{Refused: true, RetryAfter: time.Second}, time.Hour, server.Reply{Throttled: true, RetryAfter: time.Second}},
		{Odd{Refused: true, Until: time.Minute}, 59 * time.Second, server.Reply{Throttled: true}},
		{Odd{Refused: true, Until: time.Minute}, time.Minute, server.Reply{}},
	} {
		if got := c.odd.Reply(c.at); got != c.want {
			t.Errorf("%+v at %v: %+v", c.odd, c.at, got)
		}
	}
	s := &Scenario{Odd: Odd{Refused: true, Until: time.Minute}, Server: server.Spec{Down: []server.Span{{To: time.Second}}}}
	if span, ok := s.Trouble(); !ok || span.To != time.Minute {
		t.Errorf("trouble until %v", span.To)
	}
}

func TestTheSetupSaysHowCallersAre(t *testing.T) {
	for name, want := range map[string]string{
		"doomed":       "1 process of 5 callers and 1 odd, a call every 500ms, 20ms latency, 10m",
		"long-polls":   "1 process of 10 callers and 100 odd, a call every 500ms, 20ms latency, 1m",
		"bulk-10000":   "1 process of 20 callers, 20ms latency, until 10000 calls are done",
		"newcomer-4@3": "5 processes of 5 callers, 60ms latency, 11m",
	} {
		s, _ := Find(name)
		if got := s.Setup(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// The effect of a server's headers shows only beside the same server without them.
func TestMutesTellNothing(t *testing.T) {
	if n := len(Mutes()); n != 18 {
		t.Errorf("%d pairs", n)
	}
	for _, pair := range Mutes() {
		told, err := Find(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		not, _ := Find(pair[1])
		if s := not.Server; s.Signal != 0 || s.Says != 0 || told.Server.Signal == 0 {
			t.Errorf("%s tells %v, %s %v", told.Name, told.Server.Signal, not.Name, s.Signal)
		}
		if told.Ideal().Successes != not.Ideal().Successes {
			t.Errorf("%s and %s have not the same limit", told.Name, not.Name)
		}
	}
}
