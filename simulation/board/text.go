package board

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// few scenarios are told in words before their figures, and clients and columns after them.
const few = 3

// Text prints the board: named scenarios one by one, then means over groups.
func (b *Board) Text(w io.Writer) error {
	list := b.Scenarios()
	if len(list) <= few {
		for _, s := range list {
			fmt.Fprintf(w, "%s: %s\n%s\n\n", s.Name, s.About, s.Setup())
		}
	}
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', tabwriter.AlignRight)
	named, means, legend := b.named(), []Table(nil), b.Legend("*")
	if !b.Single() {
		means, legend = b.Means(), append(b.MeansLegend(), legend...)
	}
	for _, part := range []struct {
		head   string
		tables []Table
	}{{"scenario", named}, {"means over", means}} {
		for i, table := range part.tables {
			if i == 0 {
				fmt.Fprintf(t, "%s\tclient\t%s\t\n", part.head, strings.Join(table.Head, "\t"))
			}
			table.text(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if len(part.tables) > 0 {
			fmt.Fprintln(w)
		}
	}
	for _, line := range legend {
		fmt.Fprintln(w, line)
	}
	if len(list) > few {
		return nil
	}
	words := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(legend) > 0 {
		fmt.Fprintln(words)
	}
	for _, c := range b.Clients {
		fmt.Fprintf(words, "%s\t%s\n", c.Name, c.About)
	}
	fmt.Fprint(words, "\nmedians over the runs, ranges in brackets:\n")
	for _, m := range b.Figures() {
		fmt.Fprintf(words, "%s\t%s\n", Title(m), m.About)
	}
	return words.Flush()
}

// text prints a table's rows, its name before the first.
func (t Table) text(w io.Writer) {
	name := t.Name
	for _, line := range t.Rows {
		fmt.Fprintf(w, "%s\t%s\t", name, line.Client)
		for _, c := range line.Cells {
			text := c.Text
			if c.Best {
				text += "*"
			}
			fmt.Fprintf(w, "%s\t", text)
		}
		fmt.Fprintln(w)
		name = ""
	}
}
