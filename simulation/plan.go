package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
)

// reported is the seed of the first random scenario of the reported boards. A law
// must not be tuned on the ones from here on.
const reported = 10001

// plan holds the scenarios and clients to run.
type plan struct {
	clients []engine.Client
	parts   []part
	code    string // of the limiter that was tried; "" if none was
}

// part is scenarios that are run with the same number of seeds.
type part struct {
	name      string
	scenarios []*scenario.Scenario
	seeds     int
	measures  []engine.Client // run beside the clients, and are on no board unless they are among them
}

// measures are yardsticks that figures of others compare with.
func measures() []engine.Client { return []engine.Client{client.Genie(), client.Plain()} }

// clientsOf returns the clients of the plan and the yardsticks of the part, none of them twice.
func (p plan) clientsOf(part part) []engine.Client {
	list := slices.Clone(p.clients)
	for _, m := range part.measures {
		if !p.has(m.Name) {
			list = append(list, m)
		}
	}
	return list
}

// has tells whether a client was asked for.
func (p plan) has(name string) bool {
	return slices.ContainsFunc(p.clients, func(c engine.Client) bool { return c.Name == name })
}

// preset holds the settings behind a flag like -quick. Other flags win over it.
type preset struct {
	clients, scenarios string
	seeds              int // of named scenarios
	random             int
	randomSeeds        int
}

var (
	quick   = preset{scenarios: "suite,n-heroku-30min,metastable-280", seeds: 3, random: 24, randomSeeds: 1}
	full    = preset{scenarios: "named", seeds: 10, random: 200, randomSeeds: 10}
	checked = preset{clients: "cruise,cenkalti,genie,pacer-0.8", scenarios: "named", seeds: 3, random: 200, randomSeeds: 1}
)

// mostRuns takes a machine of two cores some hours.
const mostRuns = 1_000_000

// plan returns the plan that follows from the flags.
func (o *options) plan() (plan, error) {
	work := o.boardPlan
	if o.own.given(o.set) {
		work = o.ownPlan
	}
	p, err := work()
	if err != nil {
		return plan{}, err
	}
	scenarios, runs, random := 0, 0, false
	for _, part := range p.parts {
		for _, s := range part.scenarios {
			scenarios++
			random = random || s.Random
			for _, c := range p.clients {
				if c.Fits == nil || c.Fits(s) {
					runs += part.seeds
				}
			}
		}
	}
	switch {
	case scenarios == 0:
		return plan{}, fmt.Errorf("-scenarios %s: want scenarios, or random ones by -random", o.scenarios)
	case runs == 0:
		return plan{}, fmt.Errorf("-clients %s: none of them makes sense in these scenarios", o.clients)
	case runs > mostRuns:
		return plan{}, fmt.Errorf("-random %d -seeds %d: scenarios times seeds times clients is %d runs, want at most %d", o.random, o.seeds, runs, mostRuns)
	case o.split && !random:
		return plan{}, errors.New("-split: want random scenarios with it, see -random")
	case o.split && !p.has(client.Pacer().Name):
		return plan{}, fmt.Errorf("-split: want the client %s with it, which tells what can be kept", client.Pacer().Name)
	}
	return p, nil
}

// boardPlan is clients at scenarios.
func (o *options) boardPlan() (plan, error) {
	p := preset{o.clients, o.scenarios, o.seeds, o.random, o.seeds}
	from := o.from
	selects := o.set["scenarios"] || o.set["random"] || o.set["clients"]
	for _, v := range []struct {
		on     bool
		preset preset
	}{{o.quick, quick}, {o.full, full}, {o.targets && !o.full && !o.quick && !selects, checked}} {
		if v.on {
			p = o.merge(v.preset)
			if !o.set["from"] {
				from = reported
			}
		}
	}
	if o.set["from"] && p.random == 0 {
		return plan{}, fmt.Errorf("-from %d: want random scenarios with it, see -random", o.from)
	}
	clients, err := pickClients(p.clients)
	if err != nil {
		return plan{}, err
	}
	named, err := pickScenarios(p.scenarios)
	if err != nil {
		return plan{}, err
	}
	out := plan{clients: clients}
	if len(named) > 0 {
		out.parts = append(out.parts, part{"named", named, p.seeds, measures()})
	}
	if p.random > 0 {
		random := slices.DeleteFunc(scenario.Randoms(from, p.random), func(s *scenario.Scenario) bool {
			return slices.ContainsFunc(named, func(other *scenario.Scenario) bool { return other.Name == s.Name })
		})
		out.parts = append(out.parts, part{"random", random, p.randomSeeds, nil})
	}
	return out, nil
}

// merge is the preset with the flags that were given.
func (o *options) merge(p preset) preset {
	if o.set["clients"] {
		p.clients = o.clients
	}
	if o.set["scenarios"] {
		p.scenarios = o.scenarios
	}
	if o.set["seeds"] {
		p.seeds, p.randomSeeds = o.seeds, o.seeds
	}
	if o.set["random"] {
		p.random = o.random
	}
	return p
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
			var all []string
			for _, c := range client.All() {
				all = append(all, c.Name)
			}
			return nil, fmt.Errorf("-clients %s: %w; want some of %s", names, err, strings.Join(all, ", "))
		}
		if !slices.ContainsFunc(list, func(other engine.Client) bool { return other.Name == c.Name }) {
			list = append(list, c)
		}
	}
	return list, nil
}

// pickScenarios finds the scenarios by name, "suite" and "named" being many.
func pickScenarios(names string) ([]*scenario.Scenario, error) {
	if names == "none" {
		return nil, nil
	}
	var list []*scenario.Scenario
	seen := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		var found []*scenario.Scenario
		switch name = strings.TrimSpace(name); name {
		case "suite":
			found = scenario.Suite()
		case "named":
			found = scenario.Named()
		default:
			s, err := scenario.Find(name)
			if err != nil {
				var all []string
				for _, s := range scenario.Named() {
					all = append(all, s.Name)
				}
				return nil, fmt.Errorf("-scenarios %s: %w; want none alone, or some of suite, named, random-N, %s", names, err, strings.Join(all, ", "))
			}
			found = []*scenario.Scenario{s}
		}
		for _, s := range found {
			if !seen[s.Name] {
				seen[s.Name] = true
				list = append(list, s)
			}
		}
	}
	return list, nil
}
