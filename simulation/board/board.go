// Package board compares the results of clients and prints them.
package board

import (
	"fmt"
	"math"
	"slices"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
	"github.com/a7df5faa/cruise/simulation/server"
)

// Board holds results, and the figures that follow from them.
type Board struct {
	Results []score.Result
	Clients []engine.Client    // that have results, in the order given
	Own     string             // the client that the others are compared with; "" if none ran
	Pacer   map[string]float64 // use of the pacer, by scenario
	Tight   map[string]bool    // scenarios in which no client can keep the limit
	Split   bool               // the keepable ones are grouped by kind of server and signal, too

	byScenario map[string][]score.Result
}

// New puts the results of clients into a board. The scenarios in which the
// pacer took part are known to be keepable or tight.
func New(clients []engine.Client, results []score.Result) *Board {
	b := &Board{Results: results, Pacer: map[string]float64{}, Tight: map[string]bool{}, byScenario: map[string][]score.Result{}}
	pacer := client.Pacer().Name
	ran := map[string]bool{}
	for _, r := range results {
		ran[r.Client] = true
		name := r.Scenario.Name
		b.byScenario[name] = append(b.byScenario[name], r)
		if r.Client == pacer {
			b.Pacer[name] = r.Median.Use
			b.Tight[name] = r.Median.Total > score.Tight
		}
	}
	for _, c := range clients {
		if !ran[c.Name] {
			continue
		}
		b.Clients = append(b.Clients, c)
		if c.Own && b.Own == "" {
			b.Own = c.Name
		}
	}
	return b
}

// Scenarios returns the scenarios that the board has results of, in order.
func (b *Board) Scenarios() []*scenario.Scenario {
	var list []*scenario.Scenario
	for _, r := range b.Results {
		if len(list) == 0 || list[len(list)-1] != r.Scenario {
			list = append(list, r.Scenario)
		}
	}
	return list
}

// Of are the results in a scenario, in the order of the clients.
func (b *Board) Of(scenario string) []score.Result { return b.byScenario[scenario] }

// Result is that of a client in a scenario.
func (b *Board) Result(client, scenario string) (score.Result, bool) {
	rs := b.byScenario[scenario]
	i := slices.IndexFunc(rs, func(r score.Result) bool { return r.Client == client })
	if i < 0 {
		return score.Result{}, false
	}
	return rs[i], true
}

// Client is the client of that name.
func (b *Board) Client(name string) engine.Client {
	i := slices.IndexFunc(b.Clients, func(c engine.Client) bool { return c.Name == name })
	return b.Clients[i]
}

// competes tells whether a client takes part in the contest, as yardsticks do not.
func (b *Board) competes(name string) bool { return !b.Client(name).Yardstick }

// Group is a set of scenarios over which means are reported.
type Group struct {
	Name string
	Of   func(*scenario.Scenario) bool
}

// Names of groups that targets and reports speak of.
const (
	Suite    = "suite of 13"
	Keepable = "random, keepable"
	tight    = "random, tight"
)

// Group is the set of that name. The board may have no results of it.
func (b *Board) Group(name string) Group {
	groups := b.groups()
	return groups[slices.IndexFunc(groups, func(g Group) bool { return g.Name == name })]
}

// Groups are the sets of scenarios that the board has results of.
func (b *Board) Groups() []Group {
	return slices.DeleteFunc(b.groups(), func(g Group) bool {
		return !slices.ContainsFunc(b.Results, func(r score.Result) bool { return g.Of(r.Scenario) })
	})
}

func (b *Board) groups() []Group {
	keepable := func(s *scenario.Scenario) bool { return s.Random && !b.tight(s) && b.paced(s) }
	groups := []Group{
		{Suite, func(s *scenario.Scenario) bool { return s.Suite }},
		{"server of yours", func(s *scenario.Scenario) bool { return s.Name == scenario.Yours }},
		{"other named", func(s *scenario.Scenario) bool { return !s.Suite && !s.Random && s.Name != scenario.Yours }},
		{"random, all", func(s *scenario.Scenario) bool { return s.Random }},
		{Keepable, keepable},
		{tight, func(s *scenario.Scenario) bool { return s.Random && b.tight(s) }},
	}
	if !b.Split {
		return groups
	}
	for kind := server.Bucket; kind <= server.SlidingWindow; kind++ {
		for _, signal := range server.Signals {
			groups = append(groups, Group{fmt.Sprintf("%v, %v", kind, signal), func(s *scenario.Scenario) bool {
				return keepable(s) && s.Server.Kind == kind && s.Server.Signal == signal
			}})
		}
	}
	return groups
}

func (b *Board) tight(s *scenario.Scenario) bool { return b.Tight[s.Name] }

func (b *Board) paced(s *scenario.Scenario) bool { _, ok := b.Pacer[s.Name]; return ok }

// count is how many scenarios of a group the board has results of.
func (b *Board) count(g Group) int {
	n := 0
	for _, s := range b.Scenarios() {
		if g.Of(s) {
			n++
		}
	}
	return n
}

