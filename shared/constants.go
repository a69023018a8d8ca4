package shared

import "time"

// MaxPause is the longest pause that workers share, 31 days.
const MaxPause = 31 * 24 * time.Hour

// The constants of the shared law that the law of one process has no part in. Times are
// microseconds. The script of cruiseredis has them too.
const (
	million      = 1_000_000
	horizon      = 1_000_000            // how far ahead slots are given out
	reportPeriod = 500_000              // within which an active worker syncs
	maxTurn      = 5 * million          // for which a worker leaves the store alone while slots are short
	cutGap       = 2 * reportPeriod     // between two cuts: all workers know of the last one
	countTime    = 5 * million          // how long a count of workers takes
	flowMemory   = 1_000_000            // of Flow and Busy, at least
	flowCalls    = 20                   // Flow and Busy remember the time of this many calls, if that is longer
	leastUsed    = .5                   // of the rate must be in use for growth
	leastTold    = million / 4          // of the time must have been in use to show how much the server gives
	minAge       = 5 * million          // that probing takes, at least
	maxAge       = 50 * million         // that probing takes, at most
	peakFades    = .2                   // of its distance from the ceiling, with each cut at or above the previous one
	closedGap    = horizon              // between calls to a closed server, at least, so that one is under way
	reopenTo     = .9                   // of the rate that the server gave in the long run, when it opens again
	slotParts    = 4                    // one sync gets at most a fourth of the free slots
	queueAhead   = reportPeriod / 8     // how far ahead slots are given out where they are not short
	mostSlots    = 1_000_000            // slots in one sync
	yearMicros   = 365 * 86_400_000_000 // bound of Most
	outageLeast  = 180 * million        // closed, by which it may have been an outage
	shortWindow  = 3 * million          // a window that is over before its rest is known
)

// The constants that the law of one process has too, with other values here and there.
const (
	closedRow = 2   // throttles in a row by which the server counts as closed
	longCalls = 250 // by which a ceiling makes a peak, and a closing ends one

	backTo      = .9 // of the ceiling, to which the rate returns quickly after a cut
	backOver    = 5  // calls that the way back takes
	probeOver   = 100
	agreeWithin = .1
	agreeMost   = 3
	probeAge    = .2
	pushOn      = 40
	creditOver  = 3
	peakTo      = .7
	pauseGaps   = 2

	hintLeast    = 10
	hintCut      = .75
	hintGaps     = 2
	hintGrow     = .01
	hintGrowMost = .25
	hintMost     = 100
	hintSame     = 10
	resetSlack   = 1500 * time.Millisecond
	rationAfter  = 3
	usedUpMost   = 10 * time.Second
)
