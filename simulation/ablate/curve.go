package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/score"
)

// keepable returns the law's results in the random scenarios in which the limit can be kept.
func (p played) keepable() []score.Result {
	return p.board.Select(p.board.Own, p.board.Group(board.Keepable))
}

// oracle prints the result of choosing afterwards, for each scenario, the best of several laws: at
// the use of the present law, and at any use.
func oracle(w io.Writer, all []played, none played) {
	base := none.keepable()
	scenarios := len(base)
	if scenarios == 0 {
		return
	}
	var laws [][]score.Result
	for _, p := range all {
		law := make([]score.Result, scenarios)
		for i, r := range base {
			law[i], _ = p.board.Result(p.board.Own, r.Scenario.Name)
		}
		laws = append(laws, law)
	}
	// choose takes the law with the fewest throttles in each scenario, if all of the use is worth
	// as much as that percentage of throttles.
	choose := func(worth float64) score.Score {
		best := slices.Clone(laws[0])
		for _, law := range laws {
			for i, r := range law {
				if m, b := r.Median, best[i].Median; m.Throttled-worth*m.Use < b.Throttled-worth*b.Use {
					best[i] = r
				}
			}
		}
		return score.Means(best)
	}
	use, less := score.Means(base).Use, 0.
	more := 1000. // the use of the law with the most
	for range 50 {
		if half := (less + more) / 2; choose(half).Use < use {
			less = half
		} else {
			more = half
		}
	}
	alike, least := choose(more), choose(0)
	fmt.Fprintf(w, "The best of these %d in each of %d scenarios: throttled %.2f %% at a use of %.3f, %.2f %% at %.3f.\n",
		len(laws), scenarios, alike.Throttled, alike.Use, least.Throttled, least.Use)
	everywhere := func(most float64) (n int) {
		for i := range scenarios {
			if !slices.ContainsFunc(laws, func(law []score.Result) bool { return law[i].Median.Throttled <= most }) {
				n++
			}
		}
		return n
	}
	fmt.Fprintf(w, "Throttled by each of them above 2 %%: %d scenarios; above 10 %%: %d.\n", everywhere(2), everywhere(10))
}

// byCalls prints throttles by how many calls each process makes.
func byCalls(w io.Writer, p played) {
	fmt.Fprintln(w, "| calls of each process | scenarios | throttled % | of the mean, points | throttles of each process, median |")
	fmt.Fprintln(w, "|---|---|---|---|---|")
	all := p.keepable()
	from := 0.
	for _, class := range []struct {
		name string
		to   float64
	}{{"below 100", 100}, {"100 to 300", 300}, {"300 to 1,000", 1000}, {"1,000 to 3,000", 3000}, {"more", 1e18}} {
		var of []score.Result
		var each []float64
		for _, r := range all {
			count := p.counts[r.Scenario.Name]
			processes := float64(r.Runs * r.Scenario.Processes)
			if calls := float64(count.Successes) / processes; calls >= from && calls < class.to {
				of = append(of, r)
				each = append(each, float64(count.Throttled)/processes)
			}
		}
		from = class.to
		if len(of) == 0 {
			continue
		}
		mean := score.Means(of).Throttled
		fmt.Fprintf(w, "| %s | %d | %.1f | %.2f | %.0f |\n", class.name, len(of), mean, mean*float64(len(of))/float64(len(all)), score.Median(each))
	}
}
