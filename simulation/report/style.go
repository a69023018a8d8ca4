package report

import (
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The colours of all charts. Each has enough contrast with white to be told
// apart by itself; none carries a meaning that a label does not carry too.
var (
	ink    = color.RGBA{0x1f, 0x29, 0x33, 0xff} // text
	quiet  = color.RGBA{0x52, 0x60, 0x6d, 0xff} // ticks, the limit
	grid   = color.RGBA{0xe4, 0xe7, 0xeb, 0xff}
	faint  = color.RGBA{0xb8, 0xc0, 0xc8, 0xff} // between a point and its label
	accent = color.RGBA{0x0b, 0x69, 0xa3, 0xff} // our own client
	tint   = color.RGBA{0xd6, 0xea, 0xf5, 0xff} // below the own client's line
	peer   = color.RGBA{0x7b, 0x87, 0x94, 0xff}
	shade  = color.RGBA{0xeb, 0xee, 0xf1, 0xff} // below a peer's line
	red    = color.RGBA{0xcf, 0x22, 0x2e, 0xff} // throttles
	amber  = color.RGBA{0xb3, 0x6b, 0x00, 0xff} // yardsticks
)

// face is the font of charts, of a size in points of the chart.
func face(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// textSize is that of labels: legible where a chart is as narrow as a phone.
const textSize = 12

// newPlot is an empty chart in the report's style.
func newPlot() *plot.Plot {
	plot.DefaultFont = face(textSize)
	p := plot.New()
	p.BackgroundColor = nil // that of the page
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Width = 0
		a.Tick.LineStyle.Width = 0
		a.Tick.Length = 2
		a.Padding = 2
		a.Label.TextStyle.Font = face(textSize)
		a.Label.TextStyle.Color = quiet
		a.Tick.Label.Font = face(textSize)
		a.Tick.Label.Color = quiet
	}
	return p
}

// color is that of a client.
func (d Data) color(client string) color.RGBA {
	switch c := d.Board.Client(client); {
	case c.Own:
		return accent
	case c.Yardstick:
		return amber
	}
	return peer
}

// stroke is a line.
func stroke(c color.Color, width vg.Length, dashes ...vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: width, Dashes: dashes}
}

// decades are the ticks of a logarithmic axis: 1, 3, 10 and so on within the range.
func decades(low, high float64, unit string) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	thirds := math.Log10(high/low) < 3.4 // else they touch each other
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for _, m := range []float64{1, 3} {
			v := m * math.Pow(10, e)
			if v >= low*.999 && v <= high*1.001 && (m == 1 || thirds) {
				ticks = append(ticks, plot.Tick{Value: v, Label: tick(v) + unit})
			}
		}
	}
	return ticks
}

// tick is a number at an axis.
func tick(v float64) string {
	unit := ""
	if v >= 10_000 {
		v, unit = v/1000, "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + unit
}
