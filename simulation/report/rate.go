package report

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/server"
)

// points is into how many stretches a chart over time is cut at most.
const points = 150

// series is a recording, coarse enough to be drawn.
type series struct {
	at        []float64 // middle of each stretch, seconds
	rate      []float64 // successes a second
	throttled []float64 // share of the requests
	width     float64   // of a stretch, seconds
	end       float64
}

func newSeries(rec *engine.Recording) series {
	per := max(1, (len(rec.Bins)+points-1)/points)
	// A stretch should hold a few requests, or the rate is but noise.
	if n := rec.Totals().Successes; n > 0 {
		per = max(per, min(len(rec.Bins)/40, 8*len(rec.Bins)/n))
	}
	s := series{width: float64(per) * rec.Width.Seconds(), end: rec.Elapsed.Seconds()}
	for i := 0; i < len(rec.Bins); i += per {
		var ok, throttled, all int32
		for _, b := range rec.Bins[i:min(i+per, len(rec.Bins))] {
			ok, throttled, all = ok+b.Successes, throttled+b.Throttled, all+b.Requests
		}
		from := float64(i) * rec.Width.Seconds()
		width := min(s.width, s.end-from)
		if width <= 0 {
			break
		}
		s.at = append(s.at, from+width/2)
		s.rate = append(s.rate, float64(ok)/width)
		s.throttled = append(s.throttled, float64(throttled)/float64(max(1, all)))
	}
	return s
}

// top is a rate that nearly all stretches stay below.
func (s series) top() float64 {
	if len(s.rate) == 0 {
		return 1
	}
	r := slices.Sorted(slices.Values(s.rate))
	return r[len(r)*98/100]
}

// Rate draws a client's rate of successes over time against the server's limit, with throttles as
// red marks. highest is the top of the axis.
func (d Data) Rate(rec *engine.Recording, highest float64) (string, error) {
	p := newPlot()
	s, sc := newSeries(rec), rec.Scenario
	line, under := d.color(rec.Client), color.RGBA(tint)
	if line != accent {
		under = shade
	}
	p.Add(horizontal())
	area := plotter.XYs{{X: 0, Y: 0}}
	got := plotter.XYs{}
	for i := range s.at {
		xy := plotter.XY{X: s.at[i], Y: min(s.rate[i], highest)}
		got, area = append(got, xy), append(area, xy)
	}
	if len(got) > 0 {
		area[0].X = got[0].X
		area = append(area, plotter.XY{X: got[len(got)-1].X, Y: 0})
		fill, err := plotter.NewPolygon(area)
		if err != nil {
			return "", err
		}
		fill.Color, fill.LineStyle.Width = under, 0
		p.Add(fill)
	}
	// A mark is as high as the share of throttled requests, and high enough to be seen.
	for i, share := range s.throttled {
		if share > 0 {
			mark, err := plotter.NewLine(plotter.XYs{{X: s.at[i], Y: 0}, {X: s.at[i], Y: highest * max(.05, share)}})
			if err != nil {
				return "", err
			}
			mark.LineStyle = stroke(red, 1.4)
			p.Add(mark)
		}
	}
	if len(got) > 1 {
		l, err := plotter.NewLine(got)
		if err != nil {
			return "", err
		}
		l.LineStyle = stroke(line, 1.6)
		p.Add(l)
	}
	if limit := limitLine(sc, s.end); len(limit) > 0 && sc.Server.Rate.Highest(sc.Duration) <= highest {
		l, err := plotter.NewLine(limit)
		if err != nil {
			return "", err
		}
		l.LineStyle = stroke(ink, 1.3, 5, 3)
		p.Add(l)
	}
	p.X.Min, p.X.Max = 0, s.end
	p.Y.Min, p.Y.Max = 0, highest
	p.X.Tick.Marker = timeTicks(s.end)
	p.Y.Tick.Marker = rateTicks(highest)
	total := rec.Totals()
	label := fmt.Sprintf("%s in %s: successes a second over time against the server's limit; %d requests, %d of them throttled",
		rec.Client, sc.Name, total.Requests, total.Throttled)
	return render(p, 400, 190, label)
}

// highest is the top of the rate axis of a scenario's charts, the same for all clients.
func highest(recs []*engine.Recording) float64 {
	top := 0.0
	for _, rec := range recs {
		top = max(top, newSeries(rec).top())
	}
	if len(recs) > 0 {
		limit := recs[0].Scenario.Server.Rate.Highest(recs[0].Scenario.Duration)
		if limit > 0 && limit < 4*top {
			// The burst of a full bucket is off the chart.
			top = min(max(top, limit), 2.5*limit)
		}
	}
	if top <= 0 {
		return 1
	}
	return 1.15 * top
}

// limitLine is the server's rate as steps, empty while it serves no request.
func limitLine(s *scenario.Scenario, end float64) plotter.XYs {
	if s.Server.Rate.Highest(s.Duration) <= 0 {
		return nil
	}
	at := []time.Duration{0}
	at = append(at, s.Server.Rate.Changes(s.Duration)...)
	off := s.Server.Off()
	for _, span := range off {
		at = append(at, span.From, span.To)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	var xys plotter.XYs
	last := math.NaN()
	for _, t := range at {
		rate := s.Server.Rate.At(t)
		if server.In(off, t) {
			rate = 0
		}
		if !math.IsNaN(last) {
			xys = append(xys, plotter.XY{X: t.Seconds(), Y: last})
		}
		xys = append(xys, plotter.XY{X: t.Seconds(), Y: rate})
		last = rate
	}
	xys = append(xys, plotter.XY{X: end, Y: last})
	return slices.DeleteFunc(xys, func(xy plotter.XY) bool { return xy.X > end })
}

// horizontal is the grid behind a chart of rates.
func horizontal() plot.Plotter {
	g := plotter.NewGrid()
	g.Vertical.Width = 0
	g.Horizontal = stroke(grid, 1)
	return g
}

// step is a round number of which about n make up all.
func step(all, n float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(all/n)))
	for _, m := range []float64{1, 2, 5} {
		if all/(m*p) <= n {
			return m * p
		}
	}
	return 10 * p
}

func rateTicks(highest float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	by := step(highest, 4)
	for i := 0.0; i*by <= highest; i++ {
		text := tick(i * by)
		if i > 0 && (i+1)*by > highest {
			text += "/s"
		}
		ticks = append(ticks, plot.Tick{Value: i * by, Label: text})
	}
	return ticks
}

func timeTicks(end float64) plot.ConstantTicks {
	unit, name := 1.0, " s"
	switch {
	case end > 2*3600:
		unit, name = 3600, " h"
	case end > 180:
		unit, name = 60, " min"
	}
	var ticks plot.ConstantTicks
	by := step(end/unit, 6)
	for i := 0.0; i*by*unit <= end*1.0001; i++ {
		text := tick(i * by)
		if i > 0 {
			text += name
		}
		ticks = append(ticks, plot.Tick{Value: i * by * unit, Label: text})
	}
	return ticks
}
