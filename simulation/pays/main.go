// Command pays writes the table and the chart of the README's "Does it pay?": the time that a
// job takes and the share of its requests that the server refuses, by client and server. Run it
// in the simulator's folder:
//
//	go run ./pays
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
	"github.com/a7df5faa/cruise/simulation/server"
)

// jobs are the columns of the table. The last one is the case in which cruise costs something.
func jobs() []*scenario.Scenario {
	job := func(about string, spec server.Spec, processes, workers, calls int) *scenario.Scenario {
		return &scenario.Scenario{
			Name: about, About: about, Server: spec, Job: calls,
			Processes: processes, Callers: workers, Latency: 50 * time.Millisecond, Duration: 2 * time.Hour,
		}
	}
	bucket := func(rate, burst float64, signal server.Signal) server.Spec {
		return server.Spec{Kind: server.Bucket, Rate: server.Constant(rate), Burst: burst, Signal: signal}
	}
	const seconds = server.RetryAfter | server.WholeSeconds
	window := server.Spec{Kind: server.FixedWindow, Rate: server.Constant(10), Window: time.Minute,
		Signal: server.Remaining | server.Reset | seconds}
	return []*scenario.Scenario{
		job("RateLimit headers", window, 1, 10, 2500),
		job("Retry-After only", bucket(10, 20, seconds), 1, 10, 2500),
		job("says nothing", bucket(10, 20, 0), 1, 10, 2500),
		job("10 machines, says nothing", bucket(50, 50, 0), 10, 4, 12_500),
		job("200 a second, Retry-After: 1", bucket(200, 20, seconds), 1, 20, 10_000),
	}
}

// A contender is a row of the table.
type contender struct {
	title  string
	client engine.Client
	fleet  engine.Client // in place of the client where there are several machines
}

func contenders() []contender {
	alone := func(title string, c engine.Client) contender { return contender{title, c, c} }
	return []contender{
		{"cruise", client.Cruise("cruise"), client.Shared()},
		alone("retry at once", atOnce()),
		alone("plain backoff", client.Plain()),
		alone("go-retryablehttp", client.RetryableHTTP()),
		alone("AWS SDK, adaptive", client.AWS()),
		alone("x/time/rate, told the limit", client.Oracle()),
	}
}

// atOnce does nothing about a throttle but to send the request again.
func atOnce() engine.Client {
	return engine.Client{Name: "at-once", New: func(engine.Env) engine.Process {
		return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
			for {
				if _, err := attempt(ctx); err == nil || ctx.Err() != nil {
					return err
				}
			}
		})
	}}
}

// A cell is how a client did with a job.
type cell struct {
	took    time.Duration
	refused float64 // %
}

func main() {
	readme := flag.String("readme", "../README.md", "`file` with the table")
	chart := flag.String("svg", "../docs/pays.svg", "`file` with the chart")
	seeds := flag.Int("seeds", 10, "`runs` of each job and client")
	flag.Parse()
	if err := write(*readme, *chart, *seeds); err != nil {
		fmt.Fprintln(os.Stderr, "pays:", err)
		os.Exit(1)
	}
}

func write(readme, chart string, seeds int) error {
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	const begin, end = "<!-- pays -->\n", "<!-- /pays -->"
	before, rest, found := bytes.Cut(text, []byte(begin))
	_, after, ends := bytes.Cut(rest, []byte(end))
	if !found || !ends {
		return fmt.Errorf("%s has no place for the table, between %s and %s", readme, strings.TrimSpace(begin), end)
	}
	cells := play(seeds)
	text = slices.Concat(before, []byte(begin), []byte(table(cells)), []byte(end), after)
	if err := os.WriteFile(readme, text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(chart, []byte(draw(cells)), 0o644)
}

// play is the cells by client and job.
func play(seeds int) [][]cell {
	out := make([][]cell, len(contenders()))
	for i, c := range contenders() {
		for _, job := range jobs() {
			who := c.client
			if job.Processes > 1 {
				who = c.fleet
			}
			r := score.Play([]*scenario.Scenario{job}, []engine.Client{who}, score.Seeds(seeds), nil, nil)[0].Median
			out[i] = append(out[i], cell{time.Duration(r.Clear * float64(time.Second)).Round(time.Second), r.Total})
		}
	}
	return out
}

func table(cells [][]cell) string {
	var b strings.Builder
	b.WriteString("| time of the job, requests refused |")
	for _, j := range jobs() {
		fmt.Fprintf(&b, " %s |", j.About)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(jobs())))
	for i, c := range contenders() {
		fmt.Fprintf(&b, "| %s |", c.title)
		for _, cell := range cells[i] {
			fmt.Fprintf(&b, " %s, %s |", short(cell.took), percent(cell.refused))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// short is a time in minutes and seconds.
func short(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func percent(p float64) string {
	if p < 10 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", p)
}

// draw is a bar for each client and job: the share that was refused, and the time beside it.
func draw(cells [][]cell) string {
	const (
		width, left, bar   = 860, 190, 440
		line, head, margin = 18, 34, 12
	)
	var b strings.Builder
	y := margin + 44
	put := func(x, y int, style, text string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" %s>%s</text>`+"\n", x, y, style, html.EscapeString(text))
	}
	put(margin, margin+14, `class="big"`, "Share of requests that the server refuses, and the time until the same job is done")
	for j, job := range jobs() {
		put(margin, y+14, `class="head"`, "Server: "+job.About)
		y += head - 10
		for i, c := range contenders() {
			cell := cells[i][j]
			fill := "#b8bec6"
			if i == 0 {
				fill = "#1a7f5a"
			}
			put(left-8, y+14, `text-anchor="end"`, c.title)
			length := max(1, int(cell.refused/100*bar))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", left, y+2, length, line-5, fill)
			put(left+length+8, y+14, "", percent(cell.refused)+" refused, done in "+short(cell.took))
			y += line
		}
		y += head - 14
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="13">
<style>text{fill:#24292f}.big{font-size:16px;font-weight:bold}.head{font-weight:bold}</style>
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, width, y, b.String())
}
