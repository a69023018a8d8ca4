package clock

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBaseHasAMonotonicReading(t *testing.T) {
	assert.Contains(t, base.String(), " m=")
}

func TestOf(t *testing.T) {
	assert.Zero(t, Of(time.Time{}))
	assert.True(t, Instant(0).Time().IsZero())
	now := time.Now()
	assert.True(t, now.Equal(Of(now).Time()))
	assert.Equal(t, Instant(1), Of(base.Add(-time.Hour)), "a time before all readings is not the zero Instant")
}

func TestAdd(t *testing.T) {
	assert.Equal(t, Instant(5), Instant(2).Add(3))
	assert.Equal(t, Instant(math.MaxInt64), Instant(2).Add(Never))
}

// The wall clock was an hour ahead when base was read and has been set right since. A
// deadline of the wall clock is as far away as it is for its context.
func TestDeadlineOfTheWallClock(t *testing.T) {
	was := base
	t.Cleanup(func() { base = was })
	*(*uint64)(unsafe.Pointer(&base)) += uint64(time.Hour/time.Second) << 30 // the wall clock's seconds in a time.Time with both
	require.InDelta(t, -time.Hour, time.Until(was.Round(0))-time.Until(base.Round(0)), float64(time.Second))
	left := Deadline(time.Now().Add(time.Minute).Round(0)).Sub(Now())
	assert.InDelta(t, time.Minute, left, float64(10*time.Second))
}

func TestCeilSeconds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		seconds float64
		want    time.Duration
	}{
		{"whole", 2, 2 * time.Second},
		{"a part of a nanosecond", 1e-10, 1},
		{"the smallest", math.SmallestNonzeroFloat64, 1},
		{"rounded up", 1. / 3, 333333334},
		{"zero", 0, 0},
		{"negative", -1, 0},
		{"NaN", math.NaN(), 0},
		{"317 years", 1e10, Never},
		{"the largest", math.MaxFloat64, Never},
		{"infinite", math.Inf(1), Never},
		{"negatively infinite", math.Inf(-1), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, CeilSeconds(tt.seconds))
		})
	}
}

func TestTimeline(t *testing.T) {
	var line Timeline
	now := Now()
	assert.Equal(t, now, line.Advance(now))
	assert.Equal(t, now.Add(time.Second), line.Advance(now.Add(time.Second)))
	assert.Equal(t, now.Add(time.Second), line.Advance(now), "readings out of order")
	assert.Zero(t, line.At(0))

	line = Timeline{}
	last := line.Advance(now.Add(20 * Year)) // a bubble that has ended
	assert.Equal(t, last, line.Advance(now), "another clock begins earlier")
	next := Now()
	got := line.Advance(next)
	assert.InDelta(t, int64(last), int64(got), float64(10*time.Second), "and the time goes on from there")
	assert.Equal(t, next, line.Reading(got))
	assert.Equal(t, got, line.At(next))

	last = line.Last
	assert.Equal(t, last, line.Advance(line.Reading(last).Add(11*Year)), "a step of many years is another clock")
	assert.Equal(t, last.Add(time.Second), line.Advance(line.Reading(last).Add(time.Second)))
}
