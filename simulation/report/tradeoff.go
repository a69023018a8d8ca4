package report

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/a7df5faa/cruise/simulation/board"
)

// least is the throttled share, in percent, at which that axis begins.
const least = .1

// mark is a client as a point of the trade-off.
type mark struct {
	client    string
	throttled float64
	use       float64
	labelY    float64 // where its label goes
	onRight   bool    // of the point
	colour    color.RGBA
}

// Tradeoff draws use against throttled share, each client as a point: the
// means over one group of scenarios. The best place is the upper left corner.
func (d Data) Tradeoff(rows []board.Row) (string, error) {
	var marks []mark
	lowest := 1.0
	label := "use of what the server gives against throttled share of requests:"
	for _, row := range rows {
		m := mark{client: row.Client, throttled: max(least, row.Means.Throttled), use: row.Means.Use, colour: d.color(row.Client)}
		m.onRight = m.throttled < 8
		marks = append(marks, m)
		lowest = min(lowest, m.use)
		label += fmt.Sprintf(" %s uses %.2f with %.2f %% throttled;", row.Client, row.Means.Use, row.Means.Throttled)
	}
	p := newPlot()
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = least*.8, 100
	p.X.Tick.Marker = decades(least, 100, " %")
	p.Y.Max = 1.02
	p.Y.Min = math.Floor((lowest-.02)*20) / 20
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

	const width, high = 560, 340
	spread(marks, (p.Y.Max-p.Y.Min)/high*16)
	for _, m := range marks {
		if err := add(p, m); err != nil {
			return "", err
		}
	}
	return render(p, width, high, label[:len(label)-1])
}

// spread moves labels on the same side of their points apart, by at least gap.
func spread(marks []mark, gap float64) {
	for _, right := range []bool{true, false} {
		var side []*mark
		for i := range marks {
			if marks[i].onRight == right {
				marks[i].labelY = marks[i].use
				side = append(side, &marks[i])
			}
		}
		slices.SortFunc(side, func(a, b *mark) int { return int(math.Copysign(1, b.use-a.use)) })
		for i := 1; i < len(side); i++ {
			side[i].labelY = min(side[i].labelY, side[i-1].labelY-gap)
		}
	}
}

// add draws a point, its label, and a line between the two if they are apart.
func add(p *plot.Plot, m mark) error {
	factor, align := 1.18, text.XLeft
	if !m.onRight {
		factor, align = 1/1.18, text.XRight
	}
	at := plotter.XY{X: m.throttled, Y: m.use}
	to := plotter.XY{X: m.throttled * factor, Y: m.labelY}
	if m.labelY != m.use {
		lead, err := plotter.NewLine(plotter.XYs{at, to})
		if err != nil {
			return err
		}
		lead.LineStyle = stroke(grid, 1)
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
	name.TextStyle[0].Font = face(textSize)
	name.TextStyle[0].Color = ink
	if m.colour == accent {
		name.TextStyle[0].Font = face(15)
		name.TextStyle[0].Color = accent
	}
	name.TextStyle[0].XAlign, name.TextStyle[0].YAlign = align, text.YCenter
	p.Add(dot, name)
	return nil
}
