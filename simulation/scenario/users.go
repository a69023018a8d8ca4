package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/a7df5faa/cruise/simulation/server"
)

// users returns situations that users meet with an untuned client in front of an API: calls that
// are refused for their own sake, processes that come later, servers with wrong headers, jobs that
// fit.
func users() []*Scenario {
	var list []*Scenario
	for _, part := range [][]*Scenario{doomed(), newcomers(), crowds(), constants(), wholeSeconds(), published(), jobs(), long(), closing(), byChance()} {
		list = append(list, part...)
	}
	for _, s := range list {
		if s.Jitter == 0 {
			s.Jitter = jitter
		}
	}
	return list
}

// plenty returns a server that never throttles.
func plenty() server.Spec {
	return server.Spec{Kind: server.Bucket, Rate: server.Constant(1e6), Burst: 1e6}
}

// attempts is how many a call makes by default.
const attempts = 5

// doomed returns scenarios with callers whose calls are always throttled, at any rate, beside five
// whose calls never are.
func doomed() []*Scenario {
	var list []*Scenario
	for _, v := range []struct {
		name     string
		attempts int
		odd      Odd
		rest     time.Duration // after that
	}{
		{"doomed", 0, Odd{}, 0},
		{"doomed-1s", 0, Odd{RetryAfter: time.Second}, 0},
		{"doomed-10s", 0, Odd{RetryAfter: 10 * time.Second}, 0},
		{"doomed-5x", attempts, Odd{Every: 10 * time.Second}, 0},
		{"doomed-5x-1s", attempts, Odd{Every: 30 * time.Second, RetryAfter: time.Second}, 0},
		{"doomed-3x", 3, Odd{Every: 7 * time.Second}, 0},
		{"doomed-3x-30s", 3, Odd{Every: 7 * time.Second, RetryAfter: 30 * time.Second}, 0},
		{"doomed-after", attempts, Odd{Every: 10 * time.Second, Until: 10 * time.Minute}, 20 * time.Minute},
		{"doomed-after-1s", attempts, Odd{Every: 10 * time.Second, Until: 10 * time.Minute, RetryAfter: time.Second}, 20 * time.Minute},
		{"doomed-after-10s", attempts, Odd{Every: 10 * time.Second, Until: 10 * time.Minute, RetryAfter: 10 * time.Second}, 20 * time.Minute},
		{"doomed-after-3x", 3, Odd{Every: 13 * time.Second, Until: 821 * time.Second}, 20 * time.Minute},
		{"doomed-two", 0, Odd{Callers: 2}, 0},
		{"doomed-two-5x-1s", attempts, Odd{Callers: 2, Every: 500 * time.Millisecond, RetryAfter: time.Second}, 0},
		{"doomed-five-5x", attempts, Odd{Callers: 5, Every: 2 * time.Second}, 0},
		{"doomed-eight", 0, Odd{Callers: 8}, 0},
		{"doomed-1x", 1, Odd{Every: 500 * time.Millisecond}, 0},
	} {
		v.odd.Callers = max(1, v.odd.Callers)
		about := "each call of one caller is throttled whatever the rate is"
		if n := v.odd.Callers; n > 1 {
			about = fmt.Sprintf("each call of %d callers is throttled whatever the rate is", n)
		}
		if after := v.odd.RetryAfter; after > 0 {
			about += fmt.Sprintf(", with a Retry-After of %v", after)
		}
		if v.attempts > 0 {
			about += fmt.Sprintf("; calls are given up after %d attempts", v.attempts)
		}
		if v.rest > 0 {
			about += fmt.Sprintf("; there are none after %s", short(v.odd.Until))
		}
		v.odd.Refused = true
		list = append(list, &Scenario{
			Name: v.name, About: about, Server: plenty(), Attempts: v.attempts, Odd: v.odd,
			Processes: 1, Callers: 5, Every: 500 * time.Millisecond, Latency: 20 * time.Millisecond, Duration: 10*time.Minute + v.rest,
		})
	}
	return list
}

