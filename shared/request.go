package shared

import (
	"time"

	"github.com/a7df5faa/cruise"
)

// A Request carries the reports of a worker to a [Store], and asks for slots, in one sync. It
// holds durations and counts only, no moment in time, so that clocks of workers need not agree.
// Rates are in millionths of a call per second.
type Request struct {
	// Law holds the options of the worker. Each sync follows the options of its worker.
	Law Law

	// Want is the number of slots wanted, 0 for none. Least is the smallest useful number: the
	// cost of the next call and what earlier ones owe, or the cost of the last one where none waits.
	Want, Least int

	// Epoch is the newest epoch that the worker knows, 0 for none, with its Rate and Ceiling. A
	// store that has lost its state, or holds an older one, takes them over.
	Epoch         int64
	Rate, Ceiling int64

	// Throttled reports that an attempt sent in Epoch was throttled. Backoff is how long all
	// workers pause for it at most, 0 if Pause says how long.
	Throttled bool
	Backoff   time.Duration
	// Successes and Failed are the costs of the attempts since the last sync, of any epoch.
	// Successes counts attempts that succeeded or failed for good, Failed other attempts that the
	// server let through, and those that were sent before the worker knew of the last throttle.
	Successes, Failed int64
	// Late is the number of throttled attempts beside the one that Throttled reports, of any epoch.
	Late int64
	// Quota is the last one that came with a success, nil if none did, and QuotaAge its age.
	Quota    *cruise.Quota
	QuotaAge time.Duration

	// Pause is the rest of the longest shared pause that the worker knows. NewPause reports that
	// the store may not know of it yet.
	Pause    time.Duration
	NewPause bool
	// Resume lifts the pause. Resumes is the number of liftings that the worker knows of: the
	// store does not bring back a pause from before a later one.
	Resume  bool
	Resumes int64

	// Held is how far ahead the worker's slots reach. A store that has lost its state gives none
	// out before.
	Held time.Duration

	// Count is the count of workers that last included this one: see [Reply].
	Count int64
}

// cost returns the cost of a call, by whose intervals the law goes.
func (q *Request) cost() int64 { return int64(max(1, q.Least)) }

// calls returns how many calls cost so much together.
func (q *Request) calls(cost int64) int { return int((cost + q.cost() - 1) / q.cost()) }

// Law holds the options of a worker that concern the shared rate: see [New]. Rates are in
// millionths of a call per second, factors in millionths.
type Law struct {
	Min, Max, Initial  int64
	Decrease, Increase int64
	Burst              int64         // 1 or more
	Forgive            int64         // 1 or more
	PauseBase          time.Duration // the shortest bound of a pause where throttles go on
}

// A Reply is the answer to a [Request].
type Reply struct {
	// Slots is how many calls may go. The first goes in Wait, the others at equal distances
	// within Span. Wait is negative where a burst was saved. If Slots is 0, it makes no sense to
	// ask again before Wait is over, unless the rate rises.
	Slots      int
	Wait, Span time.Duration

	Epoch         int64        // counts the events that make slots void, such as cuts, from 1 on
	Rate, Ceiling int64        // Ceiling is 0 before the first throttle
	Why           cruise.Cause // of the last fall of the rate, CauseSuccess before any
	Level         int64        // of the pause backoff, 0 while all is well

	Pause   time.Duration // the rest of the pause, 0 for none
	Resumes int64

	Workers int   // that synced lately, 1 or more
	Count   int64 // of workers, in which this one is now included
}
