// Command simulation runs API clients against simulated servers in virtual
// time and prints how well they did.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/report"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

func main() {
	o, p, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "simulation:", err)
		os.Exit(2)
	}
	if err := run(o, p, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "simulation:", err)
		os.Exit(1)
	}
}

func run(o *options, p plan, stdout, stderr io.Writer) error {
	if o.list {
		return list(stdout)
	}
	if o.profile != "" {
		out, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer out.Close()
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}

	start := time.Now()
	data := report.Data{Recordings: report.Recordings{}}
	bar := newProgress(stderr)
	var results []score.Result
	for _, part := range p.parts {
		bar.begin(part.name)
		results = append(results, score.Play(part.scenarios, p.clientsOf(part), score.Seeds(part.seeds), bar.report, data.Recordings.Keep)...)
	}
	score.Relate(results, client.Plain().Name, client.Genie().Name)
	results = slices.DeleteFunc(results, func(r score.Result) bool { return !p.has(r.Client) })
	bar.end(fmt.Sprintf("%d results in %v", len(results), time.Since(start).Round(time.Millisecond)))

	data.Board = board.New(p.clients, results)
	data.Board.Split = o.split
	// Files come first: the reader of the text may stop before its end.
	return errors.Join(o.write(data), o.print(stdout, data.Board, p.code))
}

// list prints the clients and scenarios to choose from.
func list(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "clients:")
	for _, c := range client.All() {
		fmt.Fprintf(t, "  %s\t%s\n", c.Name, c.About)
	}
	fmt.Fprintln(t, "scenarios:")
	for _, s := range scenario.Named() {
		fmt.Fprintf(t, "  %s\t%s\n", s.Name, s.About)
	}
	return t.Flush()
}
