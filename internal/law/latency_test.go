package law

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

func TestLatencyMeans(t *testing.T) {
	for _, tt := range []struct {
		name        string
		short, long float64
		samples     int
		took        float64
		wantShort   float64
		wantLong    float64
	}{
		{"the first", 0, 0, 0, 2, 2, 2},
		{"both at first", 2, 2, 1, 4, 3, 3},
		{"the last 32", 2, 2, 32, 4, 2 + 2./32, 2 + 2./33},
		{"the last 128, as it falls", 4, 4, 128, 2, 4 - 2./32, 4 - 2./128},
		{"a quarter as fast as it rises", 2, 2, 128, 4, 2 + 2./32, 2 + 2./512},
		{"not before there are as many", 2, 2, 126, 4, 2 + 2./32, 2 + 2./127},
		{"four times the long mean at most", 2, 1, 128, 99, 2 + 2./32, 1 + 3./512},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := latency{short: tt.short, long: tt.long, samples: tt.samples}
			l.add(tt.took)
			assert.InDelta(t, tt.wantShort, l.short, 1e-9)
			assert.InDelta(t, tt.wantLong, l.long, 1e-9)
			assert.Equal(t, min(tt.samples+1, 128), l.samples)
		})
	}
}

// At a queue the rate falls to 0.9 of what comes out of it.
func TestQueueSlows(t *testing.T) {
	type state struct {
		paced      float64
		short      float64 // long is a second
		held       time.Duration
		since      int // calls let through since a queue last slowed down
		from       float64
		share, min float64
		cost       float64
	}
	for _, tt := range []struct {
		name string
		state
		queued bool
		want   float64 // the rate, where 10 a second come out
	}{
		{"a queue", state{paced: 15, short: 2.1, since: 32, share: 1}, true, 9},
		{"a short one", state{paced: 15, short: 1.9, since: 32, share: 1, from: 24}, false, 15},
		{"it waited long ago", state{paced: 15, short: 2.1, held: 267 * ms, since: 32, share: 1}, false, 15},
		{"it waited just now", state{paced: 15, short: 2.1, held: 266 * ms, since: 32, share: 1}, true, 9},
		{"the last time has not shown yet", state{paced: 15, short: 2.1, since: 31, share: 1}, true, 15},
		{"no less than half of the rate", state{paced: 100, short: 2.1, since: 32, share: 1}, true, 50},
		{"no less than half of the rate at first", state{paced: 15, short: 2.1, since: 32, share: 1, from: 24}, true, 12},
		{"it rises for no queue", state{paced: 5, short: 2.1, since: 32, share: 1}, true, 5},
		{"no less than the minimum", state{paced: 15, short: 2.1, since: 32, share: 1, min: 11}, true, 11},
		{"half of what was let through came out", state{paced: 8, short: 2.1, since: 32, share: .5}, true, 4.5},
		{"calls that cost ten", state{paced: 150, short: 2.1, since: 32, share: 1, cost: 10}, true, 90},
		{"without a rate", state{paced: inf, short: 2.1, since: 32, share: 1}, false, inf},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := paced(1000)
			d.succeed(40, 100*ms)
			// So that 32 calls came in 3.2 s.
			d.after(100 * ms)
			d.Min, d.rate, d.ceiling, d.heldAt = max(d.Min, tt.min), tt.paced, 77, d.now-clock.Instant(tt.held)
			d.latency = latency{short: tt.short, long: 1, samples: 128, share: tt.share, slowedAt: 40 - tt.since, slowedFrom: tt.from}
			d.cost = max(1, tt.cost)
			d.took = clock.CeilSeconds(tt.short)
			was := d.credit
			assert.Equal(t, tt.queued, d.queued(d.now))
			assert.InDelta(t, tt.want, d.Rate(), .01)
			assert.Equal(t, 77., d.ceiling, "the rate is back at once if it was something else")
			if tt.queued {
				was = d.now
			}
			assert.Equal(t, was, d.credit, "nothing grows meanwhile")
			switch {
			case tt.short < 2:
				assert.Zero(t, d.slowedFrom, "there is none")
			case tt.queued && tt.since == 32:
				assert.Equal(t, max(tt.paced, tt.from), d.slowedFrom)
				assert.Equal(t, 40, d.slowedAt)
			}
		})
	}
}

// A server that answers ever more slowly has a queue, however few it refuses.
func TestQueueIsWorkedOff(t *testing.T) {
	through := func(kind Kind) *driver {
		d := paced(20)
		d.Max = 20
		for i := range 200 {
			d.Held(d.after(50 * ms).now)
			d.Sent(d.now)
			took := 100 * ms
			if i >= 140 {
				took = time.Second
			}
			d.after(50 * ms)
			d.end(Attempt{Kind: kind, Sent: d.now - clock.Instant(took)})
		}
		return d
	}
	assert.Less(t, through(Success).Rate(), 19.)
	assert.Equal(t, 20., through(Denied).Rate(), "how long a no takes says nothing of a queue")
}

// The share is of successes among what was let through.
func TestShareOfSuccesses(t *testing.T) {
	d := paced(10)
	d.end(Attempt{Kind: Success, Sent: d.send()})
	assert.Equal(t, 1., d.share)
	d.end(Attempt{Kind: Passed, Sent: d.send()})
	assert.InEpsilon(t, 31./32, d.share, 1e-9)
	d.end(Attempt{Kind: Throttle, Sent: d.send()})
	d.end(Attempt{Kind: Nothing, Sent: d.send()})
	assert.InEpsilon(t, 31./32, d.share, 1e-9)
	d.end(Attempt{Kind: Success, Sent: d.send()})
	assert.InEpsilon(t, 1-31./32/32, d.share, 1e-9)
}
