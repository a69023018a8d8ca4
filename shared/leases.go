package shared

import (
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// leases are the slots of a worker, in the order in which they are due.
type leases struct {
	all []lease
	n   int // slots
}

// A lease is a row of slots: the first is due at at, each other one gap later.
type lease struct {
	at  clock.Instant
	gap time.Duration
	n   int
}

// add adds slots. Slots that were saved up, for a burst, are due now, not long ago.
func (l *leases) add(now, at clock.Instant, gap time.Duration, n int) {
	gap = max(1, gap)
	l.n += n
	if saved := int(min(int64(now.Sub(at)/gap), int64(n))); saved > 0 {
		l.all = append(l.all, lease{now, 1, saved})
		at, n = at+clock.Instant(saved)*clock.Instant(gap), n-saved
	}
	if n > 0 {
		l.all = append(l.all, lease{at, gap, n})
	}
}

func (l *leases) drop() { l.all, l.n = l.all[:0], 0 }

// cut removes the first n slots of the first lease.
func (l *leases) cut(n int) {
	first := &l.all[0]
	first.n -= n
	first.at += clock.Instant(n) * clock.Instant(first.gap)
	l.n -= n
	if first.n == 0 {
		l.all = append(l.all[:0], l.all[1:]...)
	}
}

// skip drops the slots that were due before a time. Later ones outlive a pause that ends then,
// even if the pause is lifted: no other slots would make up for them for an interval.
func (l *leases) skip(until clock.Instant) {
	for len(l.all) > 0 && l.all[0].at < until {
		first := l.all[0]
		l.cut(int(min(int64(first.n), 1+int64((until.Sub(first.at)-1)/first.gap))))
	}
}

// expire drops the slots that have been due for longer than life. For a call of cost n, life
// counts from the time at which the last of n slots is due. No slot expires before the next one is
// due, so of all workers no more than one call goes late.
func (l *leases) expire(now clock.Instant, n int, life time.Duration) {
	for l.n > 0 {
		first := l.all[0]
		over := now.Sub(first.at) - max(life, first.gap) - time.Duration(n-1)*first.gap
		if over <= 0 {
			return
		}
		l.cut(int(min(int64(first.n), 1+int64(over/first.gap)))) // in 64 bits, as saved slots are a nanosecond apart
	}
}

// wait returns how long from now n slots are due, if there are as many.
func (l *leases) wait(now clock.Instant, n int) (wait time.Duration, ok bool) {
	if l.n < n {
		return 0, false
	}
	for _, x := range l.all {
		if n <= x.n {
			return max(0, x.at.Sub(now)+time.Duration(n-1)*x.gap), true
		}
		n -= x.n
	}
	return 0, false
}

// reach returns how long from now the last slot is due, 0 if none is.
func (l *leases) reach(now clock.Instant) time.Duration {
	if len(l.all) == 0 {
		return 0
	}
	last := l.all[len(l.all)-1]
	return max(0, last.at.Sub(now)+time.Duration(last.n)*last.gap)
}

// take removes the first n slots, which are due.
func (l *leases) take(n int) {
	for n > 0 && len(l.all) > 0 {
		k := min(n, l.all[0].n)
		l.cut(k)
		n -= k
	}
}
