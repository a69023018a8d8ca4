package board

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

// result is one of a client in a scenario.
func result(s *scenario.Scenario, client string, throttled, use float64) score.Result {
	m := score.Score{Throttled: throttled, Total: throttled, Use: use, Jain: 1, Wait: 1, Ratio: 1,
		Clear: math.NaN(), Adapt: math.NaN(), Failed: math.NaN(), Recovery: math.NaN(), Least: 1, First: math.NaN(), Half: math.NaN(),
		Slow: math.NaN(), Plain: math.NaN(), GenieThrottled: math.NaN(), GenieUse: math.NaN()}
	return score.Result{Scenario: s, Client: client, Runs: 1, Median: m, Low: m, High: m}
}

func sample() *Board {
	clients := []engine.Client{{Name: "cruise", Own: true}, {Name: "peer"}, {Name: "pacer-0.8", Yardstick: true}}
	a := &scenario.Scenario{Name: "a", About: "one", Suite: true, Processes: 2, Callers: 10, Latency: 100 * time.Millisecond, Duration: 5 * time.Minute}
	b := &scenario.Scenario{Name: "b", About: "another", Suite: true}
	easy, hard := &scenario.Scenario{Name: "random-1", Random: true}, &scenario.Scenario{Name: "random-2", Random: true}
	return New(clients, []score.Result{
		result(a, "cruise", 2, .8), result(a, "peer", 1, .9), result(a, "pacer-0.8", 0, 1),
		result(b, "cruise", 1, .9), result(b, "peer", .9, .9), result(b, "pacer-0.8", 0, .8),
		result(easy, "cruise", 11, .9), result(easy, "peer", 20, .9), result(easy, "pacer-0.8", 1, .8),
		result(hard, "cruise", 9, .9), result(hard, "peer", 20, .9), result(hard, "pacer-0.8", 5, .8),
	})
}

func TestAPeerIsBetterOnlyInBoth(t *testing.T) {
	b := sample()
	if got := b.Beaten("a"); len(got) != 1 || got[0] != "peer" {
		t.Errorf("in a: %v", got)
	}
	for _, s := range []string{"b", "random-1", "random-2"} {
		if got := b.Beaten(s); len(got) != 0 {
			t.Errorf("in %s: %v", s, got)
		}
	}
	for _, row := range slices.Concat(b.Rows()...) {
		want := 0
		if row.Group == "suite of 13, 2 of them" && row.Client != "pacer-0.8" {
			want = 1
		}
		if row.Better != want {
			t.Errorf("%s, %s: %d", row.Group, row.Client, row.Better)
		}
	}
}

// Better means by more than the noise, and by throttles as well as by use.
func TestABetterPeer(t *testing.T) {
	s := &scenario.Scenario{Name: "s"}
	for _, c := range []struct {
		throttled, use float64
		want           bool
	}{{.9, .81, true}, {1, .9, false}, {1.1, .9, false}, {.96, .9, false}, {.9, .801, false}, {.9, .7, false}} {
		b := New([]engine.Client{{Name: "cruise", Own: true}, {Name: "peer"}}, []score.Result{result(s, "cruise", 1, .8), result(s, "peer", c.throttled, c.use)})
		if got := len(b.Beaten("s")) > 0; got != c.want {
			t.Errorf("throttled %v %% with a use of %v against 1 %% with .8: better is %v", c.throttled, c.use, got)
		}
	}
}

// A user who tries options must see whether the defaults are better.
func TestTheDefaultsCanBeBetterThanYours(t *testing.T) {
	s := &scenario.Scenario{Name: scenario.Yours}
	yours, defaults := engine.Client{Name: "yours", Own: true}, engine.Client{Name: "cruise", Own: true}
	b := New([]engine.Client{yours, defaults}, []score.Result{result(s, "yours", 6, .8), result(s, "cruise", 1, .9)})
	if got := b.Beaten(scenario.Yours); !slices.Equal(got, []string{"cruise"}) {
		t.Errorf("better: %v", got)
	}
}

