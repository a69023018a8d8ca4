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

// name is the rule and what is changed, two cells of a table.
func (c change) name() string { return fmt.Sprintf("%d | %s", c.rule, c.what) }

// edit puts a new text in the place of one that occurs once in the files of the law.
type edit struct{ old, new string }

// changes is the table of what is tried, rule by rule. Rules 8 and 9 are not there: in
// these scenarios no window tells its end, and nothing queues.
var changes = []change{
	{1, "a second of silence lets no other call go", []edit{{`patience    = time.Second `, `patience    = time.Hour `}}},
	{1, "throttles before the first success make no start gentler", []edit{{`startHeld  = 8 `, `startHeld = 0 `}}},
	{1, "several calls go at one moment", []edit{{`startPace  = 2 `, `startPace = 1e9 `}}},
	{1, "as few calls more where calls take long", []edit{{`min(1, more*max(1, took/startSlow)) //`, `more //`}}},
	{1, "as many calls more where calls are fast and many", []edit{{`startFew   = 5 `, `startFew = 1e9 `}}},
	{1, "a third of that", []edit{{`startLeast, took))`, `startLeast, took/3))`}}},

	{2, "cut to 0.7 instead of 0.5", []edit{{`decrease: 0.5`, `decrease: 0.7`}}},
	{2, "the ceiling is the rate, whatever was delivered", []edit{{`l.ceiling = min(max(l.rate, l.unspread), l.given(now))`,
		"l.ceiling = max(l.rate, l.unspread)\n\tif math.IsInf(l.rate, 1) {\n\t\tl.ceiling = l.given(now)\n\t}"}}},
	{2, "delivered over the last 32 only", []edit{{`given = min(given, l.delivered.over(now, memoryLong)/longShare)`, ``}}},
	{2, "delivered over the last 250 only", []edit{{`given = min(given, l.delivered.over(now, memoryLong)/longShare)`, `given = l.delivered.over(now, memoryLong) / longShare`}}},
	{2, "calls under way do not count", []edit{{`if n < memoryLeast {`, `if true {`}}},
	{2, "not divided by 0.95", []edit{{`longShare = .95`, `longShare = 1.`}}},
	{2, "the last 250 count at the first cut, too", []edit{{`if !math.IsInf(l.rate, 1) || math.IsInf(given, 1) {`, `if true {`}}},
	{2, "what came before the first throttle counts", []edit{{`if !m.begun && m.n > memoryLeast {`, `if false {`}}},
	{2, "what came before the server last opened counts", []edit{{`l.delivered.restart(l.delivered.n-1, opened)`, ``}}},
	{2, "few throttles take the ceiling as low as many", []edit{{`fewTo   = .3 `, `fewTo   = 0. `}}},
	{2, "time in which nobody wants anything counts", []edit{{`if now < m.ends {`, `if false {`}}},

	{3, "late throttles cut, too", []edit{{`if !this.late {`, `if true {`}}},
	{3, "a cut without a success since the last", []edit{{`if l.oks == 0 {`, `if false {`}}},

	{4, "first pause not bound by call intervals", []edit{{`if e.outcome == OutcomeThrottled && !math.IsInf(l.rate, 1) {`, `if false {`}}},
	{4, "every pause bound by call intervals", []edit{{`case again:`, `case again && false:`}}},
	{4, "pauses in a row go on from the last, not from what went by", []edit{{`max(b.last, min(gap, atMost))`, `max(b.last, min(gap, 0))`}}},
	{4, "a short `Retry-After` in vain does not grow", []edit{{`float64(b.row-1)`, `0`}}},
	{4, "levels forgiven at once", []edit{{`defaultForgive = 10`, `defaultForgive = 1`}}},
	{4, "pauses before the first success as short as later ones", []edit{{`defaultCold    = 2`, `defaultCold    = 0`}}},
	{4, "never longer because nothing is left of a limit", []edit{{`ahead++ `, `ahead += 0 `}}},
	{4, "never one call at a time", []edit{{`closed := l.row >= closedRow`, `closed := false`}}},
	{4, "pauses from 0.15 s", []edit{{`WithBase(300*time.Millisecond)`, `WithBase(150*time.Millisecond)`}}},
	{4, "pauses from 0.6 s", []edit{{`WithBase(300*time.Millisecond)`, `WithBase(600*time.Millisecond)`}}},

	{5, "a closed door teaches nothing", []edit{{`if !one && took > 0 && given < l.ceiling`, `if false && given < l.ceiling`}}},
	{5, "the rate becomes 0.85 of what went through", []edit{{`reopenTo    = .95`, `reopenTo    = .85`}}},
	{5, "measured up to the success", []edit{{`opened := (min(l.shutAt, busy) + busy) / 2`, `opened := busy`}}},
	{5, "measured from the first throttle, whatever wait it asked for", []edit{{`l.shutAt += min(retryAfter, math.MaxInt64-l.shutAt)`, ``}}},
	{5, "a success of a call that was under way opens a door", []edit{{`if !late || l.delivered.n == 1 {`, `if true {`}}},
	{5, "a long wait at the beginning closes no door", []edit{{`closedGaps  = 3 `, `closedGaps = 1e9 `}}},
	{5, "one call since the last opening is a measure", []edit{{`reopenAfter = 2`, `reopenAfter = 1`}}},
	{5, "no closing is doubted", []edit{{`l.doubted, l.agreed = true, 0`, `l.agreed = 0`}}},
	{5, "however long, it is no outage", []edit{{`outageLeast = 3 * time.Minute`, `outageLeast = 1000 * time.Hour`}}},

	{6, "no fast way back", []edit{{`case l.rate < back*c:`, `case false:`}}},
	{6, "back over 20 calls", []edit{{`backOver   = 5 `, `backOver   = 20 `}}},
	{6, "back to 0.9 below one call a second, too", []edit{{`backToSlow = .85`, `backToSlow = .9`}}},
	{6, "no pushing on", []edit{{`pushOn      = 40 `, `pushOn      = 0 `}}},
	{6, "pushing on 40 times faster, also after a long probe", []edit{{`pushOn*(1+rarely)/2*`, `pushOn*`}}},
	{6, "probing over 100 calls, also where cuts agree", []edit{{`agreeMost   = 3 `, `agreeMost   = 0 `}}},
	{6, "probing over no share of the time", []edit{{`probeAge    = .2`, `probeAge    = 0`}}},
	{6, "what there was before the limit fell is forgotten", []edit{{`peakTo      = .7`, `peakTo      = .0`}}},
	{6, "growth never goes by what was before the limit fell", []edit{{`l.ceiling < back && l.rate >= back`, `false && l.rate >= back`}}},
	{6, "from below the ceiling to above it at once", []edit{{"if l.rate < ceiling {\n\t\tgrown =", "if false {\n\t\tgrown ="}}},
	{6, "grows though it holds nobody back", []edit{{`if late || l.heldAt <= l.credit {`, `if late {`}}},
	{6, "grows for late successes", []edit{{`if late || l.heldAt <= l.credit {`, `if l.heldAt <= l.credit {`}}},
	{6, "one success is credited with any time", []edit{{`creditOver  = 3 `, `creditOver  = 1e9 `}}},
	{6, "one success is credited with one call interval", []edit{{`creditOver  = 3 `, `creditOver  = 1 `}}},

	{7, "quotas are not heeded", []edit{{`if l.flat(q, min(reserve, l.cost*hintLeast)) {`, `if true {`}}},
	{7, "quotas brake, and do not speed up", []edit{{`if !l.elsewhere {`, `if false {`}}},
	{7, "answers to calls that were sent before a quota's cut cut again", []edit{{` || sent != 0 && sent <= l.hintCutAt`, ``}}},
	{7, "what comes back does not speed up", []edit{{`more.refill = l.refilled(q)`, ``}}},
	{7, "quotas speed up while they fall, too", []edit{{`if q.Reset > 0 || q.Remaining >= l.hintLeft {`, `if true {`}}},
	{7, "throttles do not doubt a quota", []edit{{`l.elsewhere = elsewhere(e.quota, l.told)`, `l.elsewhere = false`}}},
	{7, "a quota that stays low is heeded", []edit{{`flat := l.flatCuts >= flatAfter`, `flat := false`}}},
}