// newcomers is one more process that joins others that have settled.
func newcomers() []*Scenario {
	var list []*Scenario
	for _, settled := range []int{1, 4} {
		at := func(name, limit string, s server.Spec, late time.Duration) {
			list = append(list, &Scenario{
				Name:      fmt.Sprintf("newcomer-%d@%s", settled, name),
				About:     fmt.Sprintf("one more process joins %d after %s, at %s", settled, short(late), limit),
				Server:    s,
				Processes: settled + 1, Callers: 5, Latency: 60 * time.Millisecond, Jitter: 1. / 3, Duration: 11 * time.Minute, Late: late,
			})
		}
		for _, depth := range []float64{1, 2, 3, 5, 10} {
			at(fmt.Sprint(depth), fmt.Sprintf("10 a second and a bucket of %g", depth), server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: depth}, 4*time.Minute)
		}
		at("600/min", "600 a minute, with the limit, what is left and until when",
			server.Spec{Kind: server.FixedWindow, Rate: server.Constant(10), Window: time.Minute, Signal: server.Remaining | server.ResetSeconds}, 250*time.Second)
		at("any-600/min", "600 in any minute, with Retry-After in whole seconds",
			server.Spec{Kind: server.SlidingWindow, Rate: server.Constant(10), Window: time.Minute, Signal: server.RetryAfter | server.WholeSeconds}, 4*time.Minute)
	}
	return append(list, &Scenario{
		Name:      "newcomer-1@heroku",
		About:     "one more process joins 1 after 1h10m, at Heroku's bucket of 4,500 that refills in an hour and tells what is left",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(4500. / 3600), Burst: 4500, Signal: server.Remaining | server.NoLimit},
		Processes: 2, Callers: 5, Latency: 60 * time.Millisecond, Duration: 3 * time.Hour, Late: 70 * time.Minute,
	})
}

// crowds is processes that begin together, at limits that close on all of them at once or change.
func crowds() []*Scenario {
	var list []*Scenario
	for _, n := range []int{3, 10} {
		for _, depth := range []float64{1, 3} {
			list = append(list, &Scenario{
				Name:      fmt.Sprintf("together-%d@%g", n, depth),
				About:     fmt.Sprintf("%d processes begin together at 10 a second and a bucket of %g", n, depth),
				Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: depth},
				Processes: n, Callers: 5, Latency: 60 * time.Millisecond, Jitter: 1. / 3, Duration: 5 * time.Minute,
			})
		}
	}
	for _, v := range []struct{ perMinute, processes int }{{600, 3}, {1000, 5}} {
		list = append(list, &Scenario{
			Name:      fmt.Sprintf("silent-%d/min-x%d", v.perMinute, v.processes),
			About:     fmt.Sprintf("%d in each minute for %d processes, and the server tells nothing", v.perMinute, v.processes),
			Server:    server.Spec{Kind: server.FixedWindow, Rate: server.Constant(float64(v.perMinute) / 60), Window: time.Minute},
			Processes: v.processes, Callers: 10, Latency: 100 * time.Millisecond, Jitter: 1. / 3, Duration: 20 * time.Minute,
		})
	}
	return append(list, &Scenario{
		Name:  "two-windows",
		About: "1,000 a minute and 50 a second at once, with an exact Retry-After",
		Server: server.Spec{Kind: server.FixedWindow, Rate: server.Constant(1000. / 60), Window: time.Minute, Signal: server.RetryAfter,
			And: []server.Spec{{Kind: server.FixedWindow, Rate: server.Constant(50), Window: time.Second}}},
		Processes: 3, Callers: 20, Latency: 50 * time.Millisecond, Duration: 10 * time.Minute,
	}, &Scenario{
		Name:  "secondary-900/min",
		About: "as GitHub's secondary limits: 900 a minute and 100 at once, answers of a second, and a Retry-After of 60 s whatever is true",
		Server: server.Spec{Kind: server.FixedWindow, Rate: server.Constant(15), Window: time.Minute, Work: time.Second, Says: time.Minute,
			And: []server.Spec{{Kind: server.Concurrency, Burst: 100, Work: time.Second}}},
		Processes: 3, Callers: 40, Latency: 100 * time.Millisecond, Duration: 15 * time.Minute,
	}, &Scenario{
		Name:  "left-20-400",
		About: "others leave 20 to 400 a second, up and down within 40 seconds",
		Server: server.Spec{Kind: server.Bucket, Burst: 1000,
			Rate: server.Wave(5*time.Second, 4*time.Minute, 20, 115, 210, 305, 400, 305, 210, 115)},
		Processes: 4, Callers: 20, Latency: 20 * time.Millisecond, Duration: 4 * time.Minute,
	}, &Scenario{
		Name:      "ten-30/s",
		About:     "ten processes share 30 a second",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(30), Burst: 30},
		Processes: 10, Callers: 4, Latency: 50 * time.Millisecond, Duration: 5 * time.Minute,
	})
}

