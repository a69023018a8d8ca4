package report

import (
	"fmt"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// File is a chart as a file of its own.
type File struct {
	Suffix  string // of its name, which begins as the document's
	Alt     string
	Caption string
	SVG     string
}

// changing is the scenario of the one chart over time in a document: its limit falls to a tenth and
// comes back.
const changing = "step-50-5-50"

// Files are the charts that documents show: use against throttled share, and our
// own client and another one over time at a server that changes.
func (d Data) Files() ([]File, error) {
	var files []File
	if groups := d.Board.Rows(); len(groups) > 0 {
		svg, err := d.Tradeoff(groups[0])
		if err != nil {
			return nil, err
		}
		const what = "Use of what the server gives against throttled share"
		caption := what
		if !d.Board.Single() {
			caption += ", means over the " + groups[0][0].Group
		}
		caption += ": the upper left corner is the best place."
		if d.yardsticks() {
			caption += " Orange clients are yardsticks, which are told the limit, in the scenarios where that can be told."
		}
		files = append(files, File{Suffix: "-use-throttled.svg", Alt: what, Caption: caption, SVG: file(svg)})
	}
	recs := d.recordings(changing)
	if len(recs) == 0 {
		return files, nil
	}
	shown := d.shown(recs)
	top := highest(shown)
	for _, rec := range shown[:min(2, len(shown))] {
		svg, err := d.Rate(rec, top)
		if err != nil {
			return nil, err
		}
		files = append(files, File{
			Suffix:  "-step-" + rec.Client + ".svg",
			Alt:     "Rate of " + rec.Client + " over time, where the limit falls and comes back",
			Caption: caption(rec),
			SVG:     file(svg),
		})
	}
	return files, nil
}

func caption(rec *engine.Recording) string {
	total := rec.Totals()
	return fmt.Sprintf("%s where the limit (dashed) falls from 50 a second to 5 and comes back: %d of %d requests throttled (red).", rec.Client, total.Throttled, total.Requests)
}
