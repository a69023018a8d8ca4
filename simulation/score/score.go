// Package score turns recordings into figures that can be compared.
package score

import (
	"math"
	"slices"
	"time"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
)

// Score is how a client did in one run, or in the middle of several. Figures
// that make no sense in a scenario are NaN.
type Score struct {
	Throttled float64 // % of requests: mean over callers; in random scenarios of all requests
	Total     float64 // % of all requests
	Use       float64 // share of the best possible successes, 0..1
	Wait      float64 // longest that a caller went without a success, or until its end, seconds
	Ratio     float64 // Wait relative to the mean time between a caller's turns
	Jain      float64 // fairness among callers while they were there; in random scenarios among processes

	Stdev         float64 // of the callers' request counts
	Clear         float64 // seconds until Scenario.Calls have succeeded
	Adapt         float64 // seconds until the rate fits after a change, mean over changes
	Amplification float64 // requests per call
	Failed        float64 // % of the calls that were given up
	Recovery      float64 // seconds after trouble until the server is used again

	Least float64 // the worst-off process's part of its fair share; with one process, the worst-off caller's
	First float64 // seconds until the process that joined last had its first success
	Half  float64 // seconds until it had half of its fair share over half a minute
	Slow  float64 // time for the calls that end the run, relative to the least possible

	// Relate works these out.
	Plain          float64 // time for the calls that end the run, relative to that of a plain client
	GenieThrottled float64 // points of throttled share above the genie's
	GenieUse       float64 // use above the genie's
}

// Of scores a run.
func Of(r *engine.Recording, best scenario.Best) Score {
	s := r.Scenario
	total := r.Totals()
	out := Score{
		Total:         percent(total.Throttled, total.Requests),
		Use:           use(r, best, total),
		Wait:          total.Longest.Seconds(),
		Jain:          jain(r, best),
		Stdev:         stdev(r),
		Clear:         math.NaN(),
		Amplification: float64(total.Requests) / float64(max(1, total.Successes)),
		Failed:        math.NaN(),
		Adapt:         adapt(r),
		Recovery:      recovery(r),
		Least:         least(r, best),
		Slow:          math.NaN(),
		Plain:         math.NaN(), GenieThrottled: math.NaN(), GenieUse: math.NaN(),
	}
	out.First, out.Half = newcomer(r, best)
	out.Throttled = out.Total
	if !s.Random {
		out.Throttled = perCaller(r)
	}
	out.Ratio = out.Wait / turn(s)
	if s.Finite() > 0 {
		out.Clear = r.Elapsed.Seconds()
		out.Slow = 1 / out.Use
	}
	if s.Arrivals > 0 {
		out.Amplification = float64(total.Requests) / float64(max(1, r.Calls))
	}
	if s.Arrivals > 0 || s.Attempts > 0 || s.Deadline > 0 {
		out.Failed = percent(r.Failed, r.Calls)
	}
	return out
}

func percent(part, all int) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(part) / float64(all)
}

// perCaller returns the mean of the throttled shares of all callers that sent a request.
func perCaller(r *engine.Recording) float64 {
	sum, n := 0.0, 0
	for _, c := range r.Callers {
		if c.Requests > 0 {
			sum += percent(c.Throttled, c.Requests)
			n++
		}
	}
	return sum / float64(max(1, n))
}

// use returns the successes as a share of the best possible. If the run ends with a number of
// calls, it is the least possible time divided by the time taken.
func use(r *engine.Recording, best scenario.Best, total engine.Caller) float64 {
	if n := r.Scenario.Finite(); n > 0 {
		if total.Successes < n {
			return float64(total.Successes) / float64(n) * best.Time.Seconds() / r.Elapsed.Seconds()
		}
		return min(1, best.Time.Seconds()/r.Elapsed.Seconds())
	}
	return min(1, float64(total.Successes)/max(1, best.Successes-float64(r.Rivals)))
}

// turn is how long a caller waits on average when all take turns, in seconds.
func turn(s *scenario.Scenario) float64 {
	latency := s.Cycle().Seconds()
	rate := s.Server.Rate.Between(0, s.Duration) / s.Duration.Seconds()
	if rate <= 0 {
		return latency
	}
	return max(float64(s.Processes*s.Callers)/rate, latency)
}

// jain is Jain's index of the callers' shares, in random scenarios of their sums by process.
func jain(r *engine.Recording, best scenario.Best) float64 {
	shares := Shares(r, best)
	if !r.Scenario.Random {
		return Jain(shares)
	}
	sums := make([]float64, r.Scenario.Processes)
	for i, share := range shares {
		sums[r.Callers[i].Process] += share
	}
	return Jain(sums)
}

// Shares returns the callers' successes, relative to an equal share for the time in which each was
// present.
func Shares(r *engine.Recording, best scenario.Best) []float64 {
	all := 0.0
	for _, fair := range best.Fair {
		all += fair
	}
	got := float64(max(1, r.Totals().Successes))
	callers := float64(len(r.Callers)) / float64(len(best.Fair)) // in each process
	shares := make([]float64, len(r.Callers))
	for i := range r.Callers {
		c := &r.Callers[i]
		if fair := best.Fair[c.Process]; fair > 0 {
			shares[i] = float64(c.Successes) / (got * fair / all / callers)
		}
	}
	return shares
}