// constants returns servers that send the same Retry-After at any time.
func constants() []*Scenario {
	var list []*Scenario
	for _, after := range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute} {
		for _, duration := range []time.Duration{10 * time.Minute, time.Hour} {
			list = append(list, &Scenario{
				Name:      fmt.Sprintf("says-%.0fs-%s", after.Seconds(), short(duration)),
				About:     fmt.Sprintf("100 a minute and a bucket of 5, and a Retry-After of %v whatever is true", after),
				Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(100. / 60), Burst: 5, Says: after},
				Processes: 1, Callers: 4, Latency: 100 * time.Millisecond, Duration: duration,
			})
		}
	}
	tier := func(perMinute float64) server.Spec {
		return server.Spec{Kind: server.FixedWindow, Rate: server.Constant(perMinute / 60), Window: time.Minute, Says: 30 * time.Second}
	}
	penalty := &Scenario{
		Name:      "penalty-30s",
		About:     "5 a second, and nothing for 30 s after one too many",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(5), Burst: 10, Penalty: 30 * time.Second},
		Processes: 1, Callers: 4, Latency: 100 * time.Millisecond, Duration: 10 * time.Minute,
	}
	told := *penalty
	told.Name, told.About = "penalty-30s-told", penalty.About+", as Retry-After tells"
	told.Server.Signal = server.RetryAfter | server.WholeSeconds
	list = append(list, penalty, &told)
	return append(list, &Scenario{
		Name:      "methods-20-50/min",
		About:     "as Slack: 20 a minute for one method and 50 for another, and a Retry-After of 30 s whatever is true",
		Server:    server.Spec{Methods: []server.Spec{tier(20), tier(50)}},
		Processes: 1, Callers: 4, Latency: 100 * time.Millisecond, Duration: 10 * time.Minute,
	})
}

// wholeSeconds is fast limits behind a Retry-After that is one second at least.
func wholeSeconds() []*Scenario {
	bucket := func(rate, burst float64) server.Spec {
		return server.Spec{Kind: server.Bucket, Rate: server.Constant(rate), Burst: burst, Signal: server.RetryAfter | server.WholeSeconds}
	}
	return []*Scenario{{
		Name:      "bulk-10000",
		About:     "10,000 items by 20 workers at 200 a second and a bucket of 50, with Retry-After in whole seconds",
		Server:    bucket(200, 50),
		Processes: 1, Callers: 20, Latency: 20 * time.Millisecond, Duration: 10 * time.Minute, Job: 10_000,
	}, {
		Name:      "seconds-200/s",
		About:     "four processes share 200 a second and a bucket of 10, with Retry-After in whole seconds",
		Server:    bucket(200, 10),
		Processes: 4, Callers: 8, Latency: 20 * time.Millisecond, Duration: 2 * time.Minute,
	}, {
		Name:      "seconds-20/s",
		About:     "20 a second and a bucket of 5, with Retry-After in whole seconds",
		Server:    bucket(20, 5),
		Processes: 1, Callers: 10, Latency: 20 * time.Millisecond, Duration: 5 * time.Minute,
	}}
}

// mute ends the names of scenarios whose server sends no headers. Without the ending it sends them.
const mute = "-mute"

