package debug

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// at is a point some time after the beginning.
func at(d time.Duration, attempts, throttles uint64) point {
	return point{at: int64(d), attempts: attempts, throttles: throttles}
}

// A rate is taken over the ten seconds before a point. After a time without samples it is taken
// over all of that time.
func TestPoints(t *testing.T) {
	const second = time.Second
	type want struct {
		at        time.Duration
		rate      float64
		throttles uint64
	}
	for _, tt := range []struct {
		name string
		list []point
		want []want
	}{
		{"none", nil, []want{}},
		{"one", []point{at(0, 7, 3)}, []want{{0, 0, 0}}},
		{"two", []point{at(0, 0, 0), at(2*second, 10, 1)}, []want{{0, 0, 0}, {2 * second, 5, 1}}},
		{"ten seconds, and no more", []point{at(0, 0, 0), at(4*second, 100, 0), at(8*second, 104, 0), at(12*second, 108, 0), at(16*second, 112, 0)},
			[]want{{0, 0, 0}, {4 * second, 25, 0}, {8 * second, 13, 0}, {12 * second, 1, 0}, {16 * second, 1, 0}}},
		{"ten seconds apart", []point{at(0, 0, 0), at(10*second, 50, 2)}, []want{{0, 0, 0}, {10 * second, 5, 2}}},
		{"longer apart", []point{at(0, 0, 0), at(20*second, 50, 2)}, []want{{0, 0, 0}, {1, 2.5, 0}, {20 * second, 2.5, 2}}},
		{"counted anew", []point{at(0, 50, 9), at(2*second, 10, 1)}, []want{{0, 0, 0}, {2 * second, 0, 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := []want{}
			for _, p := range points(tt.list) {
				got = append(got, want{p.At.Sub(time.Unix(0, 0)), p.Rate, p.Throttles})
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// A chart shows a pause up to its end, or to the point at which it has been ended.
func TestTheChartOfAPause(t *testing.T) {
	paused := func(d, left time.Duration) point { return point{at: int64(d), pause: left} }
	for _, tt := range []struct {
		name string
		list []point
		want []string // from, width; in seconds
	}{
		{"none", []point{at(0, 0, 0), at(time.Minute, 0, 0)}, nil},
		{"over", []point{paused(0, 5*time.Second), at(6*time.Second, 0, 0), at(time.Minute, 0, 0)}, []string{"0.0 5.0"}},
		{"over, and nobody looked", []point{paused(0, 20*time.Second), at(time.Minute, 0, 0)}, []string{"0.0 20.0"}},
		{"seen twice", []point{paused(0, 9*time.Second), paused(4*time.Second, 5*time.Second), at(time.Minute, 0, 0)}, []string{"0.0 9.0"}},
		{"extended", []point{paused(0, 9*time.Second), paused(4*time.Second, 20*time.Second), at(time.Minute, 0, 0)}, []string{"0.0 24.0"}},
		{"ended early", []point{paused(0, time.Hour), at(6*time.Second, 0, 0), at(time.Minute, 0, 0)}, []string{"0.0 6.0"}},
		{"a shorter one instead", []point{paused(0, time.Hour), paused(6*time.Second, 3*time.Second), at(time.Minute, 0, 0)}, []string{"0.0 9.0"}},
		{"another one later", []point{paused(0, 3*time.Second), paused(6*time.Second, 3*time.Second), at(time.Minute, 0, 0)}, []string{"0.0 3.0", "6.0 3.0"}},
		{"lasts", []point{at(0, 0, 0), paused(50*time.Second, time.Hour), paused(time.Minute, time.Hour)}, []string{"50.0 10.0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, m := range regexp.MustCompile(`class="pause" x="([^"]*)" y="0" width="([^"]*)"`).FindAllStringSubmatch(string(chart(points(tt.list), 1, "")), -1) {
				got = append(got, m[1]+" "+m[2])
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// The ring leaves out points that are too old, and points that are not before now.
func TestRing(t *testing.T) {
	var r ring
	seconds := func(now time.Duration) (list []int) {
		for _, p := range r.upto(at(now, 0, 0)) {
			list = append(list, int(time.Duration(p.at)/time.Second))
		}
		return list
	}
	assert.Equal(t, []int{1}, seconds(time.Second))
	r.add(at(time.Second, 0, 0))
	assert.Equal(t, []int{1}, seconds(time.Second), "now is told once")
	r.add(at(2*time.Second, 0, 0))
	assert.Equal(t, []int{1, 2, 3}, seconds(3*time.Second))
	assert.Equal(t, []int{1, 2, 301}, seconds(time.Second+history), "just kept")
	assert.Equal(t, []int{2, 302}, seconds(2*time.Second+history))
	for i := range 2 * samples {
		r.add(at(time.Duration(10+i)*time.Second, 0, 0))
	}
	got := seconds(time.Duration(10+2*samples) * time.Second)
	require.Len(t, got, samples+1)
	assert.Equal(t, 10+samples, got[0], "the oldest first")
}

// A clock that is set back must not stop the history until the clock has caught up.
func TestTheHistoryGoesOnWhenTheClockIsSetBack(t *testing.T) {
	w := New().Watch("api")
	begun := time.Now()
	for _, tt := range []struct {
		name string
		now  time.Duration
		due  bool
	}{
		{"first", 0, true},
		{"too soon", period - 1, false},
		{"in time", period, true},
		{"set back", -time.Hour, true},
		{"too soon after that", period - 1 - time.Hour, false},
		{"in time after that", period - time.Hour, true},
	} {
		assert.Equal(t, tt.due, w.isDue(begun.Add(tt.now)), tt.name)
	}
}

// The top of a chart is a round number not far above the curve.
func TestCeiling(t *testing.T) {
	for _, tt := range []struct {
		name        string
		rate, limit float64
		want        float64
	}{
		{"nothing", 0, 0, 1},
		{"a limit alone", 0, 10, 15},
		{"a rate alone", 10, 0, 15},
		{"a limit near the rate", 10, 18, 20},
		{"a limit far from the rate", 10, 1000, 40},
		{"slow", .02, 0, .03},
		{"2.2", 2, 0, 3},
		{"4.4", 4, 0, 5},
		{"5.5", 5, 0, 6},
		{"7.7", 7, 0, 8},
		{"8.8", 8, 0, 10},
		{"fast", 70_000, 0, 80_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ceiling([]Point{{Rate: tt.rate / 2, Limit: tt.limit}, {Rate: tt.rate, Limit: tt.limit / 2}})
			assert.InEpsilon(t, tt.want, got, 1e-9)
		})
	}
}

// The forecast depends on the kind of the limiter. With several limiters it names the one that it
// is about.
func TestNext(t *testing.T) {
	limit := 5.
	for _, tt := range []struct {
		name    string
		limiter Limiter
		want    string // the part in brackets is for several limiters
	}{
		{"a limit", Limiter{Learns: true, Limit: &limit}, "Lets up to 5.00/s through, and looks for more when calls have to wait[ (ACCOUNT 1)]."},
		{"no limit", Limiter{Learns: true}, "Speeds up gently until the API says stop[ (ACCOUNT 1)]."},
		{"a pause", Limiter{Learns: true, Limit: &limit, Pause: 3}, "Calls again in 3 s, at 5.00/s[ (ACCOUNT 1)]."},
		{"a pause, no limit", Limiter{Learns: true, Pause: 3}, "Calls again in 3 s, a few at a time[ (ACCOUNT 1)]."},
		{"calls wait", Limiter{Learns: true, Limit: &limit, Waiting: 10}, "The calls that wait now are through in about 2 s at 5.00/s; the rate grows with successes[ (ACCOUNT 1)]."},
		{"a fixed rate", Limiter{Limit: &limit}, "Lets up to 5.00/s through[ (ACCOUNT 1)]."},
		{"a fixed rate, a pause", Limiter{Limit: &limit, Pause: 3}, "Calls again in 3 s, at 5.00/s[ (ACCOUNT 1)]."},
		{"a fixed rate, calls wait", Limiter{Limit: &limit, Waiting: 10}, "The calls that wait now are through in about 2 s at 5.00/s[ (ACCOUNT 1)]."},
		{"closed", Limiter{Learns: true, Degraded: true, Pause: 3}, "Lets no call through until its store can be reached[ (ACCOUNT 1)]."},
		{"open", Limiter{Learns: true, Degraded: true, unlimited: true}, "Goes on without a limit until its store can be reached[ (ACCOUNT 1)]."},
		{"a window", Limiter{}, "Keeps to a window or a delay of its own[ (ACCOUNT 1)]."},
		{"a window, a pause", Limiter{Pause: 3}, "Calls again in 3 s[ (ACCOUNT 1)]."},
		{"a window, calls wait", Limiter{Waiting: 10}, "Keeps to a window or a delay of its own[ (ACCOUNT 1)]."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := tt.limiter
			l.Name = "ACCOUNT 1"
			before, rest, _ := strings.Cut(tt.want, "[")
			who, after, _ := strings.Cut(rest, "]")
			assert.Equal(t, before+after, (&API{Limiters: []Limiter{l}}).next())
			assert.Equal(t, before+who+after, (&API{Limiters: []Limiter{l, l}}).next())
		})
	}
	assert.Equal(t, "No Retrier was added to this watch, so there is no limiter to tell of.", (&API{}).next())
	assert.Equal(t, "No limiter paces these calls: each one backs off by itself.", (&API{retriers: 1, State: StateFlowing}).next())
	assert.Equal(t, "There is no limiter now: that of a scope, such as a host, comes with its next call.", (&API{retriers: 1, State: StateIdle}).next())
}
