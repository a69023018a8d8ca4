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

// least is the throttled share, in percent, below which it makes no difference, and leastX
// that at which the axis begins.
const (
	least  = .1
	leastX = .7 * least
)

// crowded is the throttled share from which on labels stand in a column beside
// the chart, because the points there are close to each other.
const crowded = 2

// column is where that column begins on the axis, past its end.
const column = 130

// The size of the chart, and of the part of it that has an axis, in points.
const (
	width, high   = 440, 300
	inner, decade = 250, 63
)

// mark is a client as a point of the trade-off.
type mark struct {
	client    string
	throttled float64
	use       float64
	labelY    float64 // where its label goes
	aside     bool    // the label is in the column
	left      bool    // the label is to the left of the point
	colour    color.RGBA
}

// size is that of the label's letters.
func (m mark) size() vg.Length {
	if m.colour == accent {
		return 15
	}
	return textSize
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
	p.X.Min, p.X.Max = leastX, 1500
	p.X.Tick.Marker = plot.ConstantTicks{{Value: .1, Label: "≤ 0.1 %"}, {Value: 1, Label: "1 %"}, {Value: 10, Label: "10 %"}, {Value: 100, Label: "100 %"}}
	p.Y.Max = 1.02
	p.Y.Min = max(0, math.Floor((lowest-.02)*20)/20)
	p.X.Label.Text = "throttled share of requests (fewer to the left)"
	p.Y.Label.Text = "use of what the server gives"
	var ticks plot.ConstantTicks
	for v := 1.; v > p.Y.Min-.001; v -= step(1-p.Y.Min, 6) { // from all that there is down
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', 2, 64)})
	}
	p.Y.Tick.Marker = ticks
	lines := plotter.NewGrid()
	lines.Vertical, lines.Horizontal = stroke(grid, 1), stroke(grid, 1)
	p.Add(lines)

	scale := (p.Y.Max - p.Y.Min) / inner
	spread(marks, 17*scale, p.Y.Min, p.Y.Max)
	beside(marks, scale, p.Y.Min, p.Y.Max)
	for _, m := range marks {
		if err := add(p, m); err != nil {
			return "", err
		}
	}
	return render(p, width, high, what+strings.Join(words, ", "))
}

// spread moves the labels of the column apart that would be on top of each other, by at
// least gap: downwards, and up again from its end.
func spread(marks []mark, gap, low, high float64) {
	var aside []*mark
	for i := range marks {
		if m := &marks[i]; m.aside {
			m.labelY = m.use
			aside = append(aside, m)
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
}

// box is a part of the chart, in points.
type box struct{ left, right, low, high float64 }

func (b box) meets(o box) bool {
	return b.left < o.right && o.left < b.right && b.low < o.high && o.low < b.high
}

// beside gives each label that is not in the column the first place beside its point, or above
// or below that, where no point is and no other label. scale is the use that a point of the
// chart stands for.
func beside(marks []mark, scale, low, high float64) {
	at := func(x, y float64) (float64, float64) { return decade * math.Log10(x), y / scale }
	var taken []box
	for _, m := range marks {
		x, y := at(m.throttled, m.use)
		taken = append(taken, box{x - 6, x + 6, y - 6, y + 6})
	}
	free := func(b box) bool {
		return b.left >= decade*math.Log10(leastX) && b.low >= low/scale && b.high <= high/scale &&
			!slices.ContainsFunc(taken, b.meets)
	}
	for i := range marks {
		m := &marks[i]
		if m.aside {
			continue
		}
		width := .6 * float64(m.size()) * float64(len(m.client)) // as fonts differ
		label := func(left bool, y float64) box {
			from, y := at(m.labelX(left), y)
			if left {
				from -= width
			}
			return box{from, from + width, y - float64(m.size())/2, y + float64(m.size())/2}
		}
		m.labelY, m.left = m.use, false
	search:
		for _, lines := range []float64{0, 1, -1, 2, -2, 3, -3} {
			for _, left := range []bool{false, true} {
				if y := m.use + lines*scale*float64(m.size()+3); free(label(left, y)) {
					m.labelY, m.left = y, left
					break search
				}
			}
		}
		taken = append(taken, label(m.left, m.labelY))
	}
}

// labelX is where a label to the left or right of the point begins or ends.
func (m mark) labelX(left bool) float64 {
	if left {
		return m.throttled / 1.5
	}
	return m.throttled * 1.35
}

// add draws a point, its label, and a line between the two if they are apart.
func add(p *plot.Plot, m mark) error {
	at := plotter.XY{X: m.throttled, Y: m.use}
	to := plotter.XY{X: m.labelX(m.left), Y: m.labelY}
	if m.aside {
		to.X = column
	}
	if m.aside || m.labelY != m.use {
		end := plotter.XY{X: to.X * .96, Y: to.Y}
		if m.left {
			end.X = to.X * 1.04
		}
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
	style.Font, style.Color = face(m.size()), ink
	if m.colour == accent {
		style.Color = accent
	}
	style.XAlign, style.YAlign = text.XLeft, text.YCenter
	if m.left {
		style.XAlign = text.XRight
	}
	p.Add(dot, name)
	return nil
}
