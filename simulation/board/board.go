// Package board prints results.
package board

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

// Board is results with what follows from them.
type Board struct {
	Results []score.Result
	Clients []string
	Pacer   map[string]float64 // use of the pacer, by scenario
	Tight   map[string]bool    // scenarios whose limit nobody can keep
}

// New puts results into a board. The scenarios in which the pacer took part
// are known to be keepable or tight.
func New(results []score.Result) *Board {
	b := &Board{Results: results, Pacer: map[string]float64{}, Tight: map[string]bool{}}
	pacer := client.Pacer().Name
	for _, r := range results {
		if !slices.Contains(b.Clients, r.Client) {
			b.Clients = append(b.Clients, r.Client)
		}
		if r.Client == pacer {
			b.Pacer[r.Scenario.Name] = r.Median.Use
			b.Tight[r.Scenario.Name] = r.Median.Total > score.Tight
		}
	}
	return b
}

// Group is a set of scenarios over which means are reported.
type Group struct {
	Name string
	Of   func(*scenario.Scenario) bool
}

// Groups are the sets of scenarios that the board has results of.
func (b *Board) Groups() []Group {
	all := []Group{
		{"suite of 13", func(s *scenario.Scenario) bool { return s.Suite }},
		{"other named", func(s *scenario.Scenario) bool { return !s.Suite && !s.Random }},
		{"random, all", func(s *scenario.Scenario) bool { return s.Random }},
		{"random, keepable", func(s *scenario.Scenario) bool { return s.Random && !b.Tight[s.Name] }},
		{"random, tight", func(s *scenario.Scenario) bool { return s.Random && b.Tight[s.Name] }},
	}
	return slices.DeleteFunc(all, func(g Group) bool {
		return !slices.ContainsFunc(b.Results, func(r score.Result) bool { return g.Of(r.Scenario) })
	})
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

// Text prints the board: named scenarios one by one, then means over groups.
func (b *Board) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tclient\tthrottled %\twait s\tjain\tuse\tstdev\tclear s\tadapt s\tampl\trecovery s\t")
	last := ""
	for _, r := range b.Results {
		if r.Scenario.Random {
			continue
		}
		name := r.Scenario.Name
		if name == last {
			name = ""
		}
		last = r.Scenario.Name
		m := r.Median
		fmt.Fprintln(t, strings.Join([]string{name, r.Client, spread(r, "throttled"), spread(r, "wait"), spread(r, "jain"), spread(r, "use"),
			Number(m.Stdev), Number(m.Clear), Number(m.Adapt), Number(m.Amplification), Number(m.Recovery), ""}, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintln(t, "means over\tscenarios\tclient\tthrottled %\twait s\twait ratio\tjain\tuse\tuse<.6 pacer's\tthrottled>10 %\tjain<.7\t")
	for _, g := range b.Groups() {
		for _, c := range b.Clients {
			rs := b.Select(c, g)
			if len(rs) == 0 {
				continue
			}
			m, n := score.Means(rs), score.Count(rs, b.Pacer)
			fmt.Fprintf(t, "%s\t%d\t%s\t%.2f\t%s\t%s\t%.3f\t%.3f\t%d\t%d\t%d\t\n", g.Name, len(rs), c,
				m.Throttled, Number(m.Wait), Number(m.Ratio), m.Jain, m.Use, n.Use, n.Throttled, n.Jain)
		}
	}
	return t.Flush()
}

// spread is a figure's median, with its range if it has one.
func spread(r score.Result, metric string) string {
	m := score.Metrics[slices.IndexFunc(score.Metrics, func(m score.Metric) bool { return m.Name == metric })]
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
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
