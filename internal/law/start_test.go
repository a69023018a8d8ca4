package law

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

func TestWait(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name     string
		paced    bool
		row      int
		window   float64
		inflight int
		silent   int
		took     time.Duration
		want     time.Duration // since a call was last let go or done
	}{
		{"nothing is in flight", false, 0, 1, 0, 0, 0, 0},
		{"one is", false, 0, 1, 1, 0, 0, silence},
		{"less than the window", false, 0, 2, 1, 0, 0, 0},
		{"a part of the window is left", false, 0, 1.15, 1, 0, 0, 0},
		{"a full window", false, 0, 2, 2, 0, 0, silence},
		{"the silent do not count", false, 0, 2, 9, 8, 0, 0},
		{"others do", false, 0, 2, 10, 8, 0, silence},
		{"answers are quick", false, 0, 1, 1, 0, 50 * ms, silence},
		{"answers are slow", false, 0, 1, 1, 0, 3 * s, 6 * s},
		{"a rate says how long", true, 0, 1, 9, 0, s, 0},
		{"a rate, and one throttle", true, 1, 1, 9, 0, s, 0},
		{"without a rate, one throttle", false, 1, 1, 1, 0, 0, silence},
		{"closed", true, 2, 1, 1, 0, 0, s},
		{"closed, whatever the window", false, 2, 9, 1, 0, 0, s},
		{"closed, and nothing is in flight", true, 2, 1, 0, 0, 0, 0},
		{"closed, and answers are quick", true, 2, 1, 1, 0, 400 * ms, s},
		{"closed, and answers are slow", true, 2, 1, 1, 0, 3 * s, 6 * s},
		{"closed, and answers are very slow", true, 2, 1, 1, 0, 20 * s, 10 * s},
		{"closed, and many are in flight", true, 9, 1, 5, 4, 0, s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := unpaced()
			if tt.paced {
				d = paced(10)
			}
			d.row, d.window, d.inflight, d.silent, d.took, d.moved, d.went = tt.row, tt.window, tt.inflight, tt.silent, tt.took, d.now, d.now
			assert.Equal(t, tt.want, d.Wait(d.now))
			if tt.want > 0 {
				assert.Equal(t, time.Nanosecond, d.Wait(d.now.Add(tt.want-1)))
			}
			assert.Zero(t, d.Wait(d.now.Add(tt.want)))
			assert.Zero(t, d.Wait(d.now.Add(2*tt.want)))
		})
	}
}

// Whoever waits for an answer waits from the last sign of life on.
func TestWaitBeginsAnewWithEachCall(t *testing.T) {
	d := paced(10)
	d.row = closedRow
	d.send()
	assert.Equal(t, time.Second, d.Wait(d.now))
	assert.Equal(t, 400*ms, d.Wait(d.after(600*ms).now))
	d.after(400 * ms).send()
	assert.Equal(t, time.Second, d.Wait(d.now), "one more went")
	d.after(600 * ms).end(Attempt{Kind: Nothing})
	assert.Equal(t, time.Second, d.Wait(d.now), "one ended, the other may yet")
	d.end(Attempt{Kind: Nothing})
	assert.Zero(t, d.Wait(d.now), "all have ended")
}

// A server that becomes slow is asked as often as before, once it is known how long calls take.
func TestWaitAtASlowServer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		samples int
		long    float64 // mean latency, in seconds
		window  float64
		row     int
		went    time.Duration // ago
		want    time.Duration
	}{
		{"what calls take, by the window", 32, 1, 5, 0, 0, 200 * ms},
		{"since the last one went", 32, 1, 5, 0, 150 * ms, 50 * ms},
		{"long ago", 32, 1, 5, 0, time.Second, 0},
		{"too few to tell", 31, 1, 5, 0, 0, silence},
		{"silence is shorter", 32, 4, 5, 0, 0, silence},
		{"closed", 32, 1, 5, closedRow, 0, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := unpaced()
			d.samples, d.long, d.window, d.row, d.inflight = tt.samples, tt.long, tt.window, tt.row, 5
			d.moved, d.went = d.now, d.now-clock.Instant(tt.went)
			assert.Equal(t, tt.want, d.Wait(d.now))
		})
	}
	d := unpaced()
	sent := d.send()
	d.after(time.Second).send()
	d.end(Attempt{Kind: Nothing, Sent: sent})
	assert.Equal(t, sent.Add(time.Second), d.went)
	d.after(time.Second).end(Attempt{Kind: Nothing})
	assert.Equal(t, sent.Add(time.Second), d.went, "the end of a call is no beginning")
}

