package law

// chance tells throttles by chance, as of a busy shard among many, from those of a congestion. By
// chance they come alone, and no more rarely while the rate falls. A congestion ends then, or it
// refuses several calls.
type chance struct {
	alone int // throttles in a row that came alone, twice memoryLeast at most; each other one halves it
	late  int // throttles since the last cut that were late
}

// byChance reports whether a throttle that is not late came by chance: at least memoryLeast came
// alone, and meanwhile the ceiling fell far below the peak. A throttle that asks for a pause costs too
// much to be ignored. Where calls are those of many processes, nobody tells which throttles are late.
func (l *Law) byChance() bool {
	calls := l.fresh / (1 + l.late)
	l.late = 0
	if calls < 2*memoryLeast || l.price > pauseGaps*l.gap() || l.Lag > 0 {
		l.alone /= 2
		return false
	}
	l.alone = min(l.alone+1, 2*memoryLeast)
	return l.alone >= memoryLeast && l.ceiling < peakTo*l.peak
}
