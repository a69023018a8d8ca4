package main

import "fmt"

// change is the law with one thing about it changed.
type change struct {
	rule int // of docs/control.md, 0 for none
	what string
	old  string // occurs once in the files of the law
	new  string
}

// name is the rule and what is changed, two cells of a table.
func (c change) name() string { return fmt.Sprintf("%d | %s", c.rule, c.what) }

// changes is the table of what is tried, rule by rule. Rules 8 and 9 are not there: in
// these scenarios no window tells its end, and nothing queues.
var changes = []change{
	{1, "a second of silence lets no other call go", `patience    = time.Second `, `patience    = time.Hour `},

	{2, "cut to 0.7 instead of 0.5", `decrease: 0.5`, `decrease: 0.7`},
	{2, "the ceiling is the rate, whatever was delivered", `l.ceiling = min(max(l.rate, l.unspread), l.given(now))`,
		"l.ceiling = max(l.rate, l.unspread)\n\tif math.IsInf(l.rate, 1) {\n\t\tl.ceiling = l.given(now)\n\t}"},
	{2, "delivered over the last 32 only", `given = min(given, l.delivered.over(now, memoryLong)/longShare)`, ``},
	{2, "delivered over the last 250 only", `given = min(given, l.delivered.over(now, memoryLong)/longShare)`, `given = l.delivered.over(now, memoryLong) / longShare`},
	{2, "not divided by 0.95", `longShare = .95`, `longShare = 1.`},
	{2, "the last 250 count at the first cut, too", "if !math.IsInf(l.rate, 1) {\n\t\tgiven =", "if true {\n\t\tgiven ="},
	{2, "what came before the first throttle counts", `if !m.begun && m.n > 4 {`, `if false {`},
	{2, "what came before the server last opened counts", `l.delivered.restart(l.delivered.n-1, opened)`, ``},
	{2, "time in which nobody wants anything counts", `if now < m.ends {`, `if false {`},

	{3, "late throttles cut, too", `if !this.late {`, `if true {`},
	{3, "a cut without a success since the last", `if l.oks == 0 {`, `if false {`},

	{4, "first pause not bound by call intervals", `if e.outcome == OutcomeThrottled && !math.IsInf(l.rate, 1) {`, `if false {`},
	{4, "every pause bound by call intervals", `case again:`, `case again && false:`},
	{4, "pauses in a row go on from the last, not from what went by", `max(b.last, min(gap, atMost))`, `max(b.last, min(gap, 0))`},
	{4, "levels forgiven at once", `defaultForgive = 10`, `defaultForgive = 1`},
	{4, "pauses before the first success as short as later ones", `defaultCold    = 2`, `defaultCold    = 0`},
	{4, "never longer because nothing is left of a limit", `ahead *= 2 `, `ahead *= 1 `},
	{4, "never one call at a time", `closed := l.row >= closedRow`, `closed := false`},
	{4, "pauses from 0.15 s", `WithBase(300*time.Millisecond)`, `WithBase(150*time.Millisecond)`},
	{4, "pauses from 0.6 s", `WithBase(300*time.Millisecond)`, `WithBase(600*time.Millisecond)`},

	{5, "a closed door teaches nothing", `if !first && took > 0 && given < l.ceiling`, `if false && given < l.ceiling`},
	{5, "the rate becomes 0.85 of what went through", `reopenTo    = .95`, `reopenTo    = .85`},
	{5, "measured up to the success", `opened := (l.shutAt + busy) / 2`, `opened := busy`},
	{5, "one call since the last opening is a measure", `reopenAfter = 2`, `reopenAfter = 1`},
	{5, "however long, it is no outage", `outageLeast = 3 * time.Minute`, `outageLeast = 1000 * time.Hour`},

	{6, "no fast way back", `case l.rate < back*c:`, `case false:`},
	{6, "back over 20 calls", `backOver   = 5 `, `backOver   = 20 `},
	{6, "back to 0.9 below one call a second, too", `backToSlow = .85`, `backToSlow = .9`},
	{6, "no pushing on", `pushOn      = 40 `, `pushOn      = 0 `},
	{6, "pushing on 40 times faster, also after a long probe", `pushOn*(1+rarely)/2*`, `pushOn*`},
	{6, "probing over 100 calls, also where cuts agree", `agreeMost   = 3 `, `agreeMost   = 0 `},
	{6, "probing over no share of the time", `probeAge    = .2`, `probeAge    = 0`},
	{6, "from below the ceiling to above it at once", "if l.rate < l.ceiling {\n\t\tgrown =", "if false {\n\t\tgrown ="},
	{6, "grows though it holds nobody back", `if late || l.heldAt <= l.credit {`, `if late {`},
	{6, "grows for late successes", `if late || l.heldAt <= l.credit {`, `if l.heldAt <= l.credit {`},
	{6, "one success is credited with any time", `creditOver  = 3 `, `creditOver  = 1e9 `},
	{6, "one success is credited with one call interval", `creditOver  = 3 `, `creditOver  = 1 `},

	{7, "quotas are not heeded", `if l.flat(q) {`, `if l.flat(q) || true {`},
	{7, "quotas brake, and do not speed up", `if !l.elsewhere {`, `if false {`},
	{7, "what comes back does not speed up", `more.refill = l.refilled(q)`, ``},
	{7, "quotas speed up while they fall, too", `if q.Reset > 0 || q.Remaining >= l.hintLeft {`, `if true {`},
	{7, "throttles do not doubt a quota", `l.elsewhere = elsewhere(e.quota, l.told)`, `l.elsewhere = false`},
	{7, "a quota that stays is heeded", `return l.leftFlat >= flatAfter`, `return false`},
}
