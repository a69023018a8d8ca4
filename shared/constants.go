package shared

import "time"

// MaxPause is the longest pause that workers share, 31 days.
const MaxPause = 31 * 24 * time.Hour

// The constants of the shared state. Times are microseconds. The script of cruiseredis has them too.
const (
	million      = 1_000_000
	horizon      = 1_000_000            // how far ahead slots are given out
	reportPeriod = 500_000              // within which an active worker syncs
	maxTurn      = 5 * million          // for which a worker leaves the store alone while slots are short
	cutGap       = 2 * reportPeriod     // between two cuts: all workers know of the last one
	countTime    = 5 * million          // how long a count of workers takes
	stepGap      = million / 10         // between two steps of the law, unless there is a throttle
	stepTime     = million / 5          // that a step may take
	slotsKept    = 3 * reportPeriod     // for which slots count that were given out: two to three syncs, and as long again
	closedGap    = horizon              // between calls to a closed server, at least, so that one is under way
	slotParts    = 4                    // one sync gets at most a fourth of the free slots
	queueAhead   = reportPeriod / 8     // how far ahead slots are given out where they are not short
	mostSlots    = 1_000_000            // slots in one sync
	yearMicros   = 365 * 86_400_000_000 // how long ago a new state was last told a quota
	closedRow    = 2                    // throttles in a row by which the server counts as closed
	mostLevel    = 60                   // of the pause backoff

	pauseGaps   = 2                // call intervals that the pause of a lone worker takes at most
	usedUpMost  = 10 * time.Second // until a reset, for which all workers pause if nothing is left
	outageLeast = 3 * time.Minute  // a longer pause may be an outage
)
