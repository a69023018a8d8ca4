package debug

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// A chart is drawn on a field that is 100 units high and has one unit of width per second. The
// browser stretches the field to the space it has, so the labels stand beside the chart, where they
// keep their size.
const chartHeight = 100

// minutes returns how many minutes the charts of an API show: as many as have a point, up to the
// minutes that are kept.
func minutes(past []Point) int {
	seen := past[len(past)-1].At.Sub(past[0].At)
	return int(min(max(1, (seen+time.Minute-1)/time.Minute), history/time.Minute))
}

// chart draws the past of a rate over a number of minutes. The last point is now. label describes
// the chart for screen readers; "" makes it an ornament.
func chart(past []Point, minutes int, label string) template.HTML {
	chartWidth, now := 60*minutes, past[len(past)-1].At
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" preserveAspectRatio="none" `, chartWidth, chartHeight)
	if label == "" {
		b.WriteString(`aria-hidden="true">`)
	} else {
		fmt.Fprintf(&b, `role="img" aria-label="%s">`, template.HTMLEscapeString(label))
	}
	top := ceiling(past)
	x := func(t time.Time) float64 { return float64(chartWidth) - now.Sub(t).Seconds() }
	y := func(rate float64) float64 { return chartHeight * (1 - math.Min(1, rate/top)) }

	from, to := 0., 0. // of a pause that several points share
	pause := func() {
		if to > from {
			fmt.Fprintf(&b, `<rect class="pause" x="%.1f" y="0" width="%.1f" height="%d"/>`, from, to-from, chartHeight)
		}
	}
	for i, p := range past {
		if p.Pause <= 0 {
			continue
		}
		if x(p.At) > to {
			pause()
			from = x(p.At)
		}
		until := past[min(i+1, len(past)-1)].At // the next point tells whether it was ended early
		to = math.Min(x(p.At)+p.Pause, x(until))
	}
	pause()
	var line strings.Builder
	fmt.Fprintf(&line, "M%.1f %d", x(past[0].At), chartHeight)
	for _, p := range past {
		fmt.Fprintf(&line, "L%.1f %.1f", x(p.At), y(p.Rate))
	}
	fmt.Fprintf(&line, "V%d", chartHeight)
	fmt.Fprintf(&b, `<path class="area" d="%sZ"/><path class="rate" d="%s"/>`, &line, &line)
	var limit strings.Builder
	drawn := false
	for _, p := range past {
		switch {
		case p.Limit <= 0:
			drawn = false
		case drawn:
			fmt.Fprintf(&limit, "H%.1fV%.1f", x(p.At), y(p.Limit))
		default:
			fmt.Fprintf(&limit, "M%.1f %.1f", x(p.At), y(p.Limit))
			drawn = true
		}
	}
	if drawn {
		fmt.Fprintf(&limit, "H%d", chartWidth)
	}
	if limit.Len() > 0 {
		fmt.Fprintf(&b, `<path class="limit" d="%s"/>`, &limit)
	}
	for _, p := range past {
		if p.Throttles > 0 {
			fmt.Fprintf(&b, `<path class="throttle" d="M%.1f %dv-%.0f"/>`, x(p.At), chartHeight, 12+math.Min(28, 4*float64(p.Throttles)))
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// ceiling returns the rate at the top of a chart: a round number above all rates, and above the
// limit too unless the limit is far above the rates.
func ceiling(past []Point) float64 {
	rates, limits := 0., 0.
	for _, p := range past {
		rates, limits = math.Max(rates, p.Rate), math.Max(limits, p.Limit)
	}
	top := math.Max(rates, math.Min(limits, 3*rates))
	if top == 0 {
		top = limits
	}
	if top == 0 {
		return 1
	}
	top *= 1.1
	unit := math.Pow(10, math.Floor(math.Log10(top)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if top <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}
