package main

import (
	"strings"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
)

// reported is the seed of the first random scenario of the reported boards. A law
// must not be tuned on the ones from here on.
const reported = 10001

// plan is what to run.
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
}

// preset is what a flag like -quick stands for. Flags given beside it win.
type preset struct {
	clients, scenarios string
	seeds              int // of named scenarios
	random             int
	randomSeeds        int
}

var (
	quick   = preset{scenarios: "suite,n-heroku-30min,metastable-280", seeds: 3, random: 24, randomSeeds: 1}
	full    = preset{scenarios: "named", seeds: 10, random: 200, randomSeeds: 3}
	checked = preset{clients: "cruise,aws-adaptive,cenkalti,pacer-0.8", scenarios: "named", seeds: 3, random: 200, randomSeeds: 1}
)

// plan works out what the flags ask for.
func (o *options) plan() (plan, error) {
	if o.own.given(o.set) {
		return o.ownPlan()
	}
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
		out.parts = append(out.parts, part{"named", named, p.seeds})
	}
	if p.random > 0 {
		random := make([]*scenario.Scenario, p.random)
		for i := range random {
			random[i] = scenario.Random(from + uint64(i))
		}
		out.parts = append(out.parts, part{"random", random, p.randomSeeds})
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
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// pickScenarios finds the scenarios by name, "suite" and "named" being many.
func pickScenarios(names string) ([]*scenario.Scenario, error) {
	var list []*scenario.Scenario
	seen := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		var found []*scenario.Scenario
		switch name = strings.TrimSpace(name); name {
		case "suite":
			found = scenario.Suite()
		case "named":
			found = scenario.Named()
		case "none", "":
		default:
			s, err := scenario.Find(name)
			if err != nil {
				return nil, err
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

// seeds are 1 to n.
func seeds(n int) []uint64 {
	list := make([]uint64, max(1, n))
	for i := range list {
		list[i] = uint64(i) + 1
	}
	return list
}
