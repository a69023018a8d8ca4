// Chart draws the figures of BenchmarkCall as bars, one chart for each job: it
// reads the output of go test -bench and writes SVG.
//
//	go run ./chart < bench.out > ../docs/benchmarks.svg
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"text/template"

	"golang.org/x/perf/benchfmt"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Stdin, os.Stdout); err != nil {
		log.Fatalf("chart: %v", err)
	}
}

// A bar is a way to do a job, by so many goroutines.
type bar struct {
	Job, By, Goroutines string
	ns                  []float64
	Y, Width            int
}

// Median is in nanoseconds a call, of an even number the mean of the middle two, as
// benchstat has it.
func (b *bar) Median() float64 {
	n := len(b.ns)
	return (b.ns[(n-1)/2] + b.ns[n/2]) / 2
}

// Own reports whether it is cruise's.
func (b *bar) Own() bool { return strings.HasPrefix(b.By, "cruise") }

// Text stands at the end of the bar.
func (b *bar) Text() string {
	if ns := b.Median(); ns < 100 {
		return fmt.Sprintf("%.1f ns", ns)
	}
	return fmt.Sprintf("%.0f ns", b.Median())
}

// goroutines that are drawn.
var drawn = []string{"1", "8"}

const (
	left, longest = 150, 470 // of the bars
	step, gap     = 20, 44   // from bar to bar, and from chart to chart
)

type chart struct {
	Job, Goroutines string
	Y               int
	Bars            []*bar
}

func run(in io.Reader, out io.Writer) error {
	bars, err := read(in)
	if err != nil {
		return err
	}
	var charts []*chart
	y := 0
	for _, b := range bars {
		if len(charts) == 0 || charts[len(charts)-1].Job != b.Job || charts[len(charts)-1].Goroutines != b.Goroutines {
			y += gap
			charts = append(charts, &chart{Job: b.Job, Goroutines: b.Goroutines, Y: y - 14})
		}
		c := charts[len(charts)-1]
		c.Bars = append(c.Bars, b)
		b.Y = y
		y += step
	}
	for _, c := range charts {
		slowest := slices.MaxFunc(c.Bars, func(a, b *bar) int { return cmp.Compare(a.Median(), b.Median()) })
		for _, b := range c.Bars {
			b.Width = max(2, int(longest*b.Median()/slowest.Median()))
		}
	}
	return page.Execute(out, map[string]any{"Charts": charts, "Height": y + 16, "Left": left})
}

// read returns the bars in the order in which they were measured.
func read(in io.Reader) ([]*bar, error) {
	var bars []*bar
	r := benchfmt.NewReader(in, "benchmarks")
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, rec
		case *benchfmt.Result:
			b, ok := barOf(rec)
			if !ok {
				continue
			}
			i := slices.IndexFunc(bars, func(o *bar) bool { return o.Job == b.Job && o.By == b.By && o.Goroutines == b.Goroutines })
			if i < 0 {
				i = len(bars)
				bars = append(bars, b)
			}
			ns, _ := rec.Value("sec/op")
			bars[i].ns = append(bars[i].ns, ns*1e9)
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if len(bars) == 0 {
		return nil, fmt.Errorf("no result of BenchmarkCall on standard input")
	}
	for _, b := range bars {
		slices.Sort(b.ns)
	}
	return bars, nil
}

// barOf reads the name of a result, such as Call/job=retry/goroutines=1/by=cruise-2.
func barOf(rec *benchfmt.Result) (b *bar, ok bool) {
	base, parts := rec.Name.Parts()
	if string(base) != "Call" {
		return nil, false
	}
	b = &bar{}
	for _, p := range parts {
		switch key, value, _ := strings.Cut(string(p), "="); key {
		case "/job":
			b.Job = value
		case "/goroutines":
			b.Goroutines = value
		case "/by":
			b.By = value
		}
	}
	return b, slices.Contains(drawn, b.Goroutines)
}

var page = template.Must(template.New("").Parse(`<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {{.Height}}" font-family="system-ui, 'Liberation Sans', Arial, sans-serif" font-size="12" role="img" aria-label="Nanoseconds that a call costs, by job and library; the figures are in the tables.">
<rect width="100%" height="100%" fill="#fff"/>
{{$left := .Left}}{{range .Charts}}<text x="8" y="{{.Y}}" font-weight="bold" fill="#1f2933">{{.Job}}, {{.Goroutines}} goroutine{{if ne .Goroutines "1"}}s{{end}}</text>
{{range .Bars}}<g transform="translate(0 {{.Y}})"><text x="142" y="11" text-anchor="end" fill="#1f2933">{{.By}}</text><rect x="{{$left}}" width="{{.Width}}" height="14" fill="{{if .Own}}#0b69a3{{else}}#7b8794{{end}}"/><text x="{{.Width}}" dx="156" y="11" fill="#1f2933">{{.Text}}</text></g>
{{end}}{{end}}</svg>
`))
