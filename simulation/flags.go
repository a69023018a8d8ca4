package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/report"
)

// options are the command's flags.
type options struct {
	clients, scenarios   string
	seeds, random        int
	from                 uint64
	quick, full, targets bool
	split                bool
	json, md, html       string
	profile              string
	own                  own

	set map[string]bool // the flags that were given
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{set: map[string]bool{}}
	f := flag.NewFlagSet("simulation", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.clients, "clients", "", "names of clients, separated by commas; default all")
	f.StringVar(&o.scenarios, "scenarios", "suite", "names of scenarios, separated by commas; suite, named, none")
	f.IntVar(&o.seeds, "seeds", 3, "runs of each scenario and client")
	f.IntVar(&o.random, "random", 0, "random scenarios to add")
	f.Uint64Var(&o.from, "from", 1, "seed of the first random scenario")
	f.BoolVar(&o.quick, "quick", false, "a board in a minute or two: every client, the suite, a few random scenarios")
	f.BoolVar(&o.full, "full", false, "the whole board: every client and scenario, 10 seeds, 200 random scenarios that no law was tuned on")
	f.BoolVar(&o.targets, "targets", false, "print the check list of targets; alone, run what it needs")
	f.BoolVar(&o.split, "split", false, "print the means of keepable random scenarios by kind of server and signal, too")
	f.StringVar(&o.json, "json", "", "write everything to this file as JSON")
	f.StringVar(&o.md, "md", "", "write the board to this file as markdown, with charts beside it")
	f.StringVar(&o.html, "html", "", "write the report to this file as one HTML page")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this file")
	o.own.flags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.quick && o.full {
		return nil, fmt.Errorf("-quick and -full contradict each other")
	}
	f.Visit(func(f *flag.Flag) { o.set[f.Name] = true })
	o.targets = o.targets || o.full
	return o, nil
}

// write writes the files that were asked for.
func (o *options) write(data report.Data) error {
	if o.json != "" {
		if err := create(o.json, data.Board.JSON); err != nil {
			return err
		}
	}
	if o.html != "" {
		if err := create(o.html, data.HTML); err != nil {
			return err
		}
	}
	if o.md == "" {
		return nil
	}
	files, err := data.Files()
	if err != nil {
		return err
	}
	var charts []board.Chart
	for _, f := range files {
		charts = append(charts, board.Chart{File: f.Name, Alt: f.Alt, Caption: f.Caption})
		if err := os.WriteFile(filepath.Join(filepath.Dir(o.md), f.Name), []byte(f.SVG), 0o644); err != nil {
			return err
		}
	}
	return create(o.md, func(w io.Writer) error { return data.Board.Markdown(w, charts) })
}

// create writes a file.
func create(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}
