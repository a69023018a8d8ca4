package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/report"
)

// options are the command's flags.
type options struct {
	clients, scenarios   string
	seeds, random        int
	from                 uint64
	quick, full, targets bool
	split, list          bool
	json, md, html       string
	profile              string
	own                  own

	set map[string]bool // the flags that were given
}

// parse reads the flags and returns the plan that follows from them.
func parse(args []string, output io.Writer) (*options, plan, error) {
	o := &options{set: map[string]bool{}}
	f := flag.NewFlagSet("simulation", flag.ContinueOnError)
	f.SetOutput(io.Discard) // errors are printed once, by main
	f.StringVar(&o.clients, "clients", "", "`names` of clients, separated by commas; default all, at a server or with a limiter of yours a few")
	f.StringVar(&o.scenarios, "scenarios", "suite", "`names` of scenarios, separated by commas; suite, named, random-N, or none with -random")
	o.seeds, o.from = 3, 1
	f.Var(whole(&o.seeds), "seeds", "`runs` of each scenario and client, 1 to 1000")
	f.Var(whole(&o.random), "random", "random `scenarios` to add, up to 100000")
	f.Var(seed(&o.from), "from", "`seed` of the first random scenario")
	f.BoolVar(&o.quick, "quick", false, "a board in a minute or two: every client, the suite, a few random scenarios")
	f.BoolVar(&o.full, "full", false, "the whole board: every client and scenario, 10 seeds, 200 random scenarios that no law was tuned on")
	f.BoolVar(&o.targets, "targets", false, "print the check list of targets; alone, run what it needs, but for those about peers, which -full runs")
	f.BoolVar(&o.split, "split", false, "print the means of keepable random scenarios by kind of server and signal, too")
	f.BoolVar(&o.list, "list", false, "list the clients and the named scenarios, and run nothing")
	f.StringVar(&o.json, "json", "", "write everything to this `file` as JSON")
	f.StringVar(&o.md, "md", "", "write the board to this `file` as markdown, with charts beside it whose names begin as its own")
	f.StringVar(&o.html, "html", "", "write the report to this `file` as one HTML page")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this `file`")
	o.own.flags(f)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage(f, output)
		}
		return nil, plan{}, err
	}
	f.Visit(func(f *flag.Flag) { o.set[f.Name] = true })
	o.targets = o.targets || o.full
	if err := o.check(f.Args()); err != nil {
		return nil, plan{}, err
	}
	p, err := o.plan()
	return o, p, err
}

// usagePart groups flags of one purpose.
type usagePart struct {
	head  string
	flags []string
}

// usage prints the flags by purpose, since most people need only some of them.
func usage(f *flag.FlagSet, w io.Writer) {
	var limiter, rest []string
	for _, k := range knobs {
		limiter = append(limiter, k.flag)
	}
	parts := []usagePart{
		{"Usage of simulation: clients of a server that throttles. What would happen at yours?", serverFlags},
		{"With a limiter of yours, at that server or in -scenarios:", limiter},
		{"Or boards of scenarios and clients:", []string{"scenarios", "random", "from", "split", "quick", "full", "targets", "list"}},
	}
	f.VisitAll(func(of *flag.Flag) {
		if !slices.ContainsFunc(parts, func(p usagePart) bool { return slices.Contains(p.flags, of.Name) }) {
			rest = append(rest, of.Name)
		}
	})
	for _, p := range append(parts, usagePart{"In any case:", rest}) {
		fmt.Fprintln(w, p.head)
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.SetOutput(w)
		for _, name := range p.flags {
			of := f.Lookup(name)
			flags.Var(of.Value, name, of.Usage)
			flags.Lookup(name).DefValue = of.DefValue
		}
		flags.PrintDefaults()
	}
}

// check refuses flags that make no sense with any scenario.
func (o *options) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q: all options are flags, see -h", args[0])
	case o.quick && o.full:
		return errors.New("-quick and -full contradict each other")
	case o.seeds < 1 || o.seeds > 1000:
		return fmt.Errorf("-seeds %d: want 1 to 1000", o.seeds)
	case o.random < 0 || o.random > 100_000:
		return fmt.Errorf("-random %d: want 0 to 100000", o.random)
	}
	written := map[string]string{} // flags by their files
	for _, f := range []struct{ flag, file string }{{"json", o.json}, {"md", o.md}, {"html", o.html}, {"cpuprofile", o.profile}} {
		if f.file == "" {
			if o.set[f.flag] {
				return fmt.Errorf("-%s %q: want a file", f.flag, f.file)
			}
			continue
		}
		file, err := filepath.Abs(f.file)
		if err != nil {
			return fmt.Errorf("-%s %s: %w", f.flag, f.file, err)
		}
		if other, ok := written[file]; ok {
			return fmt.Errorf("-%s %s: want a file of its own, -%s is written there, too", f.flag, f.file, other)
		}
		written[file] = f.flag
		dir := filepath.Dir(f.file)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("-%s %s: want a file in a folder that exists, %s does not", f.flag, f.file, dir)
		}
		if info, err := os.Stat(f.file); err == nil && info.IsDir() {
			return fmt.Errorf("-%s %s: want a file, that is a folder", f.flag, f.file)
		}
		if base := filepath.Base(file); o.md != "" && strings.HasPrefix(base, filepath.Base(charts(o.md))+"-") && strings.HasSuffix(base, ".svg") {
			return fmt.Errorf("-%s %s: want another name, charts of -md have such", f.flag, f.file)
		}
		if err := writable(f.file); err != nil {
			return fmt.Errorf("-%s %s: want a file that can be written: %w", f.flag, f.file, err)
		}
	}
	return nil
}

// charts returns the beginning of the names of a document's charts, so that the charts of two
// documents in one folder do not overwrite each other.
func charts(md string) string { return strings.TrimSuffix(md, filepath.Ext(md)) }

// writable tells before all runs whether their results can be written, and leaves the file
// as it is.
func writable(name string) error {
	_, missing := os.Stat(name)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if missing != nil {
		defer os.Remove(name)
	}
	return f.Close()
}

// print prints the board, and the code of the limiter that was tried.
func (o *options) print(w io.Writer, b *board.Board, code string) error {
	if err := b.Text(w); err != nil {
		return err
	}
	if o.targets {
		fmt.Fprintln(w)
		if err := b.Check(w); err != nil {
			return err
		}
	}
	if code != "" {
		_, err := fmt.Fprintf(w, "\n%s", code)
		return err
	}
	return nil
}

// write writes the files that were asked for, as many of them as it can.
func (o *options) write(data report.Data) error {
	var errs []error
	if o.json != "" {
		errs = append(errs, create(o.json, data.Board.JSON))
	}
	if o.html != "" {
		errs = append(errs, create(o.html, data.HTML))
	}
	if o.md != "" {
		errs = append(errs, o.markdown(data))
	}
	return errors.Join(errs...)
}

// markdown writes the scoreboard, and its charts beside it.
func (o *options) markdown(data report.Data) error {
	files, err := data.Files()
	if err != nil {
		return err
	}
	var list []board.Chart
	for _, f := range files {
		name := charts(o.md) + f.Suffix
		list = append(list, board.Chart{File: filepath.Base(name), Alt: f.Alt, Caption: f.Caption})
		if err := os.WriteFile(name, []byte(f.SVG), 0o644); err != nil {
			return err
		}
	}
	return create(o.md, func(w io.Writer) error { return data.Board.Markdown(w, list) })
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
