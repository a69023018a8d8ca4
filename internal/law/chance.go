package law

// chance tells throttles by chance, as of a busy shard or an overloaded server, from congestion. By
// chance they come as often when the rate has fallen. Congestion ends then.
type chance struct {
	late  int     // throttles since byChance was last asked: late ones, and ones without a success before
	alone int     // throttles that came alone, twice memoryLeast at most; each other one takes two back
	sunk  int     // cuts that found a lower ceiling; each other one takes four back
	apart float64 // mean of the calls for a throttle, over about the last memoryLeast throttles
	vain  float64 // the same when cuts had proved to be in vain, 0 if they have not
}

// byChance reports whether a throttle that is not late came by chance. Where cuts are in vain it did,
// unless throttles come far more often than then, which is congestion, or far less often. Elsewhere it
// did if at least memoryLeast came alone while the ceiling fell far below the peak. One that asks for a
// pause costs too much for that.
func (l *Law) byChance() bool {
	calls := l.fresh / max(1, 1+l.late) // late may have come from a store
	l.late = 0
	l.apart += (float64(calls) - l.apart) / memoryLeast
	switch {
	case l.vain > 0 && l.apart > outlier*l.vain:
		l.vain = 0
	case l.vain > 0 && l.apart >= fallen*l.vain:
		return true
	case l.vain > 0:
		l.apart = l.vain
	case calls >= 2*memoryLeast && l.price <= pauseGaps*l.gap():
		l.alone = min(l.alone+1, 2*memoryLeast)
		return l.alone >= memoryLeast && l.ceiling < fallen*l.peak
	default:
		l.alone = max(0, l.alone-2)
	}
	return false
}

// sink is for a cut that found another ceiling. Cuts are in vain if twice memoryLeast lower it, with
// few others between them, and throttles stay frequent. One for each few calls is a closed server.
func (l *Law) sink(was float64) {
	switch {
	case l.vain > 0: // known already
	case l.ceiling >= was:
		l.sunk = max(0, l.sunk-4)
	default:
		if l.sunk++; l.sunk >= 2*memoryLeast && l.apart >= memoryLeast && l.apart <= 3*memoryLeast {
			l.sunk, l.vain = 0, l.apart
		}
	}
}