// published returns limiters that people put in front of their servers, with their headers.
func published() []*Scenario {
	const headers = server.Remaining | server.ResetSeconds
	gcra := func(rate, burst float64) server.Spec {
		return server.Spec{Kind: server.Bucket, Rate: server.Constant(rate), Burst: burst + 1, Signal: headers | server.WholeSeconds}
	}
	window := func(kind server.Kind, n float64, d time.Duration) server.Spec {
		return server.Spec{Kind: kind, Rate: server.Constant(n / d.Seconds()), Window: d, Signal: headers}
	}
	httprate := func(n float64, d time.Duration) server.Spec {
		s := window(server.Counter, n, d)
		s.Says = d
		return s
	}
	laravel := func(n float64) server.Spec {
		s := window(server.FixedWindow, n, time.Minute)
		s.Signal = server.Remaining | server.RetryAfter | server.WholeSeconds
		return s
	}
	var list []*Scenario
	for _, v := range []struct {
		name, about string
		server      server.Spec
	}{
		{"gcra-50/s", "throttled/v2: 50 a second with a burst of 10", gcra(50, 10)},
		{"gcra-12/s", "throttled/v2: 12 a second with a burst of 6", gcra(12, 6)},
		{"httprate-600/min", "go-chi/httprate: 600 a minute", httprate(600, time.Minute)},
		{"httprate-6000/min", "go-chi/httprate: 6,000 a minute", httprate(6000, time.Minute)},
		{"httprate-50/5s", "go-chi/httprate: 50 in 5 seconds", httprate(50, 5*time.Second)},
		{"ulule-50/5s", "ulule/limiter: 50 in 5 seconds", window(server.FixedWindow, 50, 5*time.Second)},
		{"ulule-10/s", "ulule/limiter: 10 a second", window(server.FixedWindow, 10, time.Second)},
		{"laravel-60/min", "Laravel: 60 a minute, with Retry-After but no reset", laravel(60)},
		{"laravel-1000/min", "Laravel: 1,000 a minute, with Retry-After but no reset", laravel(1000)},
	} {
		duration := 20 * time.Minute
		if v.server.Rate.At(0) > 20 {
			duration /= 2 // it has as many calls
		}
		for _, workers := range []int{10, 1} {
			told := &Scenario{
				Name: fmt.Sprintf("%s-x%d", v.name, workers), About: v.about + ", with its headers", Server: v.server,
				Processes: 1, Callers: workers, Latency: 5 * time.Millisecond, Duration: duration, Warm: 2 * time.Minute,
			}
			not := *told
			not.Name, not.About = told.Name+mute, v.about+", without any headers"
			not.Server.Signal, not.Server.Says = 0, 0
			list = append(list, told, &not)
		}
	}
	return list
}

// Mutes returns the pairs of scenarios whose servers differ only in their headers: all, or none.
func Mutes() (pairs [][2]string) {
	for _, s := range published() {
		if told, ok := strings.CutSuffix(s.Name, mute); ok {
			pairs = append(pairs, [2]string{told, s.Name})
		}
	}
	return pairs
}

// jobs is work that a window has room for.
func jobs() []*Scenario {
	var list []*Scenario
	for _, v := range []struct {
		name     string
		job      int
		limit    float64
		window   time.Duration
		latency  time.Duration
		deadline time.Duration
	}{
		{"fits-90/15min", 90, 100, 15 * time.Minute, 10 * time.Millisecond, 0},
		{"fits-90/15min-10s", 90, 100, 15 * time.Minute, 10 * time.Millisecond, 10 * time.Second},
		{"fits-90/min", 90, 100, time.Minute, 10 * time.Millisecond, 0},
		{"fits-4000/h", 4000, 5000, time.Hour, 100 * time.Millisecond, 0},
		{"fits-4000/h-1s", 4000, 5000, time.Hour, 100 * time.Millisecond, time.Second},
	} {
		about := fmt.Sprintf("%d calls by 10 workers at %g in %s, with the limit, what is left and until when", v.job, v.limit, short(v.window))
		if v.deadline > 0 {
			about += fmt.Sprintf("; a call that takes %v is given up", v.deadline)
		}
		list = append(list, &Scenario{
			Name: v.name, About: about,
			Server:    server.Spec{Kind: server.FixedWindow, Rate: server.Constant(v.limit / v.window.Seconds()), Window: v.window, Signal: server.Remaining | server.Reset},
			Processes: 1, Callers: 10, Latency: v.latency, Duration: 2 * v.window, Job: v.job, Attempts: attempts, Deadline: v.deadline,
		})
	}
	return list
}

