package report

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

// rows is a chart with a row for each client, the first on top.
func (d Data) rows(clients []string) *plot.Plot {
	p := newPlot()
	var ticks plot.ConstantTicks
	for i, c := range clients {
		// The spaces keep names off the chart in browsers with a wider font.
		ticks = append(ticks, plot.Tick{Value: float64(-i), Label: c + "    "})
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Label.Color = ink
	p.Y.Min, p.Y.Max = -float64(len(clients))+.4, .6
	g := plotter.NewGrid()
	g.Vertical, g.Horizontal = stroke(grid, 1), stroke(grid, 1)
	p.Add(g)
	return p
}

// height is that of a chart with so many rows.
func height(rows int) vg.Length { return vg.Length(17*rows + 32) }

// Waits draws the longest wait of any caller for each client: the middle of the
// runs as a dot, their range as a line.
func (d Data) Waits(results []score.Result) (string, error) {
	var clients []string
	low, high := math.Inf(1), 0.0
	for _, r := range results {
		clients = append(clients, r.Client)
		low, high = min(low, max(r.Low.Wait, .01)), max(high, r.High.Wait, .02)
	}
	p := d.rows(clients)
	var words []string
	const what = "longest time that a caller went without a success, seconds: "
	for i, r := range results {
		y, c := float64(-i), d.color(r.Client)
		from, to := max(r.Low.Wait, .01), max(r.High.Wait, .01)
		span, err := plotter.NewLine(plotter.XYs{{X: from, Y: y}, {X: max(to, from*1.0001), Y: y}})
		if err != nil {
			return "", err
		}
		span.LineStyle = stroke(c, 2)
		dot, err := plotter.NewScatter(plotter.XYs{{X: max(r.Median.Wait, .01), Y: y}})
		if err != nil {
			return "", err
		}
		dot.GlyphStyle = glyph(c, 4)
		p.Add(span, dot)
		words = append(words, fmt.Sprintf("%s %s", r.Client, board.Number(r.Median.Wait)))
	}
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(low))), high*1.3
	if p.X.Max < p.X.Min*10 {
		p.X.Max = p.X.Min * 10
	}
	p.X.Tick.Marker = decades(p.X.Min, p.X.Max, " s")
	return render(p, 400, height(len(clients)), what+strings.Join(words, ", "))
}

// most is the share at which the charts of shares end; more is drawn there.
const most = 2.5

// Shares draws each caller's successes relative to an equal share, 1.
func (d Data) Shares(recs []*engine.Recording, best scenario.Best) (string, error) {
	var clients []string
	for _, rec := range recs {
		clients = append(clients, rec.Client)
	}
	p := d.rows(clients)
	var words []string
	const what = "what the least and the most successful caller got, relative to an equal share: "
	for i, rec := range recs {
		shares := score.Shares(rec, best)
		xys := make(plotter.XYs, 0, len(shares))
		seen := map[int]bool{} // dots on top of each other are one dot
		low, high := math.Inf(1), 0.0
		for _, v := range shares {
			low, high = min(low, v), max(high, v)
			v = min(v, most)
			if at := int(v * 150); !seen[at] {
				seen[at] = true
				xys = append(xys, plotter.XY{X: v, Y: float64(-i)})
			}
		}
		dots, err := plotter.NewScatter(xys)
		if err != nil {
			return "", err
		}
		c := d.color(rec.Client)
		c.A = 0x99
		dots.GlyphStyle = glyph(color.NRGBA(c), 3.4)
		p.Add(dots)
		words = append(words, fmt.Sprintf("%s %.2f to %.2f", rec.Client, low, high))
	}
	fair, err := plotter.NewLine(plotter.XYs{{X: 1, Y: p.Y.Min}, {X: 1, Y: p.Y.Max}})
	if err != nil {
		return "", err
	}
	fair.LineStyle = stroke(ink, 1, 4, 3)
	p.Add(fair)
	p.X.Min, p.X.Max = 0, most
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: .5, Label: "½"}, {Value: 1, Label: "equal"}, {Value: 1.5, Label: "1½"}, {Value: 2, Label: "2×"}, {Value: most, Label: ""}}
	return render(p, 400, height(len(clients)), what+strings.Join(words, ", "))
}

// glyph is a dot.
func glyph(c color.Color, radius vg.Length) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: radius, Shape: draw.CircleGlyph{}}
}
