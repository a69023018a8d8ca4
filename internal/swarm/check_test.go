package swarm

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/a7df5faa/cruise/shared"
)

// check returns what did not hold in a run that has ended.
func (w *world) check() []string {
	for n := range w.nodes {
		w.checkRate(n)
		w.checkPauses(n)
	}
	if w.Kind == share && !w.PauseOnly && w.StoreFails+w.StoreHangs+w.StorePanics == 0 {
		w.checkTogether()
	}
	w.checkBudget()
	w.checkOrder()
	return w.faults
}

// of returns what concerns a node.
func (w *world) of(n int) func(yield func(entry) bool) {
	return func(yield func(entry) bool) {
		for _, e := range w.log {
			if slices.Contains(e.nodes, n) && !yield(e) {
				return
			}
		}
	}
}

// A meter is a bucket that is empty while its level is the burst: the admissions of every span of
// time are at most rate × span + burst as long as the level stays below the burst.
type meter struct {
	rate, burst, level float64
	at                 time.Duration
}

func (m *meter) until(t time.Duration) {
	m.level, m.at = max(0, m.level-m.rate*(t-m.at).Seconds()), t
}

const rounding = 1e-6

func (m *meter) admit(cost int) bool {
	m.level += float64(cost)
	return cost == 0 || m.level <= m.burst*(1+rounding)+rounding
}

// checkRate checks that a told rate is kept.
func (w *world) checkRate(n int) {
	node := w.nodes[n]
	root := node.scope == ""
	told := w.Max > 0 && (root || w.Own)
	m := meter{rate: w.Max}
	if !root {
		m.rate = w.most(node.name)
	}
	switch {
	case node.kind == window && root:
		for _, win := range w.Windows {
			w.checkWindow(n, win.Calls, win.Per)
		}
		return
	case node.kind == window:
		win := w.scopeWindow(node.name)
		w.checkWindow(n, win.Calls, win.Per)
		return
	case node.kind == bucket && root:
		m.rate, m.burst = w.Rate, float64(w.Burst)
	case node.kind == bucket:
		m.rate, m.burst = w.scopeRate(node.name), scopeBurst
	case node.kind == adaptive && told, node.kind == share && told && w.PauseOnly:
		m.burst = w.adaptiveBurst(n, m.rate)
	case node.kind == share && told:
		if w.StoreFails+w.StoreHangs+w.StorePanics > 0 && w.Fallback == shared.FallbackOpen {
			return // lets all go
		}
		m.burst = w.adaptiveBurst(n, m.rate) + max(1, w.Max*sharedAhead) // a slot may be late until the next is due
	default:
		return
	}
	for e := range w.of(n) {
		m.until(e.at)
		switch e.what {
		case admitted:
			if !m.admit(e.cost) {
				w.fault("%s: %v above its rate of %v at %v, by %v", node.name, e.cost, m.rate, e.at, m.level-m.burst)
				return
			}
		case relimited:
			if node.kind == bucket {
				m.rate = e.limit
			}
		case charged:
			if e.cost < 0 || node.kind == bucket {
				m.level = max(0, m.level+float64(e.cost))
			}
		}
	}
}

// sharedAhead is for how many seconds of the rate slots may be fetched ahead and used together.
const sharedAhead = 1.5

// adaptiveBurst is what Tuning.Burst says, or else the highest cost of a call, or ten milliseconds'
// worth. What is saved for a call that gives up may be left to those that wait with it.
func (w *world) adaptiveBurst(n int, rate float64) float64 {
	if w.Burst > 0 {
		return float64(w.Burst)
	}
	most := max(1, math.Ceil(rate/100))
	charges := map[*call]int{}
	for e := range w.of(n) {
		switch e.what {
		case charged:
			charges[e.call] += max(0, e.cost)
			most = max(most, float64(e.call.cost+charges[e.call]))
		case came:
			most = max(most, float64(e.cost))
		}
	}
	return most
}

// checkTogether checks the rate of all workers.
func (w *world) checkTogether() {
	if w.Max == 0 {
		return
	}
	m := meter{rate: w.Max, burst: max(1, w.Max*2*sharedAhead)}
	for i := range w.nodes {
		if w.nodes[i].store {
			m.burst += w.adaptiveBurst(i, w.Max)
		}
	}
	for _, e := range w.log {
		m.until(e.at)
		switch {
		case e.what == charged && e.cost < 0:
			m.level = max(0, m.level+float64(e.cost))
		case e.what == admitted && !m.admit(e.cost):
			w.fault("all together above %v at %v, by %v", m.rate, e.at, m.level-m.burst)
			return
		}
	}
}

