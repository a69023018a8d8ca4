package board

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/a7df5faa/cruise/simulation/scenario"
)

// Chart is a picture that the markdown shows.
type Chart struct {
	File    string
	Alt     string
	Caption string // the content, and the meaning of colours and lines
}

// Markdown writes the board as a page, with pictures of the given files.
func (b *Board) Markdown(w io.Writer, charts []Chart) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Scoreboard\n\n")
	fmt.Fprintf(&out, "Written by cruise's [simulator](https://github.com/a7df5faa/cruise/tree/main/simulation#readme), which says what each column means. Under virtual time it runs the published code of each client that is a Go module,\n")
	fmt.Fprintf(&out, "and plays the rules of the others by code of this repository, as said of each [below](#clients).\n")
	if n := len(b.Results); n > 0 {
		least, most := b.Results[0].Runs, 0
		for _, r := range b.Results {
			least, most = min(least, r.Runs), max(most, r.Runs)
		}
		runs := fmt.Sprint(most)
		if least != most {
			runs = fmt.Sprintf("%d to %d", least, most)
		}
		fmt.Fprintf(&out, "Each figure is the median of %s seeded runs. These do not repeat exactly, most of all where processes share a limit:\n", runs)
		fmt.Fprintf(&out, "which goroutine comes first at one moment, and what a client draws by lot, are not of the seed.\n")
	}
	fmt.Fprintf(&out, "Throttled is the mean over callers of their throttled requests (random scenarios: of all requests), use is what was got of what the server offered,\n")
	fmt.Fprintf(&out, "the longest wait is the longest time that any caller went without a success (means are geometric), and Jain's index is 1 when all callers (random scenarios: all processes) get the same whenever they are there.\n\n")
	for _, c := range charts {
		fmt.Fprintf(&out, "![%s](%s)\n\n%s\n\n", c.Alt, url.PathEscape(c.File), c.Caption)
	}
	legend := b.Legend("**Bold**:")
	if !b.Single() {
		legend = append(b.MeansLegend(), legend...)
		for _, t := range b.Means() {
			fmt.Fprintf(&out, "## Means: %s\n\n", t.Name)
			t.markdown(&out)
		}
	}
	for _, line := range legend {
		fmt.Fprintf(&out, "%s.  \n", line)
	}
	if len(legend) > 0 {
		fmt.Fprintln(&out)
	}
	if _, run := b.Tally(); b.Own != "" && run > 0 { // none at a server of one's own
		fmt.Fprintf(&out, "## Targets\n\n| | | value | wanted | |\n|---|---|---:|---:|---|\n")
		for _, t := range Targets {
			v := t.Of(b)
			fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", cell(t.Where), cell(t.What), Number(v), cell(t.Wanted()), t.Verdict(v))
		}
		fmt.Fprintln(&out)
	}
	fmt.Fprintf(&out, "## Clients\n\n")
	for _, c := range b.Clients {
		fmt.Fprintf(&out, "- **%s**: %s\n", c.Name, c.About)
	}
	named := slices.DeleteFunc(b.Scenarios(), func(s *scenario.Scenario) bool { return s.Random })
	if len(named) > 0 {
		fmt.Fprintf(&out, "\n## Scenarios\n\n")
	}
	for _, s := range named {
		fmt.Fprintf(&out, "### %s\n\n%s. %s.\n\n", s.Name, capital(s.About), capital(s.Setup()))
		b.Scenario(s.Name).Compact().markdown(&out)
	}
	_, err := w.Write(out.Bytes())
	return err
}

func (t Table) markdown(w io.Writer) {
	heads := make([]string, len(t.Head))
	for i, h := range t.Head {
		heads[i] = cell(h)
	}
	fmt.Fprintf(w, "| client | %s |\n|---|%s\n", strings.Join(heads, " | "), strings.Repeat("---:|", len(t.Head)))
	for _, line := range t.Rows {
		name := line.Client
		if line.Yardstick {
			name = "*" + name + "*"
		}
		fmt.Fprintf(w, "| %s |", name)
		for _, c := range line.Cells {
			text := cell(c.Text)
			if c.Best {
				text = "**" + text + "**"
			}
			fmt.Fprintf(w, " %s |", text)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// cell is a text that does not end its cell, nor begin a tag.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "..", "–").Replace(s)
}

// capital is a sentence with a capital letter.
func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