// long is the first minute of short calls beside long ones, where nothing is ever throttled.
func long() []*Scenario {
	var list []*Scenario
	for _, v := range []struct {
		name, about string
		odd         Odd
	}{
		{"long-polls", "100 polls of 20 s each beside 20 short calls a second; nothing is ever throttled", Odd{Callers: 100, Hold: 20 * time.Second}},
		{"streams", "200 streams that do not end beside 20 short calls a second; nothing is ever throttled", Odd{Callers: 200, Hold: time.Hour}},
	} {
		list = append(list, &Scenario{
			Name: v.name, About: v.about, Server: plenty(), Odd: v.odd,
			Processes: 1, Callers: 10, Every: 500 * time.Millisecond, Latency: 20 * time.Millisecond, Duration: time.Minute,
		})
	}
	return list
}

// byChance is a server that throttles a few requests whatever the rate is.
func byChance() []*Scenario {
	var list []*Scenario
	for _, of := range []float64{1000, 100, 50, 20, 5} {
		list = append(list, &Scenario{
			Name:      fmt.Sprintf("chance-1/%g", of),
			About:     fmt.Sprintf("100 a second, and one of %g requests is throttled at any rate, as by a busy shard", of),
			Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(100), Burst: 10, Chance: 1 / of},
			Processes: 1, Callers: 20, Latency: 50 * time.Millisecond, Duration: 20 * time.Minute,
		})
	}
	return append(list, &Scenario{
		Name: "chance-1/20-slow", About: "a language model: answers take five seconds, and one of 20 requests is throttled at any rate",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(4), Burst: 50, Chance: 1. / 20},
		Processes: 1, Callers: 20, Latency: 5 * time.Second, Duration: 30 * time.Minute,
	})
}

// closing is limiters of 50 in 5 seconds that tell nothing and close for all of the rest, and
// a limit that grows from very little.
func closing() []*Scenario {
	const d = 5 * time.Second
	spec := func(kind server.Kind) server.Spec {
		return server.Spec{Kind: kind, Rate: server.Constant(10), Window: d}
	}
	haproxy := spec(server.Counter)
	haproxy.CountsAll = true
	says := haproxy
	says.Says = 2 * time.Second
	modqos := spec(server.FixedWindow)
	modqos.Penalty = d
	var list []*Scenario
	for _, v := range []struct {
		name, about string
		server      server.Spec
		job         int
		attempts    int
	}{
		{"haproxy-250", "250 calls at HAProxy's 50 in 5 seconds, which counts what it refuses, too", haproxy, 250, attempts},
		{"rack-attack-250", "250 calls at rack-attack's 50 in 5 seconds", spec(server.FixedWindow), 250, attempts},
		{"mod_qos-250", "250 calls at mod_qos, which is closed for 5 seconds after more than 50 in 5 seconds", modqos, 250, attempts},
		{"haproxy-240", "240 calls at HAProxy's 50 in 5 seconds, which counts what it refuses, too", haproxy, 240, 0},
		{"haproxy-240-2s", "as haproxy-240, with a Retry-After of 2 s whatever is true", says, 240, 0},
		{"vsthrottle-240", "240 calls at Varnish's vsthrottle of 50 in 5 seconds", server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: 50, Whole: true}, 240, 0},
	} {
		list = append(list, &Scenario{
			Name: v.name, About: v.about, Server: v.server, Attempts: v.attempts, Job: v.job,
			Processes: 1, Callers: 10, Latency: time.Millisecond, Duration: 10 * time.Minute,
		})
	}
	return append(list, &Scenario{
		Name:  "grow-.15x2^n",
		About: "the limit doubles every eight minutes, from .15 to 2.4 a second, with an exact Retry-After",
		Server: server.Spec{Kind: server.Bucket, Burst: 1, Signal: server.RetryAfter,
			Rate: server.Doubling(.15, 8*time.Minute, 40*time.Minute)},
		Processes: 1, Callers: 1, Latency: 100 * time.Millisecond, Duration: 40 * time.Minute,
	})
}
