package law

// chance tells throttles by chance, as of a busy shard among many, from congestion. By chance they
// come alone, and as often when the rate has fallen. Congestion ends when the rate falls, or refuses
// several calls.
type chance struct {
	alone int // throttles that came alone, twice memoryLeast at most; each other one halves it
	late  int // throttles since the last cut that were late
}

// byChance reports whether a throttle that is not late came by chance: at least memoryLeast came
// alone, and meanwhile the ceiling fell far below the peak. A throttle that asks for a pause costs too
// much to be ignored.
func (l *Law) byChance() bool {
	calls := l.fresh / max(1, 1+l.late) // late may have come from a store
	l.late = 0
	if calls < 2*memoryLeast || l.price > pauseGaps*l.gap() {
		l.alone /= 2
		return false
	}
	l.alone = min(l.alone+1, 2*memoryLeast)
	return l.alone >= memoryLeast && l.ceiling < peakTo*l.peak
}
