// Command simulation runs API clients against simulated servers in virtual
// time and prints how well they did.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "simulation:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	clients, scenarios string
	seeds, random      int
	from               uint64
	profile            string
}

func run(args []string, stdout, stderr io.Writer) error {
	var o options
	f := flag.NewFlagSet("simulation", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.clients, "clients", "", "names of clients, separated by commas; default all")
	f.StringVar(&o.scenarios, "scenarios", "suite", "names of scenarios, separated by commas; suite, named, none")
	f.IntVar(&o.seeds, "seeds", 3, "runs of each scenario and client")
	f.IntVar(&o.random, "random", 0, "random scenarios to add")
	f.Uint64Var(&o.from, "from", 1, "seed of the first random scenario")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this file")
	if err := f.Parse(args); err != nil {
		return err
	}
	clients, err := pickClients(o.clients)
	if err != nil {
		return err
	}
	scenarios, err := pickScenarios(o)
	if err != nil {
		return err
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
	results := score.Play(scenarios, clients, seeds(o.seeds), progress(stderr), nil)
	fmt.Fprintf(stderr, "\r%d results in %v        \n", len(results), time.Since(start).Round(time.Millisecond))
	return board.New(results).Text(stdout)
}

// pickClients finds the clients by name.
func pickClients(names string) ([]engine.Client, error) {
	if names == "" {
		return client.All(), nil
	}
	var list []engine.Client
	for name := range strings.SplitSeq(names, ",") {
		c, err := client.Find(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// pickScenarios finds the scenarios by name and adds random ones.
func pickScenarios(o options) ([]*scenario.Scenario, error) {
	var list []*scenario.Scenario
	switch o.scenarios {
	case "suite":
		list = scenario.Suite()
	case "named":
		list = scenario.Named()
	case "none", "":
	default:
		for name := range strings.SplitSeq(o.scenarios, ",") {
			s, err := scenario.Find(strings.TrimSpace(name))
			if err != nil {
				return nil, err
			}
			list = append(list, s)
		}
	}
	for i := range o.random {
		list = append(list, scenario.Random(o.from+uint64(i)))
	}
	return list, nil
}

// seeds are 1 to n.
func seeds(n int) []uint64 {
	list := make([]uint64, max(1, n))
	for i := range list {
		list[i] = uint64(i) + 1
	}
	return list
}

// progress reports on w how far the runs are, a few times a second.
func progress(w io.Writer) func(done, all int) {
	last := time.Time{}
	return func(done, all int) {
		if now := time.Now(); now.Sub(last) > 200*time.Millisecond || done == all {
			last = now
			fmt.Fprintf(w, "\r%d of %d runs", done, all)
		}
	}
}
