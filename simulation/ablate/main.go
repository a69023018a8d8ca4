// Command ablate changes one thing of the control law at a time, plays the suite and random
// scenarios with each, and prints a row of figures for docs/control.md. In random scenarios each
// change is compared with the present law scenario by scenario, so that a difference of a fortieth
// shows. Run it in the simulation module.
//
//	go run ./ablate                   every change of the table
//	go run ./ablate -only 'rule 6'    the changes with a matching rule or text
//	go run ./ablate -only none        the law as it is in the tree
//	go run ./ablate -curve -seeds 6   the changes that trade throttles against use,
//	                                  and the best that a choice among them reaches
//
// It runs itself anew for each change, built with a changed copy of the law that
// go build's -overlay puts in its place.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

func main() {
	var s settings
	only := flag.String("only", "", "regular expression: changes whose rule or words match; default all")
	trade := flag.Bool("curve", false, "the changes that trade throttles against use, in place of the table's")
	child := flag.Bool("child", false, "play the law that this program is built with, for the one that started it")
	flag.IntVar(&s.seeds, "seeds", 3, "runs of each scenario")
	flag.IntVar(&s.random, "random", 500, "random scenarios")
	flag.Uint64Var(&s.from, "from", 5001, "seed of the first; those from 10001 on are for reports")
	flag.Parse()
	var err error
	switch {
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: all options are flags, see -h", flag.Arg(0))
	case s.seeds < 1 || s.seeds > 1000:
		err = fmt.Errorf("-seeds %d: want 1 to 1000", s.seeds)
	case s.random < 1 || s.random > 10_000:
		err = fmt.Errorf("-random %d: want 1 to 10000", s.random)
	case *trade && *only != "":
		err = errors.New("-only does not go with -curve, which is one whole")
	case *child:
		err = s.tell(os.Stdout)
	case *trade:
		err = s.curve(os.Stdout)
	default:
		err = s.table(os.Stdout, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ablate:", err)
		os.Exit(1)
	}
}

// none is the law as it is.
var none = change{what: "none"}

// table prints the present law, and each wanted change. If no change is wanted it prints only the
// law.
func (s settings) table(w io.Writer, only string) error {
	which, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only %s: %w", only, err)
	}
	tried := []change{none}
	for _, c := range changes {
		if which.MatchString("rule " + c.name()) {
			tried = append(tried, c)
		}
	}
	if len(tried) == 1 && !which.MatchString("rule "+none.name()) {
		return fmt.Errorf("-only %s: no change has such words", only)
	}
	_, err = s.rows(w, tried)
	return err
}

// curve prints the present law among the changes that trade throttles against use, and the best
// choice among them all.
func (s settings) curve(w io.Writer) error {
	at := slices.IndexFunc(curve, func(c change) bool { return c.rule == 1 }) + 1
	all, err := s.rows(w, slices.Insert(slices.Clone(curve), at, none))
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	oracle(w, all, all[at])
	fmt.Fprintln(w)
	byCalls(w, all[at])
	return nil
}

const head = "| rule | change | suite: throttled % | wait | Jain | use | random: throttled % | wait | Jain | use | broke down | more throttled, longer wait in %, fairer, more use | `heroku-10x1`: throttled %, wait, Jain |"

// rows plays the law with each of the changes, and prints a row for each. It plays the present law
// first, for comparison.
func (s settings) rows(w io.Writer, tried []change) ([]played, error) {
	law, err := read()
	if err != nil {
		return nil, err
	}
	pacer := score.Play(scenario.Randoms(s.from, s.random), clients()[1:], score.Seeds(s.seeds), nil, nil)
	base, err := s.play(law, none, pacer)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(w, head)
	fmt.Fprintln(w, strings.Repeat("|---", strings.Count(head, "|")-1)+"|")
	var all []played
	for _, c := range tried {
		p := base
		if len(c.edits) > 0 {
			if p, err = s.play(law, c, pacer); err != nil {
				return nil, fmt.Errorf("%s: %w", c.what, err)
			}
		}
		fmt.Fprintln(w, "|", c.name(), "|", p.figures(base), "|")
		all = append(all, p)
	}
	return all, nil
}

// figures are the cells of a row: the means of the suite, and of the random scenarios
// that can be kept, with the wait relative to that between turns, how many break down,
// how these differ from the law as it is, and the slowest of the suite by itself.
func (p played) figures(base played) string {
	var cells []string
	for _, group := range []string{board.Suite, board.Keepable} {
		of := p.board.Select(p.board.Own, p.board.Group(group))
		means, collapses := score.Means(of), []string(nil)
		wait := means.Wait
		if group == board.Keepable {
			wait = means.Ratio
			c := score.Count(of, p.board.Pacer)
			collapses = []string{fmt.Sprintf("%d / %d / %d", c.Use, c.Throttled, c.Jain), p.against(base)}
		}
		for _, v := range []float64{means.Throttled, wait, means.Jain, means.Use} {
			cells = append(cells, board.Number(v))
		}
		cells = append(cells, collapses...)
	}
	slow, _ := p.board.Result(p.board.Own, "heroku-10x1")
	m := slow.Median
	return strings.Join(append(cells, fmt.Sprintf("%.1f, %.0f, %.2f", m.Throttled, m.Wait, m.Jain)), " | ")
}

// against returns the mean difference from the present law in the random scenarios, with its
// standard error.
func (p played) against(base played) string {
	if p.board == base.board {
		return ""
	}
	was, is := base.keepable(), p.keepable()
	var differences []string
	for _, d := range []struct {
		format string
		of     func(score.Score) float64
	}{
		{"%+.2f ± %.2f", func(s score.Score) float64 { return s.Throttled }},
		{"%+.1f ± %.1f", func(s score.Score) float64 { return 100 * math.Log(s.Ratio) }},
		{"%+.3f ± %.3f", func(s score.Score) float64 { return s.Jain }},
		{"%+.3f ± %.3f", func(s score.Score) float64 { return s.Use }},
	} {
		var by []float64
		for i := range is {
			by = append(by, d.of(is[i].Median)-d.of(was[i].Median))
		}
		mean, err := meanOf(by)
		differences = append(differences, fmt.Sprintf(d.format, mean, err))
	}
	return strings.Join(differences, ", ")
}

// meanOf is the mean of values and its standard error, both 0 of fewer than two.
func meanOf(values []float64) (mean, err float64) {
	n := float64(len(values))
	if n < 2 {
		return 0, 0
	}
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		err += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(err / (n - 1) / n)
}
