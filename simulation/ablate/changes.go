package main

import (
	"fmt"
	"slices"
)

// change is the law with something about it changed.
type change struct {
	rule  int // of docs/control.md, 0 for none
	what  string
	edits []edit
}

// name returns the rule and the change, two cells of a table.
func (c change) name() string { return fmt.Sprintf("%d | %s", c.rule, c.what) }

// edit puts a new text in the place of one that occurs once in the files of the law.
type edit struct{ old, new string }

// changes is the table of the changes, rule by rule. The changes of rules 8 and 9 show that these
// rules cost nothing elsewhere: in these scenarios no window reports its end, and nothing queues.
// Their value shows in named scenarios.
var changes = []change{
	{1, "one call more for each success, as TCP", []edit{{`startGrow  = .15 `, `startGrow = 1. `}}},
	{1, "as many calls more where calls are fast and many", []edit{{`startFew   = 5 `, `startFew = 1e9 `}}},
	{1, "silence lets no other call go", []edit{{`silence      = 300 * time.Millisecond`, `silence = time.Hour`}}},
	{1, "silence makes no window larger", []edit{{`l.window *= silenceGrow`, ``}, {`l.silent, l.silentAt = l.inflight, l.moved`, ``}}},

	{2, "cut to 0.7 instead of 0.5", []edit{{`Decrease: 0.5`, `Decrease: 0.7`}}},
	{2, "the ceiling is the rate, whatever was delivered", []edit{{`l.ceiling = min(max(l.rate, l.unspread), l.Delivered(now))`,
		"l.ceiling = max(l.rate, l.unspread)\n\tif l.unpaced() {\n\t\tl.ceiling = l.Delivered(now)\n\t}"}}},
	{2, "delivered over the last 32 only", []edit{{`return min(short, long)`, `return short + 0*long`}}},
	{2, "delivered over the last 128 only", []edit{{`return min(short, long)`, `return long`}}},
	{2, "a measure goes by calls alone", []edit{{`const grain = time.Second / 64`, `const grain = time.Nanosecond`}}},
	{2, "what came before the first cut counts", []edit{{`if !m.begun && m.n > memoryLeast {`, `if false {`}}},
	{2, "time in which nobody wants anything counts", []edit{{`if now < m.ends {`, `if false {`}}},
	{2, "pauses count, however long", []edit{{`counts = clock.CeilSeconds(longGaps * l.gap())`, `counts = clock.Never`}}},
	{2, "pauses do not count", []edit{{`counts = clock.CeilSeconds(longGaps * l.gap())`, `counts = 0`}}},

	{3, "late throttles cut, too", []edit{{`if a.Late {`, `if false {`}}},
	{3, "throttles by chance cut, too", []edit{{`if l.byChance() {`, `if l.byChance() && false {`}}},
	{3, "cuts are never in vain", []edit{{`l.sunk >= 2*memoryLeast`, `false`}}},
	{3, "a cut without a success since the last", []edit{{`if l.fresh == 0 {`, `if false {`}}},

	{4, "first pause not bound by call intervals", []edit{{`d.AtMost = clock.CeilSeconds(pauseGaps * l.gap())`, ``}}},
	{4, "every pause bound by call intervals", []edit{{`case again:`, `case again && false:`}}},
	{4, "a short `Retry-After` in vain does not grow", []edit{{`float64(b.row-1)`, `0`}}},
	{4, "pauses before the first success as short as later ones", []edit{{`cold: 2}`, `cold: 0}`}}},
	{4, "never one call at a time", []edit{{`closed := l.row >= closedRow`, `closed := false`}}},
	{4, "pauses from 0.15 s", []edit{{`WithBase(300*time.Millisecond)`, `WithBase(150*time.Millisecond)`}}},

	{5, "a closing teaches nothing", []edit{{`if sure && window && given < l.ceiling`, `if false && sure && window && given < l.ceiling`}}},
	{5, "a closing teaches, however short", []edit{{`closed.Seconds() >= windowShare*took`, `true`}}},
	{5, "one call since the last opening is a measure", []edit{{`sure := calls >= memoryLeast`, `sure := calls >= 1`}}},
	{5, "however long a closing, it is no outage", []edit{{`closed < cycleMost`, `true`}}},
	{5, "a burst before a long `Retry-After` teaches, too", []edit{{`(row < closedRow || burst)`, `(row < closedRow || burst && false)`}}},
	{5, "closings have no price", []edit{{`l.price = max(l.price, sorted`, `_ = max(l.price, sorted`}}},
	{5, "closings cost their whole time", []edit{{`l.pay(closed - clock.CeilSeconds(l.gap()))`, `l.pay(closed)`}}},
	{5, "a long `Retry-After` closes nothing", []edit{{`if retryAfter.Seconds() > longGaps*l.gap() {`, `if false {`}}},

	{6, "no fast way back", []edit{{`case l.rate < backTo*ceiling:`, `case false:`}}},
	{6, "no pushing on", []edit{{`pushOn     = 40 `, `pushOn     = 0 `}}},
	{6, "probing as fast, also where cuts agree", []edit{{`agreeMost = 3 `, `agreeMost = 0 `}}},
	{6, "probing takes no time", []edit{{`probeTime  = 4 `, `probeTime  = 0 `}}},
	{6, "probing over as many calls at a low rate", []edit{{`cycleMost.Seconds()*calls`, `1e9*calls`}}},
	{6, "probing as fast, whatever a throttle costs", []edit{{`probePrice = 10 `, `probePrice = 0 `}}},
	{6, "probing as slow, however few calls are known", []edit{{`, memoryLeast), memoryLong)`, `, memoryLong), memoryLong)`}}},
	{6, "what there was before the limit fell is forgotten", []edit{
		{`back := fallen * l.peak`, `back := 0 * l.peak`}, {`if l.rate < fallen*l.peak {`, `if false {`},
	}},
	{6, "grows though it holds nobody back", []edit{{`if late || l.heldAt <= l.credit || now <= from {`, `if late || now <= from {`}}},
	{6, "pauses earn growth", []edit{{`from := max(l.credit, l.resume)`, `from := l.credit`}}},
	{6, "a throttle costs as much, however few calls measured the ceiling", []edit{{`price := l.price * evidence(l.measured) / memoryLong`, `price := l.price`}}},

	{7, "quotas are not heeded", []edit{{`if !window && l.heed(now, a.Sent, q) {`, `if false && l.heed(now, a.Sent, q) {`}}},
	{7, "the calls of a second are no reserve", []edit{{`reserve = max(reserve, l.rate) // of a second`, ``}}},
	{7, "no more than one call in reserve", []edit{{`reserve := l.cost * max(memoryLeast, 2*float64(l.inflight+1))`, `reserve := l.cost`}}},
	{7, "quotas brake, and do not speed up", []edit{{`spareGrow = .05 `, `spareGrow = 0. `}}},
	{7, "quotas speed up while they fall, too", []edit{{`if q.Remaining >= l.lowLeft {`, `if true {`}}},
	{7, "as much is cut, however little is missing", []edit{{`l.rate*(1-quotaStep*(1-float64(q.Remaining)/reserve))`, `l.rate*(1-quotaStep)`}}},
	{7, "a low rate gains no more of itself than a high one", []edit{{`l.rate*math.Sqrt(l.rate/l.cost)*seconds`, `l.rate*l.rate/l.cost*seconds`}}},

	{8, "what is left of a window is not spread", []edit{{`if pace >= l.rate && !again {`, `if pace >= 0 {`}}},
	{8, "spread from the beginning of a window", []edit{{`left >= margin*float64(q.Limit)`, `left >= float64(q.Limit)`}}},
	{8, "a window is no longer one in its last second", []edit{{`l.certain = l.certain || used`, `l.certain = used`}}},
	{8, "a window that tells no reset is not found", []edit{{`return max(time.Second, r.jumpedAt.Add(r.every).Sub(now))`, `return 0`}}},
	{8, "a part claims no more than it is", []edit{{`math.Pow(p.of(cost), 1-margin)`, `p.of(cost)`}}},
	{8, "others do not count", []edit{{`return cost / max(cost, p.each)`, `return 1`}}},

	{9, "a queue at the server slows nothing down", []edit{{`if a.Kind == Success && l.queued(now) {`, `if false {`}}},
}

