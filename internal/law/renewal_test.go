package law

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/clock"
)

// The reset of a window that tells only its rest is found from the times at which the rest jumps.
func TestRenewals(t *testing.T) {
	const s, m = time.Second, time.Minute
	type answer struct {
		sent, at time.Duration
		left     int
	}
	at := func(t time.Duration, left int) answer { return answer{t, t, left} }
	for _, tt := range []struct {
		name  string
		limit int
		told  []answer
		want  time.Duration
	}{
		{"a window", 100, []answer{at(s, 99), at(10*s, 20)}, 0},
		{"one jump", 100, []answer{at(s, 9), at(10*s, 2), at(61*s, 99)}, 0},
		{"a window with our first call, and the next", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 99)}, m},
		{"later in that window", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 99), at(81*s, 60)}, 40 * s},
		{"its last moment", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 99), at(121*s, 0)}, s},
		{"the next jump is late", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 99), at(123*s, 0)}, 0},
		{"and comes", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 99), at(123*s, 0), at(124*s, 99)}, 63 * s},
		{"no limit told", 0, []answer{at(s, 99), at(10*s, 20), at(61*s, 99)}, 0},
		{"others have used some of the new window", 100, []answer{at(s, 99), at(10*s, 2), at(61*s, 60)}, m},
		{"others have used most of it", 100, []answer{at(s, 99), at(10*s, 2), at(61*s, 20)}, 0},
		{"few calls", 20, []answer{at(s, 19), at(10*s, 12), at(61*s, 19)}, 0},
		{"it fills up", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 99), at(62*s, 98), at(63*s, 99)}, 0},
		{"or does not fall", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 99), at(62*s, 99), at(63*s, 99)}, 0},
		{"it falls by our own calls alone", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 99), at(62*s, 98), at(63*s, 97)}, 58 * s},
		{"answers that overtake each other", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 90), {60 * s, 61500 * ms, 97}, {60 * s, 62 * s, 95}}, 59 * s},
		{"an old answer", 100, []answer{at(s, 99), at(10*s, 20), at(61*s, 99), {59 * s, 62 * s, 3}, at(63*s, 97)}, 58 * s},
		{"more left than the limit", 100, []answer{at(s, 120), at(10*s, 20), at(61*s, 120)}, m},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r renewals
			var got time.Duration
			begin := clock.Instant(time.Hour)
			for i, a := range tt.told {
				got = r.reset(begin.Add(a.at), begin.Add(a.sent), Quota{Limit: tt.limit, Remaining: a.left}, i+1, 0)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// Calls that are under way at a jump may have been used up before.
func TestRenewalsWithCallsUnderWay(t *testing.T) {
	for inflight, want := range map[int]time.Duration{5: 59 * time.Second, 0: 0} {
		var r renewals
		at := clock.Instant(time.Hour)
		tell := func(after time.Duration, left, n, inflight int) time.Duration {
			at = at.Add(after)
			return r.reset(at, at, Quota{Limit: 100, Remaining: left}, n, inflight)
		}
		tell(0, 99, 1, 0)
		tell(30*time.Second, 2, 98, 0)
		tell(30*time.Second, 99, 99, inflight)
		assert.Equal(t, want, tell(time.Second, 98, 105, 0), "%d under way", inflight)
	}
}

// A quota of 100 a minute that does not tell its reset is spread from its third window on.
func TestRenewalsSpreadTheRest(t *testing.T) {
	d := paced(10)
	begin, left := d.now, 100
	for minute := range 6 {
		for d.now < begin.Add(time.Minute) {
			if left == 0 {
				assert.Less(t, minute, 2, "nothing is left after %v", d.now.Sub(begin))
				break
			}
			left--
			d.after(clock.CeilSeconds(1 / d.Rate()))
			d.tell(Quota{Limit: 100, Remaining: left})
		}
		if minute >= 2 {
			assert.Positive(t, d.unspread, "%d left at the end", left)
			assert.LessOrEqual(t, left, 5)
		}
		d.now, left = max(d.now, begin.Add(time.Minute)), 100
		begin = d.now
	}
}
