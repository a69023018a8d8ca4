package clock

// A Timeline is a time that never runs backwards. Its owner guards it with a lock.
//
// Readings of the clock may arrive out of order, since callers read the clock before they take
// the lock. And a limiter may outlive its clock: in tests each synctest bubble has a clock that
// begins decades away from the real one, and earlier than the end of the last bubble. A
// Timeline goes on from where it was.
type Timeline struct {
	Last Instant // the latest time seen
	Skew Instant // the Timeline less the clock
}

// Advance returns the time of a reading, or the latest time seen if that is later.
func (t *Timeline) Advance(reading Instant) Instant {
	now := reading + t.Skew
	if now < t.Last {
		t.Skew = max(t.Skew, t.Last-Now())
		return t.Last
	}
	if d := now.Sub(t.Last); d > 10*Year && t.Last != 0 {
		t.Skew -= Instant(d)
		return t.Last
	}
	t.Last = now
	return now
}

// Reading returns what the clock read at a time. It is the inverse of Advance.
func (t *Timeline) Reading(now Instant) Instant { return now - t.Skew }

// At returns the time of an earlier reading. The zero Instant stays zero.
func (t *Timeline) At(reading Instant) Instant {
	if reading == 0 {
		return 0
	}
	return reading + t.Skew
}
