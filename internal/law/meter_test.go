package law

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A meter's clock goes on while somebody wants something, and for the beginning of a pause. Its
// total goes on through pauses for throttles, too.
func TestMeterClock(t *testing.T) {
	const s = clock.Instant(time.Second)
	idle := func(now, until clock.Instant) func(*meter) { return func(m *meter) { m.idle(now, until) } }
	busy := func(now clock.Instant) func(*meter) { return func(m *meter) { m.busy(now) } }
	stop := func(now, until clock.Instant) func(*meter) { return func(m *meter) { m.pause(now, until, 0, false) } }
	throttle := func(now clock.Instant, counts time.Duration, until clock.Instant) func(*meter) {
		return func(m *meter) { m.pause(now, until, counts*time.Second, true) }
	}
	for _, tt := range []struct {
		name  string
		steps []func(*meter) // after busy at 10 s
		want  time.Duration  // at 100 s
		total time.Duration
	}{
		{"busy", nil, 90, 90},
		{"idle", []func(*meter){idle(20*s, 0)}, 10, 10},
		{"busy again", []func(*meter){idle(20*s, 0), busy(90 * s), busy(95 * s)}, 20, 20},
		{"the time up to until counts", []func(*meter){idle(20*s, 50*s)}, 40, 40},
		{"somebody comes at its end", []func(*meter){idle(20*s, 50*s), busy(50 * s)}, 90, 90},
		{"somebody comes before", []func(*meter){idle(20*s, 50*s), busy(40 * s)}, 90, 90},
		{"somebody comes later", []func(*meter){idle(20*s, 50*s), busy(80 * s)}, 60, 60},
		{"and goes", []func(*meter){idle(20*s, 50*s), busy(80 * s), idle(90*s, 50*s)}, 50, 50},
		{"idle when the clock stands", []func(*meter){idle(20*s, 50*s), idle(60*s, 90*s)}, 40, 40},
		{"idle when the clock stops", []func(*meter){idle(20*s, 50*s), idle(50*s, 90*s)}, 40, 40},
		{"a pause", []func(*meter){stop(20*s, 60*s)}, 50, 50},
		{"a pause in which the demand ends", []func(*meter){idle(20*s, 25*s), stop(22*s, 60*s)}, 12, 12},
		{"and somebody comes during it", []func(*meter){idle(20*s, 25*s), stop(22*s, 60*s), busy(40 * s)}, 52, 52},
		{"a pause that gets longer", []func(*meter){stop(20*s, 60*s), stop(30*s, 80*s)}, 30, 30},
		{"a pause for a throttle, of which little counts", []func(*meter){throttle(20*s, 5, 60*s)}, 55, 90},
		{"all of a short one counts", []func(*meter){throttle(20*s, 5, 22*s)}, 90, 90},
		{"and nobody waits", []func(*meter){throttle(20*s, 5, 60*s), idle(20*s, 60*s)}, 15, 50},
		{"somebody comes during it", []func(*meter){throttle(20*s, 5, 60*s), idle(20*s, 60*s), busy(40 * s)}, 55, 90},
		{"somebody comes after it", []func(*meter){throttle(20*s, 5, 60*s), idle(20*s, 60*s), busy(80 * s)}, 35, 70},
		{"nobody waited before", []func(*meter){idle(20*s, 0), throttle(30*s, 5, 60*s)}, 10, 40},
		{"nobody waits from this moment on", []func(*meter){idle(20*s, 0), throttle(20*s, 5, 60*s)}, 10, 50},
		{"nobody waited, and somebody comes", []func(*meter){idle(20*s, 0), throttle(30*s, 5, 60*s), busy(70 * s)}, 40, 70},
		{"it ends sooner", []func(*meter){throttle(20*s, 5, 60*s), stop(22*s, 22*s)}, 90, 90},
		{"it ends a bit sooner", []func(*meter){throttle(20*s, 5, 60*s), stop(40*s, 40*s)}, 75, 90},
		{"another one within it", []func(*meter){throttle(20*s, 5, 60*s), throttle(22*s, 5, 80*s)}, 35, 90},
		{"another one after it", []func(*meter){throttle(20*s, 5, 60*s), throttle(70*s, 5, 90*s)}, 40, 90},
		{"by hand within it", []func(*meter){throttle(20*s, 5, 60*s), stop(22*s, 80*s)}, 35, 90},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m meter
			m.busy(10 * s)
			for _, step := range tt.steps {
				step(&m)
			}
			assert.Equal(t, tt.want*time.Second, m.clock(100*s))
			assert.Equal(t, tt.total*time.Second, m.total(100*s))
		})
	}
}