// Jain is Jain's index of fairness: 1 if all shares are the same, or there is nothing
// to share, 1/n if one got all.
func Jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// least returns the worst-off process's part of its fair share of the best possible. With one
// process, it is the worst-off caller's part.
func least(r *engine.Recording, best scenario.Best) float64 {
	parts := len(best.Fair)
	if parts == 1 {
		parts = len(r.Callers)
	}
	got := make([]int, parts)
	for i := range r.Callers {
		got[i*parts/len(r.Callers)] += r.Callers[i].Successes
	}
	all := 0.0
	for _, fair := range best.Fair {
		all += fair
	}
	least := math.NaN()
	for i, n := range got {
		fair := best.Fair[i*len(best.Fair)/parts] / all * (best.Successes - float64(r.Rivals)) * float64(len(best.Fair)) / float64(parts)
		if share := float64(n) / fair; fair > 0 && !(share >= least) {
			least = share
		}
	}
	return least
}

// stretch is the time over which a newcomer is to have half of its fair share.
const stretch = 30 * time.Second

// newcomer is how long the process that joined last took to its first success, and to a stretch
// in which it has half of its fair share: the rest of the run if it never does.
func newcomer(r *engine.Recording, best scenario.Best) (first, half float64) {
	last := r.Scenario.Processes - 1
	here := r.Scenario.Present(last)
	rest := (here.To - here.From).Seconds()
	if !r.Scenario.Joins() {
		return math.NaN(), math.NaN()
	}
	need := max(1, int(math.Ceil(best.Fair[last]/rest*stretch.Seconds()/2)))
	first, half = rest, rest
	if len(r.Newcomer) > 0 {
		first = (r.Newcomer[0] - here.From).Seconds()
	}
	for i := need - 1; i < len(r.Newcomer); i++ {
		if at := r.Newcomer[i]; at-r.Newcomer[i-need+1] <= stretch {
			half = max(0, at-stretch-here.From).Seconds()
			break
		}
	}
	return first, half
}

// stdev is the sample standard deviation of the callers' request counts.
func stdev(r *engine.Recording) float64 {
	n := float64(len(r.Callers))
	if n < 2 {
		return 0
	}
	mean := float64(r.Totals().Requests) / n
	sum := 0.0
	for i := range r.Callers {
		d := float64(r.Callers[i].Requests) - mean
		sum += d * d
	}
	return math.Sqrt(sum / (n - 1))
}

// near is how close to the limit a rate has to be to fit.
const near = .2

// wanted is how many calls a second there are at most, if none is held back.
func wanted(s *scenario.Scenario) float64 {
	if s.Arrivals > 0 {
		return s.Arrivals
	}
	return float64(s.Processes*s.Callers) / s.Cycle().Seconds()
}

// adapt returns the mean time, over the changes of the server's rate, until the successes fit the
// new rate, or the demand if that is less.
func adapt(r *engine.Recording) float64 {
	s := r.Scenario
	changes := s.Server.Rate.Changes(s.Duration)
	if len(changes) == 0 || s.Finite() > 0 {
		return math.NaN()
	}
	sum := 0.0
	for i, at := range changes {
		end := s.Duration
		if i+1 < len(changes) {
			end = changes[i+1]
		}
		limit := min(s.Server.Rate.At(at), wanted(s))
		sum += settled(r, at, end, func(rate float64) bool {
			return math.Abs(rate/limit-1) <= near
		}, limit).Seconds()
	}
	return sum / float64(len(changes))
}

// recovery returns the time after trouble until successes come at 0.8 of the possible rate, or the
// whole rest of the run if they never do. For callers that call now and then it is 0.9 of their
// calls. In an open loop, where a queue may fall back, successes have to stay there.
func recovery(r *engine.Recording) float64 {
	s := r.Scenario
	span, ok := s.Trouble()
	if !ok {
		return math.NaN()
	}
	goal := min(s.Server.Rate.At(span.To), wanted(s))
	if s.Arrivals == 0 {
		part := 1 - near
		if s.Every > 0 {
			part = .9
		}
		return settled(r, span.To, s.Duration, func(rate float64) bool {
			return rate >= part*goal
		}, goal).Seconds()
	}
	over := max(1, int(5*time.Second/r.Width))
	first, last := int((span.To+r.Width-1)/r.Width), int(s.Duration/r.Width)
	back := span.To
	for i := first; i+over <= min(last, len(r.Bins)); i++ {
		sum := 0
		for _, b := range r.Bins[i : i+over] {
			sum += int(b.Successes)
		}
		if float64(sum)/float64(over)/r.Width.Seconds() < (1-near)*goal {
			back = time.Duration(i+over) * r.Width
		}
	}
	return (back - span.To).Seconds()
}

// settled is how long after from it takes until the rate of successes, over
// about twenty of them at the rate of goal, is good: to the accuracy of the bins,
// counted from the first that begins then or later.
func settled(r *engine.Recording, from, end time.Duration, good func(rate float64) bool, goal float64) time.Duration {
	over := max(2, int(math.Ceil(20/goal/r.Width.Seconds())))
	first := int((from + r.Width - 1) / r.Width)
	sum := 0
	for i := first; i < len(r.Bins) && time.Duration(i+1)*r.Width <= end; i++ {
		sum += int(r.Bins[i].Successes)
		if i-over >= first {
			sum -= int(r.Bins[i-over].Successes)
		}
		if i-first+1 >= over && good(float64(sum)/float64(over)/r.Width.Seconds()) {
			return time.Duration(i+1-over-first) * r.Width
		}
	}
	return end - from
}

// Median is the middle of the values, NaN ones left out.
func Median(values []float64) float64 {
	v := sorted(values)
	if len(v) == 0 {
		return math.NaN()
	}
	m := len(v) / 2
	if len(v)%2 == 1 {
		return v[m]
	}
	return (v[m-1] + v[m]) / 2
}

// ninth is the value that nine of ten do not exceed.
func ninth(values []float64) float64 {
	v := sorted(values)
	if len(v) == 0 {
		return math.NaN()
	}
	return v[(9*len(v)+9)/10-1]
}

// sorted are the values, NaN ones left out.
func sorted(values []float64) []float64 {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(v)
	return v
}