// curve is the constants that trade throttles against use most: the share of the
// ceiling to which the rate returns after a cut, the calls that probing takes, and the
// calls that a success adds at the start. It begins with the most cautious.
var curve = []change{
	{6, "back to .5, probing over 1,600", slices.Concat(back(".5"), probe("1600"))},
	{6, "back to .6, probing over 800", slices.Concat(back(".6"), probe("800"))},
	{6, "back to .6", back(".6")},
	{6, "back to .8, probing over 400", slices.Concat(back(".8"), probe("400"))},
	{6, "back to .7", back(".7")},
	{6, "probing over 800", probe("800")},
	{6, "back to .8", back(".8")},
	{6, "probing over 400", probe("400")},
	{6, "back to .95, probing over 400", slices.Concat(back(".95"), probe("400"))},
	{6, "probing over 200", probe("200")},
	{6, "back to .9", back(".9")},
	{1, "start by .05", start(".05")},
	{1, "start by .4", start(".4")},
	{6, "back to .95", back(".95")},
	{6, "probing over 30", probe("30")},
	{6, "back to .98", back(".98")},
}

func back(to string) []edit { return []edit{{`backTo     = 1 - margin `, `backTo = ` + to + ` `}} }

func probe(calls string) []edit {
	return []edit{{`min(agreed*evidence(`, `min(agreed*` + calls + `/memoryLong*evidence(`}}
}

func start(by string) []edit { return []edit{{`startGrow  = .15 `, `startGrow = ` + by + ` `}} }