// Select is the results of a client in a group of scenarios.
func (b *Board) Select(client string, g Group) []score.Result {
	var out []score.Result
	for _, r := range b.Results {
		if r.Client == client && g.Of(r.Scenario) {
			out = append(out, r)
		}
	}
	return out
}

// Row is how a client did over a group of scenarios.
type Row struct {
	Group     string
	Client    string
	Scenarios int
	Means     score.Score
	Collapses score.Collapses
	Better    int // scenarios in which it is better than our own client; for that, in which a peer is
}

// Rows are the means over each group, a row for each client that took part.
func (b *Board) Rows() [][]Row {
	var all [][]Row
	for _, g := range b.Groups() {
		name := g.Name
		if n := b.count(g); g.Name == Suite && n < len(scenario.Suite()) {
			name = fmt.Sprintf("%s, %d of them", Suite, n)
		}
		var rows []Row
		for _, c := range b.Clients {
			rs := b.Select(c.Name, g)
			if len(rs) == 0 {
				continue
			}
			row := Row{Group: name, Client: c.Name, Scenarios: len(rs), Means: score.Means(rs), Collapses: score.Count(rs, b.Pacer)}
			for _, r := range rs {
				if b.Better(r) || c.Name == b.Own && len(b.Beaten(r.Scenario.Name)) > 0 {
					row.Better++
				}
			}
			rows = append(rows, row)
		}
		all = append(all, rows)
	}
	return all
}

// How much of throttled share, in points, and of use a peer has to be ahead
// to be called better: less is noise, or lost in rounding.
const (
	aheadThrottled = .05
	aheadUse       = .002
)

// Better reports whether a result belongs to a peer that was throttled less than our own client and
// yet used more of the server's capacity.
func (b *Board) Better(r score.Result) bool {
	if r.Client == b.Own || b.Client(r.Client).Yardstick {
		return false
	}
	own, ok := b.Result(b.Own, r.Scenario.Name)
	return ok && r.Median.Throttled < own.Median.Throttled-aheadThrottled && r.Median.Use > own.Median.Use+aheadUse
}

// Beaten are the peers that are better than our own client in a scenario.
func (b *Board) Beaten(scenario string) []string {
	var by []string
	for _, r := range b.Of(scenario) {
		if b.Better(r) {
			by = append(by, r.Client)
		}
	}
	return by
}

// best is the best of the competitors' figures, NaN if there are not two of them to
// compare, or if it says nothing to be first in them.
func (b *Board) best(m score.Metric, clients []string, figures []score.Score) float64 {
	best, n := math.NaN(), 0
	for i := range figures {
		v := *m.Of(&figures[i])
		if math.IsNaN(v) || !b.competes(clients[i]) {
			continue
		}
		n++
		if math.IsNaN(best) || m.MoreWins && v > best || !m.MoreWins && v < best {
			best = v
		}
	}
	if n < 2 || m.NoWinner {
		return math.NaN()
	}
	return best
}

// marks returns the best cells of a table's columns: a cell is one of the best if its figure,
// printed by text, looks like the best one.
func (b *Board) marks(metrics []score.Metric, clients []string, figures []score.Score, text func(score.Metric, float64) string) [][]bool {
	marks := make([][]bool, len(figures))
	for i := range marks {
		marks[i] = make([]bool, len(metrics))
	}
	for j, m := range metrics {
		best := b.best(m, clients, figures)
		if math.IsNaN(best) {
			continue
		}
		for i := range figures {
			marks[i][j] = b.competes(clients[i]) && text(m, *m.Of(&figures[i])) == text(m, best)
		}
	}
	return marks
}

// Metrics returns the metrics of the given names.
func Metrics(names ...string) []score.Metric {
	var list []score.Metric
	for _, name := range names {
		i := slices.IndexFunc(score.Metrics, func(m score.Metric) bool { return m.Name == name })
		list = append(list, score.Metrics[i])
	}
	return list
}

// Title is a metric's name and unit, for the head of a column.
func Title(m score.Metric) string {
	name := map[string]string{
		"jain": "Jain", "ratio": "wait ratio", "wait": "longest wait", "amplification": "requests a call",
		"least": "least share", "slow": "time / best", "plain": "time / plain", "first": "newcomer's first", "half": "newcomer's half",
		"genie_throttled": "throttled - genie's", "genie_use": "use - genie's",
	}[m.Name]
	if name == "" {
		name = m.Name
	}
	if m.Unit == "" || m.Unit == "x" {
		return name
	}
	return name + " " + m.Unit
}

// Spread is a figure's median, with its range if it has one.
func Spread(r score.Result, m score.Metric) string {
	v, low, high := *m.Of(&r.Median), *m.Of(&r.Low), *m.Of(&r.High)
	if r.Runs < 2 || Number(low) == Number(high) {
		return Number(v)
	}
	return fmt.Sprintf("%s [%s..%s]", Number(v), Number(low), Number(high))
}

// Number prints a figure with as many digits as mean something.
func Number(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsNaN(v):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= .9995: // not 1.000, as if it were more exact than 1.00
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
