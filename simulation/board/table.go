package board

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/score"
)

// Table is figures ready to be printed in any format.
type Table struct {
	Name string
	Head []string // of the cells, the client's name not included
	Rows []Line
}

// Line is a client's row of a table.
type Line struct {
	Client    string
	Own       bool
	Yardstick bool
	Better    bool // than our own client
	Cells     []Cell
}

// Cell is one figure.
type Cell struct {
	Text string
	Best bool // of its column
}

// inScenario and inGroup are the columns of figures of the two kinds of tables.
var (
	inScenario = Metrics("throttled", "wait", "jain", "use", "least", "genie_throttled", "genie_use", "clear", "slow", "plain",
		"failed", "first", "half", "recovery", "adapt", "stdev", "amplification")
	inGroup = Metrics("throttled", "wait", "ratio", "jain", "use")
)

// breaksDown are the columns of a group that count how often a client breaks down.
var breaksDown = []string{"use<.6 pacer's", "throttled>10 %", "jain<.7"}

// ranged are the figures of a scenario that show the range over the seeds.
var ranged = []string{"throttled", "wait", "jain", "use", "least", "slow", "failed", "first", "half", "recovery"}

// Scenario is the table of a scenario.
func (b *Board) Scenario(name string) Table {
	t := Table{Name: name}
	for _, m := range inScenario {
		t.Head = append(t.Head, Title(m))
	}
	t.Head = append(t.Head, "better")
	var clients []string
	var figures []score.Score
	for _, r := range b.Of(name) {
		clients, figures = append(clients, r.Client), append(figures, r.Median)
	}
	marks := b.marks(inScenario, clients, figures, func(_ score.Metric, v float64) string { return Number(v) })
	for i, r := range b.Of(name) {
		line := b.line(r.Client)
		line.Better = b.Better(r)
		for j, m := range inScenario {
			text := Number(*m.Of(&r.Median))
			if slices.Contains(ranged, m.Name) {
				text = Spread(r, m)
			}
			line.Cells = append(line.Cells, Cell{text, marks[i][j]})
		}
		better := ""
		if line.Better {
			better = "than " + b.Own
		}
		line.Cells = append(line.Cells, Cell{Text: better})
		t.Rows = append(t.Rows, line)
	}
	return t
}

// Means are the tables of means, one for each group.
func (b *Board) Means() []Table {
	var list []Table
	for _, rows := range b.Rows() {
		list = append(list, b.GroupTable(rows))
	}
	return list
}

// GroupTable is the table of a group's rows.
func (b *Board) GroupTable(rows []Row) Table {
	t := Table{Name: rows[0].Group, Head: []string{"scenarios"}}
	for _, m := range inGroup {
		t.Head = append(t.Head, Title(m))
	}
	t.Head = append(append(t.Head, breaksDown...), "better")
	var clients []string
	var figures []score.Score
	for _, row := range rows {
		clients, figures = append(clients, row.Client), append(figures, row.Means)
	}
	marks := b.marks(inGroup, clients, figures, fixed)
	for i, row := range rows {
		line := b.line(row.Client)
		line.Cells = []Cell{{Text: strconv.Itoa(row.Scenarios)}}
		for j, m := range inGroup {
			line.Cells = append(line.Cells, Cell{fixed(m, *m.Of(&row.Means)), marks[i][j]})
		}
		lowUse := "-"
		if len(b.Pacer) > 0 {
			lowUse = strconv.Itoa(row.Collapses.Use)
		}
		line.Cells = append(line.Cells, Cell{Text: lowUse}, Cell{Text: strconv.Itoa(row.Collapses.Throttled)}, Cell{Text: strconv.Itoa(row.Collapses.Jain)})
		better := "-"
		if b.compares() && !line.Yardstick {
			better = strconv.Itoa(row.Better)
		}
		line.Cells = append(line.Cells, Cell{Text: better})
		t.Rows = append(t.Rows, line)
	}
	return t
}

// named are the tables of the scenarios that have a name, without columns in which nothing is.
func (b *Board) named() []Table {
	var list []Table
	for _, s := range b.Scenarios() {
		if !s.Random {
			list = append(list, b.Scenario(s.Name))
		}
	}
	return compact(list)
}

// Single reports whether the board is of one scenario, which has a table: the means over it
// would say it all again.
func (b *Board) Single() bool {
	list := b.Scenarios()
	return len(list) == 1 && !list[0].Random
}

// Figures returns the metrics that the board's tables show.
func (b *Board) Figures() []score.Metric {
	tables := b.named()
	if !b.Single() {
		tables = append(tables, b.Means()...)
	}
	return slices.DeleteFunc(slices.Clone(score.Metrics), func(m score.Metric) bool {
		return !slices.ContainsFunc(tables, func(t Table) bool { return slices.Contains(t.Head, Title(m)) })
	})
}

// Compact is the table without the columns in which nothing is.
func (t Table) Compact() Table { return compact([]Table{t})[0] }

// compact returns tables of the same columns without the columns that are empty in all of them.
func compact(tables []Table) []Table {
	empty := func(column int) bool {
		for _, t := range tables {
			if slices.ContainsFunc(t.Rows, func(line Line) bool { text := line.Cells[column].Text; return text != "-" && text != "" }) {
				return false
			}
		}
		return true
	}
	out := make([]Table, len(tables))
	for i, t := range tables {
		out[i] = Table{Name: t.Name, Rows: slices.Clone(t.Rows)}
		for j := range out[i].Rows {
			out[i].Rows[j].Cells = nil
		}
		for column, head := range t.Head {
			if empty(column) {
				continue
			}
			out[i].Head = append(out[i].Head, head)
			for j, line := range t.Rows {
				out[i].Rows[j].Cells = append(out[i].Rows[j].Cells, line.Cells[column])
			}
		}
	}
	return out
}

func (b *Board) line(client string) Line {
	c := b.Client(client)
	return Line{Client: client, Own: c.Own, Yardstick: c.Yardstick}
}

// fixed prints the mean of a figure. The most important figures have the same digits in all rows.
func fixed(m score.Metric, v float64) string {
	switch m.Name {
	case "jain", "use":
		return fmt.Sprintf("%.3f", v)
	case "throttled":
		return fmt.Sprintf("%.2f", v)
	}
	return Number(v)
}

// Legend explains the tables' marks, which look like mark.
func (b *Board) Legend(mark string) []string {
	if !b.compares() {
		return nil
	}
	return []string{mark + " best of the column, yardsticks left out"}
}

// MeansLegend explains the columns of means that have no figures.
func (b *Board) MeansLegend() []string {
	lines := []string{fmt.Sprintf("%s: in how many scenarios the client used less than 0.6 of what %s does, was throttled more than 10 %%, had a Jain's index below 0.7",
		strings.Join(breaksDown, ", "), client.Pacer().Name)}
	if !b.compares() {
		return lines
	}
	return append(lines, fmt.Sprintf("better: scenarios in which a peer is throttled less than %s and yet uses more; for %s, in which any peer is", b.Own, b.Own))
}

// compares reports whether there is a client to compare with.
func (b *Board) compares() bool { return len(b.Clients) > 1 && b.Own != "" }