// While a throttle makes everyone pause the clock soon stands, and the total goes on.
func TestMeterDuringAPause(t *testing.T) {
	const s = clock.Instant(time.Second)
	var m meter
	m.busy(10 * s)
	m.pause(20*s, 60*s, 5*time.Second, true)
	for at, want := range map[clock.Instant][2]time.Duration{20: {10, 10}, 22: {12, 12}, 30: {15, 20}, 60: {15, 50}, 70: {25, 60}} {
		assert.Equal(t, want[0]*time.Second, m.clock(at*s), "at %d", at)
		assert.Equal(t, want[1]*time.Second, m.total(at*s), "at %d", at)
	}
}

func TestMeterOver(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		calls int // one a second
		base  int // calls that were left out, when they had come
		floor int // calls that were left out for good
		more  int // two a second
		most  int
		want  float64
	}{
		{"nothing", 0, 0, 0, 0, 32, inf},
		{"a few", 3, 0, 0, 0, 32, 1},
		{"all", 20, 0, 0, 20, 128, 40. / 30},
		{"the last", 20, 0, 0, 20, 8, 8 / 3.5},
		{"all that count", 20, 20, 0, 20, 128, 2},
		{"eight at least, though fewer count", 20, 20, 0, 4, 128, 8. / 6},
		{"eight at least, though none counts", 20, 20, 0, 0, 128, 1},
		{"as many as there are", 3, 3, 0, 2, 128, 5. / 4},
		{"none of those that never count", 20, 20, 20, 4, 128, 2},
		{"some of those may", 20, 20, 18, 4, 128, 6. / 4},
		{"nothing but such", 20, 20, 20, 0, 128, inf},
		{"as many as the ring keeps", 1000, 0, 0, 0, 128, 128. / 127},
		{"and twice as fast", 1000, 0, 0, 127, 128, 128. / 63.5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m meter
			now := clock.Instant(s)
			m.busy(now)
			add := func(n int, gap time.Duration) {
				for range n {
					now = now.Add(gap)
					m.add(now, 1)
				}
			}
			add(tt.calls, s)
			if tt.base > 0 {
				m.restart(tt.base, m.clock(now))
			}
			m.floor = tt.floor
			add(tt.more, s/2)
			if tt.floor == 18 { // of the calls before
				assert.Len(t, m.ring, 24)
			}
			assert.InDelta(t, tt.want, m.over(now, tt.most), 1e-9)
			assert.LessOrEqual(t, len(m.ring), memoryLong)
		})
	}
	var m meter
	m.busy(1)
	assert.Equal(t, inf, m.over(clock.Instant(s), 32), "nothing for a while")
	m.add(1, 1)
	assert.Equal(t, inf, m.over(1, 32), "in no time")
	m.restart(1, 3*s)
	for range 8 {
		m.add(1, 1)
	}
	assert.InDelta(t, 8./4, m.over(1+7*clock.Instant(s), 32), 1e-9, "eight are no fewer than eight")
}

// An entry is a call where calls are slow, and 1/64 s where they are fast.
func TestMeterGoesBackInTime(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		gap     time.Duration
		calls   int
		entries int
		short   time.Duration // of the measure over 32 calls, or grains
		long    time.Duration // and over 128
	}{
		{"slow calls", 20 * ms, 1000, 1000, 31 * 20 * ms, 127 * 20 * ms},
		{"fast calls", ms, 10_000, 625, 495 * ms, 1999 * ms},
		{"calls at one moment", 0, 1000, 1, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m meter
			now := clock.Instant(time.Second)
			m.busy(now)
			for range tt.calls {
				now = now.Add(tt.gap)
				m.add(now, 1)
			}
			assert.Equal(t, tt.entries, m.entries)
			for most, length := range map[int]time.Duration{32: tt.short, 128: tt.long} {
				want := inf
				if length > 0 {
					want = float64(1+length/tt.gap) / length.Seconds()
				}
				assert.InDelta(t, want, m.over(now, most), 1e-6)
			}
		})
	}
}

func TestMeterRestart(t *testing.T) {
	var m meter
	m.busy(1)
	for range 5 {
		m.add(1, 1)
	}
	assert.Equal(t, 5, m.counted())
	m.restart(4, -time.Second)
	assert.Equal(t, 1, m.counted())
	assert.Zero(t, m.baseAt, "no earlier than the beginning")
}

// What came before the first cut is left out once, unless it is too little to matter.
func TestMeterForgetsTheBurst(t *testing.T) {
	for calls, left := range map[int]int{8: 8, 9: 0} {
		var m meter
		m.busy(1)
		for range calls {
			m.add(2, 1)
		}
		m.forgetBurst(2)
		assert.Equal(t, left, m.counted())
		assert.Equal(t, left == 0, m.baseAt == 1)
		for range calls {
			m.add(3, 1)
		}
		m.forgetBurst(3)
		assert.Equal(t, left+calls, m.counted(), "once")
	}
}