func TestInFlight(t *testing.T) {
	d := unpaced()
	d.send()
	d.send()
	assert.Equal(t, 2, d.InFlight())
	for i, want := range []int{1, 0, 0} {
		d.end(Attempt{Kind: Nothing})
		assert.Equal(t, want, d.InFlight(), "%d ended", i+1)
	}
}

func TestTook(t *testing.T) {
	d := unpaced()
	d.landed(d.now, d.now-clock.Instant(time.Second))
	assert.Equal(t, time.Second, d.took)
	d.landed(d.now, 0)
	assert.Equal(t, time.Second, d.took, "unknown")
	d.landed(d.now, d.now+1)
	assert.Zero(t, d.took, "sent later, by another clock")
}

func TestWindowGrows(t *testing.T) {
	for _, tt := range []struct {
		name     string
		window   float64
		inflight int // with its own
		silent   int
		took     time.Duration
		want     float64 // more
	}{
		{"one", 1, 1, 0, 10 * ms, .15},
		{"just before five", 4.9, 5, 0, 10 * ms, .15},
		{"from five on by latency", 5, 5, 0, 100 * ms, .1},
		{"no less than for 30 ms", 5, 5, 0, ms, .03},
		{"no more than for 150 ms", 5, 5, 0, time.Second, .15},
		{"half of the window is in flight", 8, 4, 0, time.Second, .15},
		{"less is", 8.01, 4, 0, time.Second, 0},
		{"the silent want no more", 8, 10, 7, time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := unpaced()
			d.window, d.inflight, d.silent, d.silentAt = tt.window, tt.inflight, tt.silent, 1
			d.end(Attempt{Kind: Success, Sent: d.now - clock.Instant(tt.took)})
			assert.InDelta(t, tt.want, d.window-tt.window, 1e-9)
		})
	}
	d := paced(10)
	d.end(Attempt{Kind: Success, Sent: d.send()})
	assert.Equal(t, 1., d.window, "there is a rate")
	d = unpaced()
	for kind := range Kind(Throttle) {
		if kind != Success && kind != Denied {
			d.end(Attempt{Kind: kind, Sent: d.send()})
			assert.Equal(t, 1., d.window, "kind %d", kind)
		}
	}
	d.end(Attempt{Kind: Denied, Sent: d.send()})
	assert.InDelta(t, 1.15, d.window, 1e-9, "a denial is an answer, too")
}

func TestThrottleShutsTheWindow(t *testing.T) {
	d := unpaced()
	d.window = 8
	d.end(Attempt{Kind: Throttle, Sent: d.send(), Late: true})
	assert.Equal(t, 8., d.window, "a late one says nothing new")
	d.throttle(0)
	assert.Equal(t, 1., d.window)
}

// Long polls and streams must not hold up short calls.
func TestSilentCallsOpenTheWindow(t *testing.T) {
	d := unpaced()
	long := d.send()
	assert.Positive(t, d.Wait(d.now))
	d.after(silence).send()
	assert.Equal(t, 8., d.window)
	assert.Equal(t, 1, d.silent, "the one before")
	for range 7 {
		assert.Zero(t, d.Wait(d.now))
		d.send()
	}
	assert.Equal(t, silence, d.Wait(d.now), "eight that are not silent")
	d.end(Attempt{Kind: Nothing, Sent: long})
	assert.Zero(t, d.silent)
	assert.Positive(t, d.Wait(d.now), "a silent one that ends makes no room")
	d.end(Attempt{Kind: Nothing, Sent: d.now})
	assert.Zero(t, d.Wait(d.now), "another one does")
}

func TestSilentCallsAreNeverMoreThanThereAre(t *testing.T) {
	d := unpaced()
	d.send()
	d.after(silence).send()
	d.after(silence)
	d.end(Attempt{Kind: Nothing, Sent: d.now})
	assert.Equal(t, 1, d.silent)
	d.end(Attempt{Kind: Nothing, Sent: d.now})
	assert.Zero(t, d.silent)
	d.send()
	d.after(silence).send()
	d.after(silence)
	d.end(Attempt{Kind: Nothing}) // sent at an unknown time
	assert.Zero(t, d.silent)
}

func TestSilenceOpensNoWindow(t *testing.T) {
	for _, tt := range []struct {
		name    string
		d       *driver
		row     int
		in      int
		samples int
	}{
		{"with a rate", paced(10), 0, 1, 0},
		{"after a throttle", unpaced(), 1, 1, 0},
		{"with room in the window", unpaced(), 0, 0, 0},
		{"where it is known how long calls take", unpaced(), 0, 1, 32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.d.row, tt.d.inflight, tt.d.samples = tt.row, tt.in, tt.samples
			tt.d.after(time.Minute).send()
			assert.Equal(t, 1., tt.d.window)
			assert.Zero(t, tt.d.silent)
		})
	}
}
