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
	"time"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/report"
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
		results = append(results, score.Play(part.scenarios, p.clients, score.Seeds(part.seeds), bar.report, data.Recordings.Keep)...)
	}
	bar.end(fmt.Sprintf("%d results in %v", len(results), time.Since(start).Round(time.Millisecond)))

	data.Board = board.New(p.clients, results)
	data.Board.Split = o.split
	if err := data.Board.Text(stdout); err != nil {
		return err
	}
	if o.targets {
		fmt.Fprintln(stdout)
		if err := data.Board.Check(stdout); err != nil {
			return err
		}
	}
	if p.code != "" {
		fmt.Fprintf(stdout, "\n%s", p.code)
	}
	return o.write(data)
}