// checkWindow checks that no window holds more than n.
func (w *world) checkWindow(node, n int, per time.Duration) {
	var in []entry
	cost := 0
	back := map[string]int{} // what attempts gave back
	key := func(e entry) string { return fmt.Sprint(e.call.caller, e.call.number, e.number) }
	for e := range w.of(node) {
		if e.what == charged && e.cost < 0 {
			back[key(e)] -= e.cost
		}
	}
	for e := range w.of(node) {
		if e.what != admitted || e.cost == 0 {
			continue
		}
		for len(in) > 0 && e.at-in[0].at >= per {
			cost -= in[0].cost
			in = in[1:]
		}
		e.cost = max(0, e.cost-back[key(e)])
		in, cost = append(in, e), cost+e.cost
		if cost > n {
			w.fault("%s: %d within %v until %v: want %d", w.nodes[node].name, cost, per, e.at, n)
			return
		}
	}
}

// checkPauses checks that no call goes during a pause of the limiter, unless it was lifted.
func (w *world) checkPauses(n int) {
	lifted := time.Duration(-1)
	var pauses []entry
	resumes := func(e entry) bool {
		if e.what != resumed {
			return false
		}
		if slices.Contains(e.nodes, n) {
			return true
		}
		return w.nodes[n].store && len(e.nodes) > 0 && w.nodes[e.nodes[0]].store // all workers
	}
	for _, e := range w.log {
		if resumes(e) {
			lifted = e.at
			pauses = nil
			continue
		}
		if !slices.Contains(e.nodes, n) {
			continue
		}
		switch {
		case e.what == paused:
			if w.nodes[n].store && lifted >= 0 && e.at-lifted < 10*time.Second {
				continue // other workers may hear of both at once
			}
			pauses = append(pauses, e)
		case e.what == admitted && e.cost > 0:
			for _, p := range pauses {
				if p.at < e.at && e.at < p.at+p.told && (!p.alone || p.call == e.call) {
					w.fault("%s: call %d.%d went at %v, in a pause from %v to %v", w.nodes[n].name, e.call.caller, e.call.number, e.at, p.at, p.at+p.told)
					return
				}
			}
			pauses = slices.DeleteFunc(pauses, func(p entry) bool { return p.at+p.told <= e.at })
		}
	}
}

// checkBudget checks that retries are at most what the budget gives.
func (w *world) checkBudget() {
	if w.budget == nil || w.Uncounted {
		return
	}
	retries, successes := 0., 0.
	for _, e := range w.log {
		switch {
		case e.what == ended && e.result == "ok" && !e.call.leaves:
			successes++
		case e.what == admitted && e.number > 1:
			retries++
			if most := w.Budget[0] + w.Budget[1]*successes + w.Budget[2]*e.at.Seconds(); retries > most+rounding {
				w.fault("%v retries until %v: the budget allows %v", retries, e.at, most)
				return
			}
		}
	}
}

// backgroundTurn is how often a background call that waits has its turn, at the least, in each of
// the limiters on its way.
const backgroundTurn = 8

// checkOrder checks that first attempts of the same kind go in the order in which they came, and
// that background calls get their turn.
func (w *world) checkOrder() {
	if w.Kind == delays {
		return
	}
	type line struct {
		path       string
		background bool
	}
	lines, all := map[line][]*call{}, map[string][]entry{}
	for _, e := range w.log {
		if e.call == nil || len(e.call.path) == 0 || e.cost == 0 || e.what != admitted && e.result != "throttled" {
			continue
		}
		path := fmt.Sprint(e.call.path)
		all[path] = append(all[path], e)
		if e.what == admitted && e.number == 1 {
			l := line{path, e.call.background}
			lines[l] = append(lines[l], e.call)
		}
	}
	most := map[string]int{} // that went at one moment
	for path, entries := range all {
		n := 0
		for i, e := range entries {
			if n++; i > 0 && e.at > entries[i-1].at {
				n = 1
			}
			most[path] = max(most[path], n)
		}
	}
	for l, calls := range lines {
		came := slices.Clone(calls)
		slices.SortStableFunc(came, func(a, b *call) int { return int(a.came - b.came) })
		var last *call
		for _, c := range came {
			if last != nil && c.came > last.came && c.went < last.went {
				w.fault("%v: call %d.%d came at %v and went at %v, before %d.%d of %v and %v", l, c.caller, c.number, c.came, c.went, last.caller, last.number, last.came, last.went)
				return
			}
			if last == nil || c.went > last.went {
				last = c
			}
		}
		if !l.background {
			continue
		}
		turns := 1
		for range calls[0].path {
			turns *= backgroundTurn
		}
		for _, c := range calls { // how many others went in a row while it waited
			row, turn := 0, time.Duration(-1)
			for _, e := range all[l.path] {
				switch {
				case e.at <= c.came || e.at >= c.went:
				case e.what == ended:
					row-- // the next may be a probe, which is a first attempt
				case e.call.background:
					row, turn = 0, e.at // and of others at that moment it is not known who was first
				case e.at > turn:
					row++
				}
				if row > turns-1+most[l.path] {
					w.fault("%v: background call %d.%d waited from %v to %v while %d others went in a row", l, c.caller, c.number, c.came, c.went, row)
					return
				}
			}
		}
	}
}
