package scenario

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/a7df5faa/cruise/simulation/server"
)

// dynamics are the ways in which a random scenario changes over its run.
var dynamics = []string{"const", "step", "square", "grow", "join", "leave", "outage", "greedy", "bursts"}

// Random draws the scenario of a seed. The same seed always gives the same
// scenario; seeds that a control law was tuned on say nothing about it.
func Random(seed uint64) *Scenario {
	d := drawing{rand.New(rand.NewPCG(seed, 0x5ce7a210))}
	s := &Scenario{Random: true}

	rate := d.log(.05, 2000)
	s.Server.Kind = [...]server.Kind{server.Bucket, server.Bucket, server.FixedWindow, server.SlidingWindow}[d.IntN(4)]
	s.Server.Empty = d.IntN(2) == 0
	whole := false
	switch d.IntN(4) {
	case 1:
		s.Server.Signal = server.RetryAfter
	case 2:
		s.Server.Signal = server.RetryAfter
		if whole = rate <= 50; whole {
			s.Server.Signal |= server.WholeSeconds
		}
	case 3:
		s.Server.Signal = server.Remaining
	}
	how := dynamics[d.IntN(len(dynamics))]

	s.Latency = seconds(d.log(.005, 2))
	s.Jitter = d.uniform(0, .5)
	s.Processes = d.whole(1, 16)
	if (how == "join" || how == "leave") && s.Processes == 1 {
		s.Processes = 2 + d.IntN(7)
	}
	s.Callers = d.whole(1, 40)

	n := max(d.log(300, 5000), 100*float64(s.Processes))
	s.Duration = max(10*time.Second, seconds(n/rate))
	if whole {
		s.Duration = max(s.Duration, 30*time.Second)
	}
	n = rate * s.Duration.Seconds() // short runs at high rates have more

	s.Server.Rate = server.Constant(rate)
	d.dynamics(s, how, rate)
	d.demand(s, n)
	d.depth(s, rate, n)

	s.Name = fmt.Sprintf("random-%d", seed)
	s.About = describe(s, how, rate)
	return s
}

// Randoms are n random scenarios, from that of the seed on.
func Randoms(from uint64, n int) []*Scenario {
	list := make([]*Scenario, n)
	for i := range list {
		list[i] = Random(from + uint64(i))
	}
	return list
}

// drawing draws the numbers of a scenario.
type drawing struct{ *rand.Rand }

func (d drawing) uniform(a, b float64) float64 { return a + (b-a)*d.Float64() }

func (d drawing) log(a, b float64) float64 { return a * math.Pow(b/a, d.Float64()) }

// whole draws a whole number from a to b, as likely in each octave.
func (d drawing) whole(a, b int) int {
	return min(b, int(d.log(float64(a), float64(b+1))))
}

// dynamics makes the scenario change.
func (d drawing) dynamics(s *Scenario, how string, rate float64) {
	t := s.Duration
	switch how {
	case "step":
		low := rate / d.uniform(2, 10)
		s.Server.Rate = server.Schedule{{At: 0, Rate: rate}, {At: t / 3, Rate: low}, {At: 2 * t / 3, Rate: rate}}
	case "square":
		f := math.Sqrt(d.log(1.3, 4))
		period := time.Duration(d.log(1./20, 1./3) * float64(t))
		s.Server.Rate = server.Wave(period/2, t, rate*f, rate/f)
	case "grow":
		k := 1 + d.IntN(4)
		s.Server.Rate = server.Doubling(rate*math.Exp2(-float64(k)/2), t/time.Duration(k+1)+1, t)
	case "join":
		s.Join = time.Duration(.6 * float64(t) / float64(s.Processes))
	case "leave":
		s.Leave = time.Duration(.6 * float64(t) / float64(s.Processes))
	case "outage":
		s.Server.Down = []server.Span{{From: t * 2 / 5, To: t / 2}}
	case "greedy":
		s.Server.Greedy = rate * d.uniform(.3, .7)
	case "bursts":
		s.Duty = d.uniform(.3, .8)
		s.Period = time.Duration(d.log(1./20, 1./4) * float64(t))
	}
}

// demand bounds the number of callers by the server's rate. In most scenarios it makes sure that
// they want more than that rate.
func (d drawing) demand(s *Scenario, n float64) {
	most := max(1, int(n/10/float64(s.Processes)))
	s.Callers = min(s.Callers, most)
	want := d.uniform(1.5, 5) * s.Server.Rate.Highest(s.Duration)
	if d.Float64() >= .85 {
		return
	}
	procs := float64(s.Processes)
	if procs*float64(s.Callers)/s.Latency.Seconds() >= want {
		return
	}
	enough := math.Ceil(want * s.Latency.Seconds() / procs)
	s.Callers = max(s.Callers, int(min(enough, 40, float64(most))))
	s.Latency = min(s.Latency, max(2*time.Millisecond, seconds(procs*float64(s.Callers)/want)))
}

// depth draws the size of the bucket or the window.
func (d drawing) depth(s *Scenario, rate, n float64) {
	if s.Server.Kind == server.Bucket {
		s.Server.Burst = math.Floor(min(max(1, rate*d.log(1, 60)), n/3))
		return
	}
	q := math.Round(d.log(5, min(300, n/8)))
	s.Server.Window = seconds(q / rate)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// describe puts a random scenario into one sentence.
func describe(s *Scenario, how string, rate float64) string {
	size := fmt.Sprintf("of %.0f", s.Server.Burst)
	if s.Server.Window > 0 {
		size = fmt.Sprintf("of %.0f in %v", rate*s.Server.Window.Seconds(), s.Server.Window.Round(time.Millisecond))
	}
	start := "full"
	if s.Server.Empty {
		start = "empty"
	}
	return fmt.Sprintf("%s: %.3g/s, %s %s (%s at first), tells %s",
		how, rate, s.Server.Kind, size, start, Tells(s.Server.Signal))
}
