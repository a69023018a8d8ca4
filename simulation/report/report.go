// Package report draws results: one HTML page that needs nothing else, and
// charts as files.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
)

// Recordings are the runs for charts over time: one for each named scenario and client.
type Recordings map[string]map[string]*engine.Recording

// Keep keeps a recording of a named scenario, of the lowest seed.
func (r Recordings) Keep(rec *engine.Recording) {
	name := rec.Scenario.Name
	if rec.Scenario.Random {
		return
	}
	if r[name] == nil {
		r[name] = map[string]*engine.Recording{}
	}
	if old := r[name][rec.Client]; old == nil || rec.Seed < old.Seed {
		r[name][rec.Client] = rec
	}
}

// Data is the content of a report.
type Data struct {
	Board      *board.Board
	Recordings Recordings
}

// recordings returns the recordings of a scenario in the order of the board.
func (d Data) recordings(scenario string) []*engine.Recording {
	var recs []*engine.Recording
	for _, c := range d.Board.Clients {
		if rec := d.Recordings[scenario][c.Name]; rec != nil {
			recs = append(recs, rec)
		}
	}
	return recs
}

// featured is how many clients are drawn over time, where none of the usual ones ran.
const featured = 3

// shown returns the clients that are drawn over time: our own, one that adapts, and one that only
// retries, as far as they ran; else the first ones.
func (d Data) shown(recs []*engine.Recording) []*engine.Recording {
	var own, others []*engine.Recording
	for _, rec := range recs {
		switch name := rec.Client; {
		case d.Board.Client(name).Own:
			own = append(own, rec)
		case name == client.AWS().Name, name == client.Cenkalti().Name:
			others = append(others, rec)
		}
	}
	if list := append(own, others...); len(list) > 0 {
		return list
	}
	return recs[:min(featured, len(recs))]
}

//go:embed page.html
var page string

// picture is a chart with its words.
type picture struct {
	SVG     template.HTML
	Caption string
	Own     bool
}

type section struct {
	*scenario.Scenario
	Table  board.Table
	Rates  []picture
	Waits  picture
	Shares picture
	Beaten []string
}

type group struct {
	board.Table
	Tradeoff picture
}

type target struct {
	board.Target
	Value, Verdict string
}

// figure is the head of a column, and its explanation.
type figure struct{ Name, About string }

type content struct {
	*board.Board
	Ours       string // the clients that are blue
	Yardsticks bool   // there are some
	Figures    []figure
	Runs       int
	Groups     []group
	Targets    []target
	Met, All   int // of the targets that were run
	Sections   []section
}

// NotRun is how many targets were not run.
func (c content) NotRun() int { return len(c.Targets) - c.All }

// HTML writes the report as a page.
func (d Data) HTML(w io.Writer) error {
	c := content{Board: d.Board, Yardsticks: d.yardsticks()}
	var ours []string
	for _, cl := range d.Board.Clients {
		if cl.Own {
			ours = append(ours, cl.Name)
		}
	}
	c.Ours = strings.Join(ours, " and ")
	for _, m := range d.Board.Figures() {
		c.Figures = append(c.Figures, figure{board.Title(m), m.About})
	}
	for _, rows := range d.Board.Rows() {
		g := group{Table: d.Board.GroupTable(rows)}
		// One picture of the scenarios made by hand, one of the random ones.
		if len(c.Groups) == 0 || g.Name == board.Keepable {
			svg, err := d.Tradeoff(rows)
			if err != nil {
				return err
			}
			g.Tradeoff.SVG = template.HTML(svg)
		}
		c.Groups = append(c.Groups, g)
	}
	c.Met, c.All = d.Board.Tally()
	for _, t := range board.Targets {
		if d.Board.Own == "" || c.All == 0 { // at a server of one's own
			break
		}
		v := t.Of(d.Board)
		c.Targets = append(c.Targets, target{t, board.Number(v), t.Verdict(v)})
	}
	for _, r := range d.Board.Results {
		c.Runs += r.Runs
	}
	for _, s := range d.Board.Scenarios() {
		if s.Random || len(d.Recordings[s.Name]) == 0 {
			continue
		}
		sec, err := d.section(s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		c.Sections = append(c.Sections, sec)
	}
	t, err := template.New("page").Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, c)
}

// yardsticks tells whether some of the clients are.
func (d Data) yardsticks() bool {
	return slices.ContainsFunc(d.Board.Clients, func(c engine.Client) bool { return c.Yardstick })
}

// section returns the page's section about a scenario.
func (d Data) section(s *scenario.Scenario) (section, error) {
	recs := d.recordings(s.Name)
	sec := section{Scenario: s, Table: d.Board.Scenario(s.Name).Compact(), Beaten: d.Board.Beaten(s.Name)}
	shown := d.shown(recs)
	top := highest(shown)
	for _, rec := range shown {
		svg, err := d.Rate(rec, top)
		if err != nil {
			return sec, err
		}
		total := rec.Totals()
		sec.Rates = append(sec.Rates, picture{
			SVG:     template.HTML(svg),
			Caption: fmt.Sprintf("%s: %d of %d requests throttled", rec.Client, total.Throttled, total.Requests),
			Own:     d.Board.Client(rec.Client).Own,
		})
	}
	svg, err := d.Waits(d.Board.Of(s.Name))
	if err != nil {
		return sec, err
	}
	sec.Waits = picture{SVG: template.HTML(svg), Caption: "Longest wait of a caller: median and range of the runs"}
	if svg, err = d.Shares(recs, s.Ideal()); err != nil {
		return sec, err
	}
	sec.Shares = picture{SVG: template.HTML(svg), Caption: "What each caller got, relative to an equal share"}
	return sec, nil
}