// curve is the constants that trade throttles against use most: the share of the
// ceiling to which the rate returns after a cut, the calls that probing takes, and the
// calls that a success adds at the start. It begins with the most cautious.
var curve = []change{
	{6, "back to .5, probing over 1,600", slices.Concat(back(".5", ".5"), probe("1600"))},
	{6, "back to .6, probing over 800", slices.Concat(back(".6", ".6"), probe("800"))},
	{6, "back to .6", back(".6", ".6")},
	{6, "back to .8 (.75), probing over 400", slices.Concat(back(".8", ".75"), probe("400"))},
	{6, "back to .7", back(".7", ".7")},
	{6, "probing over 800", probe("800")},
	{6, "back to .8 (.75)", back(".8", ".75")},
	{6, "probing over 400", probe("400")},
	{6, "back to .95 (.92), probing over 400", slices.Concat(back(".95", ".92"), probe("400"))},
	{6, "probing over 200", probe("200")},
	{6, "back to .85 (.8)", back(".85", ".8")},
	{1, "start by .05", start(".05")},
	{1, "start by .4", start(".4")},
	{6, "back to .95 (.9)", back(".95", ".9")},
	{6, "probing over 30", probe("30")},
	{6, "back to .98 (.95)", back(".98", ".95")},
}

func back(to, slow string) []edit {
	return []edit{{`backTo     = .9 `, `backTo = ` + to + ` `}, {`backToSlow = .85 `, `backToSlow = ` + slow + ` `}}
}

func probe(calls string) []edit { return []edit{{`probeOver   = 100 `, `probeOver = ` + calls + ` `}} }

func start(by string) []edit { return []edit{{`startGrow  = .15 `, `startGrow = ` + by + ` `}} }
