package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/a7df5faa/cruise/simulation/board"
)

// least is the throttled share, in percent, at which that axis begins.
const least = .1

// crowded is the throttled share from which on labels stand in a column beside
// the chart, because the points there are close to each other.
const crowded = 2

// column is where that column begins on the axis, past its end.
const column = 130

// mark is a client as a point of the trade-off.
type mark struct {
	client    string
	throttled float64
	use       float64
	labelY    float64 // where its label goes
	aside     bool    // the label is in the column
	left      bool    // the label is to the left of the point, since another point is to its right
	colour    color.RGBA
}

// Tradeoff draws use against throttled share, each client as a point: the
// means over one group of scenarios. The best place is the upper left corner.
func (d Data) Tradeoff(rows []board.Row) (string, error) {
	var marks []mark
	lowest := 1.0
	var words []string
	const what = "use of what the server gives against throttled share of requests: "
	for _, row := range rows {
		m := mark{client: row.Client, throttled: max(least, row.Means.Throttled), use: row.Means.Use, colour: d.color(row.Client)}
		m.aside = m.throttled >= crowded
		marks = append(marks, m)
		lowest = min(lowest, m.use)
		words = append(words, fmt.Sprintf("%s uses %.2f with %.2f %% throttled", row.Client, row.Means.Use, row.Means.Throttled))
	}
	p := newPlot()
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = least*.7, 1500
	p.X.Tick.Marker = plot.ConstantTicks{{Value: .1, Label: "≤ 0.1 %"}, {Value: 1, Label: "1 %"}, {Value: 10, Label: "10 %"}, {Value: 100, Label: "100 %"}}
	p.Y.Max = 1.02
	p.Y.Min = max(0, math.Floor((lowest-.02)*20)/20)
	p.X.Label.Text = "throttled share of requests (fewer to the left)"
	p.Y.Label.Text = "use of what the server gives"
	var ticks plot.ConstantTicks
	for v := p.Y.Min; v < 1.001; v += step(1-p.Y.Min, 6) {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', 2, 64)})
	}
	p.Y.Tick.Marker = ticks
	lines := plotter.NewGrid()
	lines.Vertical, lines.Horizontal = stroke(grid, 1), stroke(grid, 1)
	p.Add(lines)

	const width, high = 440, 300
	spread(marks, (p.Y.Max-p.Y.Min)/high*20, p.Y.Min, p.Y.Max)
	for _, m := range marks {
		if err := add(p, m); err != nil {
			return "", err
		}
	}
	return render(p, width, high, what+strings.Join(words, ", "))
}

// spread moves labels apart that would be on top of each other, by at least gap: those
// in the column downwards, and up again from its end; those beside their points to the
// other side, or upwards, where there is room.
func spread(marks []mark, gap, low, high float64) {
	var aside, field []*mark
	for i := range marks {
		m := &marks[i]
		m.labelY = m.use
		if m.aside {
			aside = append(aside, m)
		} else {
			field = append(field, m)
		}
	}
	slices.SortStableFunc(aside, func(a, b *mark) int { return cmp.Compare(b.use, a.use) })
	most := high
	for _, m := range aside {
		m.labelY = min(m.labelY, most)
		most = m.labelY - gap
	}
	for i := range aside {
		m := aside[len(aside)-1-i]
		m.labelY = max(m.labelY, low+float64(i)*gap)
	}
	for _, m := range field {
		m.left = slices.ContainsFunc(field, func(o *mark) bool {
			return o.throttled > 1.3*m.throttled && o.throttled < 10*m.throttled && math.Abs(o.use-m.use) < gap
		})
	}
	field = slices.DeleteFunc(field, func(m *mark) bool { return m.left })
	slices.SortStableFunc(field, func(a, b *mark) int { return cmp.Compare(a.use, b.use) })
	for i, m := range field {
		if i > 0 && math.Abs(math.Log(m.throttled/field[i-1].throttled)) < 1 {
			m.labelY = max(m.labelY, field[i-1].labelY+gap)
		}
	}
}

// add draws a point, its label, and a line between the two if they are apart.
func add(p *plot.Plot, m mark) error {
	at := plotter.XY{X: m.throttled, Y: m.use}
	to := plotter.XY{X: m.throttled * 1.35, Y: m.labelY}
	switch {
	case m.aside:
		to.X = column
	case m.left:
		to.X = m.throttled / 1.6 // as fonts differ in width
	}
	if m.aside || m.labelY != m.use {
		end := plotter.XY{X: to.X * .96, Y: to.Y}
		lead, err := plotter.NewLine(plotter.XYs{at, end})
		if err != nil {
			return err
		}
		lead.LineStyle = stroke(faint, .8)
		p.Add(lead)
	}
	dot, err := plotter.NewScatter(plotter.XYs{at})
	if err != nil {
		return err
	}
	radius := vg.Length(4.5)
	if m.colour == accent {
		radius = 7
	}
	dot.GlyphStyle = glyph(m.colour, radius)
	name, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{to}, Labels: []string{m.client}})
	if err != nil {
		return err
	}
	style := &name.TextStyle[0]
	style.Font, style.Color = face(textSize), ink
	if m.colour == accent {
		style.Font, style.Color = face(15), accent
	}
	style.XAlign, style.YAlign = text.XLeft, text.YCenter
	if m.left {
		style.XAlign = text.XRight
	}
	p.Add(dot, name)
	return nil
}