func TestKeepableScenariosAreSplitOnRequest(t *testing.T) {
	b := sample()
	names := func() (list []string) {
		for _, g := range b.Groups() {
			list = append(list, g.Name)
		}
		return list
	}
	whole := names()
	b.Split = true
	if got, want := names(), append(whole, "bucket, none"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	rows := b.Rows()
	if last := rows[len(rows)-1]; last[0].Scenarios != 1 {
		t.Errorf("%d scenarios of random-1", last[0].Scenarios)
	}
}

func TestTheBestOfAColumnIsMarkedAmongCompetitors(t *testing.T) {
	table := sample().Scenario("a")
	want := map[string][]bool{"cruise": {false, true, true, false}, "peer": {true, true, true, true}, "pacer-0.8": {false, false, false, false}}
	for _, line := range table.Rows {
		for i, best := range want[line.Client] {
			if line.Cells[i].Best != best {
				t.Errorf("%s, %s: %v", line.Client, table.Head[i], line.Cells[i])
			}
		}
	}
	for _, line := range table.Rows {
		if i := slices.Index(table.Head, "requests a call"); line.Cells[i].Best {
			t.Errorf("%s is the best at sending little", line.Client)
		}
	}
	alone := New([]engine.Client{{Name: "cruise", Own: true}}, []score.Result{result(&scenario.Scenario{Name: "a"}, "cruise", 1, 1)})
	for _, c := range alone.Scenario("a").Rows[0].Cells {
		if c.Best {
			t.Errorf("best of one: %v", c)
		}
	}
}

func TestTargetsAreCheckedAgainstTheBoard(t *testing.T) {
	b := sample()
	want := map[string]float64{
		Suite + "throttled %, mean":                          math.NaN(), // two of thirteen ran
		Keepable + "throttled %, mean":                       11,
		Keepable + "use / the pacer's, means":                1.125,
		tight + "throttled %, points above the pacer, means": 4,
		"namedscenarios with a better peer":                  math.NaN(), // most peers did not run
		"random% of scenarios with a better peer":            math.NaN(),
		"emr-1000use": math.NaN(),
	}
	for _, target := range Targets {
		v, ok := want[target.Where+target.What]
		if !ok {
			continue
		}
		if got := target.Of(b); math.Abs(got-v) > 1e-9 || math.IsNaN(got) != math.IsNaN(v) {
			t.Errorf("%s, %s: %v, want %v", target.Where, target.What, got, v)
		}
		delete(want, target.Where+target.What)
	}
	if len(want) > 0 {
		t.Errorf("there are no such targets: %v", want)
	}
	least, most := Target{AtMin: true, Want: 1}, Target{Want: 1}
	for _, c := range []struct{ got, want string }{
		{least.Verdict(1), "met"}, {least.Verdict(.9), "not met"}, {most.Verdict(1), "met"}, {most.Verdict(1.1), "not met"},
		{most.Verdict(math.NaN()), "not run"}, {least.Wanted(), "≥ 1"}, {most.Wanted(), "≤ 1"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// The figure may depend on a client or a scenario that did not run: a better peer, or a bad
// scenario.
func TestTargetsOverSeveralAreKnownIfAllRan(t *testing.T) {
	for _, c := range []struct {
		missing           string
		beaten, throttled float64
	}{
		{"", 1, 5},
		{"oracle", 1, 5},
		{"leave-8", math.NaN(), 5},
		{"emr-1000", math.NaN(), math.NaN()},
		{"autosleeper", math.NaN(), 5},
		{"cruise", math.NaN(), math.NaN()},
	} {
		var clients []engine.Client
		for _, cl := range client.All() {
			if cl.Name != c.missing {
				clients = append(clients, cl)
			}
		}
		var results []score.Result
		for _, s := range scenario.Named() {
			if s.Name == c.missing {
				continue
			}
			for i, cl := range clients {
				r := result(s, cl.Name, 5, .5)
				if i == 1 && s.Name == "join-8" {
					r = result(s, cl.Name, 1, .9)
				}
				results = append(results, r)
			}
		}
		b := New(clients, results)
		for _, target := range Targets {
			want, ok := map[string]float64{"namedscenarios with a better peer": c.beaten, Suite + "throttled %, mean": c.throttled}[target.Where+target.What]
			if got := target.Of(b); ok && Number(got) != Number(want) {
				t.Errorf("without %q: %s, %s: %v, want %v", c.missing, target.Where, target.What, got, want)
			}
		}
	}
}

// Figures that are printed alike are marked alike.
func TestMarksFollowThePrintedFigures(t *testing.T) {
	clients := []engine.Client{{Name: "a", Own: true}, {Name: "b"}, {Name: "c"}}
	s := &scenario.Scenario{Name: "s", Suite: true}
	b := New(clients, []score.Result{result(s, "a", 12.31, .5), result(s, "b", 12.34, .5), result(s, "c", 12.308, .5)})
	for _, line := range b.Means()[0].Rows {
		if c := line.Cells[1]; c.Best != (c.Text == "12.31") {
			t.Errorf("%s: %+v", line.Client, c)
		}
		if c := line.Cells[6]; c.Text != "-" {
			t.Errorf("%s: %s scenarios below the use of a pacer that did not run", line.Client, c.Text)
		}
	}
}

func TestEveryFormatShowsTheSame(t *testing.T) {
	b := sample()
	var text, md, js bytes.Buffer
	if err := b.Text(&text); err != nil {
		t.Fatal(err)
	}
	if err := b.Markdown(&md, []Chart{{"a chart.svg", "a chart", "What it shows."}}); err != nil {
		t.Fatal(err)
	}
	if err := b.JSON(&js); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1.00*", "than cruise", "random, tight", "4 of 6 targets met, 152 not run"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	for _, want := range []string{"![a chart](a%20chart.svg)\n\nWhat it shows.", "**0.900**", "### a\n\nOne. 2 processes of 10 callers, 100ms latency, 5m.\n", "*pacer-0.8*", "use&lt;.6"} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("the markdown lacks %q:\n%s", want, md.String())
		}
	}
	for _, want := range []string{`"clear": null`, `"better": true`, `"verdict": "not run"`} {
		if !strings.Contains(js.String(), want) {
			t.Errorf("the JSON lacks %q", want)
		}
	}
}

// A column stays where one of the scenarios has a figure in it.
func TestTheTextLeavesOutEmptyColumns(t *testing.T) {
	a, b := result(&scenario.Scenario{Name: "a"}, "cruise", 1, .9), result(&scenario.Scenario{Name: "b"}, "cruise", 1, .9)
	b.Median.Clear = 20
	var text bytes.Buffer
	if err := New([]engine.Client{{Name: "cruise", Own: true}}, []score.Result{a, b}).Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"clear s", "1.00        -  0.000            0.000", "1.00     20.0  0.000            0.000"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	for _, none := range []string{"adapt s", "recovery s", "failed %", "time / best", "newcomer's"} {
		if strings.Contains(text.String(), none) {
			t.Errorf("%q, in which is nothing, in\n%s", none, &text)
		}
	}
}

func TestNumbersHaveTheDigitsThatMeanSomething(t *testing.T) {
	for v, want := range map[float64]string{1234: "1234", 12.34: "12.3", 1.234: "1.23", .12345: "0.123", .9999: "1.00", 0: "0.000"} {
		if got := Number(v); got != want {
			t.Errorf("%v: %s", v, got)
		}
	}
	if Number(math.NaN()) != "-" {
		t.Error(Number(math.NaN()))
	}
}

// A target may be about the worst of the runs, about nine of ten, or about two results.
func TestTargetsAreOfRunsAndOfPairs(t *testing.T) {
	a, b := &scenario.Scenario{Name: "a"}, &scenario.Scenario{Name: "b"}
	r := result(a, "cruise", 2, .6)
	r.Low.Use, r.High.Throttled, r.Ninth.Throttled = .5, 9, 8
	r.Median.Clear, r.Median.Plain = 30, 2
	board := New([]engine.Client{{Name: "cruise", Own: true}, {Name: "peer"}}, []score.Result{
		r, result(a, "peer", 1.5, .9), result(b, "cruise", 1, .8),
	})
	for _, c := range []struct {
		what string
		of   func(*Board) float64
		want float64
	}{
		{"at least", atLeast("a", "use", 0).Of, .6},
		{"at least, worst", inAll(atLeast, "a", "use", 0).Of, .5},
		{"at most, worst", inAll(atMost, "a", "throttled", 0).Of, 9},
		{"nine of ten", inNine("a", "throttled", 0).Of, 8},
		{"above a peer", above("peer", "a", "throttled"), .5},
		{"above nobody", above("nobody", "a", "throttled"), math.NaN()},
		{"of what it gets without headers", withoutHeaders("a", "b"), .75},
		{"beyond 1.2 times a plain client", late("a"), 30 - 1.2*15},
		{"of what did not run", inAll(atMost, "c", "throttled", 0).Of, math.NaN()},
	} {
		if got := c.of(board); math.Abs(got-c.want) > 1e-9 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// Targets name existing scenarios.
func TestTargetsAreAboutScenarios(t *testing.T) {
	groups := []string{Suite, Keepable, tight, "named", "random"}
	for _, target := range Targets {
		if _, err := scenario.Find(target.Where); err != nil && !slices.Contains(groups, target.Where) {
			t.Errorf("%s: %v", target.Where, err)
		}
	}
}
