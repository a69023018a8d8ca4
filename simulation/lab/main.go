package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
	"github.com/a7df5faa/cruise/simulation/server"
)

const ms = time.Millisecond

type row struct {
	s   *scenario.Scenario
	new bool // newcomer: last process
}

func bucket(rate, burst float64, sig server.Signal) server.Spec {
	return server.Spec{Kind: server.Bucket, Rate: server.Constant(rate), Burst: burst, Signal: sig}
}

func rows() []row {
	var l []row
	add := func(name string, spec server.Spec, procs, callers int, lat, dur time.Duration, f func(*scenario.Scenario)) {
		s := &scenario.Scenario{Name: name, Server: spec, Processes: procs, Callers: callers, Latency: lat, Jitter: .1, Duration: dur}
		if f != nil {
			f(s)
		}
		l = append(l, row{s, s.Join > 0})
	}
	const sec = server.RetryAfter | server.WholeSeconds
	for _, d := range []float64{1, 2, 3, 5, 10} {
		add(fmt.Sprintf("b1-%g", d), bucket(10, d, 0), 2, 5, 60*ms, 11*time.Minute, func(s *scenario.Scenario) { s.Join = 4 * time.Minute })
	}
	for _, d := range []float64{1, 2, 3} {
		add(fmt.Sprintf("b1s-%g", d), bucket(10, d, 0), 5, 5, 60*ms, 21*time.Minute, func(s *scenario.Scenario) { s.Join = 4 * time.Minute })
	}
	for _, p := range []int{3, 10} {
		for _, d := range []float64{1, 3} {
			add(fmt.Sprintf("c%d-%g", p, d), bucket(10, d, 0), p, 5, 60*ms, 5*time.Minute, nil)
		}
	}
	add("c-ten30", bucket(30, 30, 0), 10, 4, 60*ms, 10*time.Minute, nil)
	w := bucket(0, 1000, 0)
	w.Rate = server.Wave(20*time.Second, 10*time.Minute, 980, 600, 980, 600)
	w.Rate = nil
	for t := time.Duration(0); t < 5*time.Minute; t += 2 * time.Second {
		w.Rate = append(w.Rate, server.Step{At: t, Rate: 210 + 190*math.Sin(2*math.Pi*t.Seconds()/40)})
	}
	w.Burst = 50
	add("c-wave", w, 4, 10, 30*ms, 5*time.Minute, nil)
	add("c-10x1", server.Spec{Kind: server.Bucket, Rate: server.Constant(1.25), Burst: 4500, Empty: true}, 10, 1, 165*ms, 30*time.Minute, nil)
	for _, ra := range []int{10, 30, 60} {
		for _, dur := range []int{10, 60} {
			sp := bucket(100./60, 5, sec)
			sp.Says = time.Duration(ra) * time.Second
			add(fmt.Sprintf("d-%ds-%dm", ra, dur), sp, 1, 4, 100*ms, time.Duration(dur)*time.Minute, nil)
		}
	}
	sp := bucket(5, 5, 0)
	sp.Penalty = 30 * time.Second
	add("d-pen", sp, 1, 4, 100*ms, 10*time.Minute, nil)
	sp.Signal = sec
	add("d-pen-ra", sp, 1, 4, 100*ms, 10*time.Minute, nil)
	sp = bucket(20./60, 5, sec)
	sp.Says = 30 * time.Second
	add("d-slack20", sp, 1, 4, 100*ms, 10*time.Minute, nil)
	add("e-10000", bucket(200, 50, sec), 1, 20, 20*ms, 10*time.Minute, func(s *scenario.Scenario) { s.Calls = 10000 })
	add("e-200x4", bucket(200, 10, sec), 4, 20, 40*ms, 5*time.Minute, nil)
	add("e-20", bucket(20, 5, sec), 1, 10, 60*ms, 5*time.Minute, nil)
	add("f-ulule50/5", server.Spec{Kind: server.FixedWindow, Rate: server.Constant(10), Window: 5 * time.Second, Signal: server.Remaining | server.Reset | sec}, 1, 10, 50*ms, 20*time.Minute, nil)
	add("f-ulule50/5-no", server.Spec{Kind: server.FixedWindow, Rate: server.Constant(10), Window: 5 * time.Second}, 1, 10, 50*ms, 20*time.Minute, nil)
	add("f-ulule10/1", server.Spec{Kind: server.FixedWindow, Rate: server.Constant(10), Window: 1 * time.Second, Signal: server.Remaining | server.Reset | sec}, 1, 10, 50*ms, 20*time.Minute, nil)
	add("f-ulule10/1-no", server.Spec{Kind: server.FixedWindow, Rate: server.Constant(10), Window: 1 * time.Second}, 1, 10, 50*ms, 20*time.Minute, nil)
	add("f-bucketreset", bucket(50, 10, server.Remaining|server.Reset|sec), 1, 10, 50*ms, 20*time.Minute, nil)
	add("f-bucketreset-no", bucket(50, 10, 0), 1, 10, 50*ms, 20*time.Minute, nil)
	add("g-90/15m", server.Spec{Kind: server.FixedWindow, Rate: server.Constant(100. / 900), Window: 15 * time.Minute, Signal: server.Remaining | server.Reset}, 1, 10, 10*ms, time.Hour, func(s *scenario.Scenario) { s.Calls = 90 })
	add("g-4000/h", server.Spec{Kind: server.FixedWindow, Rate: server.Constant(5000. / 3600), Window: time.Hour, Signal: server.Remaining | server.Reset}, 1, 10, 100*ms, 2*time.Hour, func(s *scenario.Scenario) { s.Calls = 4000 })
	add("g-github2", server.Spec{Kind: server.FixedWindow, Rate: server.Constant(5000. / 3600), Window: time.Hour, Signal: server.Remaining | server.Reset}, 2, 8, 120*ms, 2*time.Hour, nil)
	j := bucket(.15, 5, server.RetryAfter)
	j.Rate = server.Doubling(.15, 8*time.Minute, 40*time.Minute)
	add("j-slow", j, 1, 4, 100*ms, 40*time.Minute, nil)
	add("k-50/5", server.Spec{Kind: server.SlidingWindow, Rate: server.Constant(10), Window: 5 * time.Second}, 1, 10, 20*ms, 5*time.Minute, func(s *scenario.Scenario) { s.Calls = 240 })
	k := server.Spec{Kind: server.SlidingWindow, Rate: server.Constant(10), Window: 5 * time.Second, Signal: sec, Says: 2 * time.Second}
	add("k-50/5-ra2", k, 1, 10, 20*ms, 5*time.Minute, func(s *scenario.Scenario) { s.Calls = 240 })
	return l
}

// wrap records successes of each process.
type wrap struct {
	mu sync.Mutex
	at [][]time.Duration
}

func (w *wrap) client(c engine.Client) engine.Client {
	inner := c.New
	c.New = func(e engine.Env) engine.Process {
		p := inner(e)
		return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
			return p.Call(ctx, func(ctx context.Context) (server.Quota, error) {
				q, err := attempt(ctx)
				if err == nil {
					w.mu.Lock()
					w.at[e.Process] = append(w.at[e.Process], time.Since(e.Start))
					w.mu.Unlock()
				}
				return q, err
			})
		})
	}
	return c
}

func main() {
	seeds := flag.Int("seeds", 10, "")
	only := flag.String("only", "", "")
	name := flag.String("client", "cruise", "")
	verbose := flag.Bool("v", false, "")
	flag.Parse()
	c, err := client.Find(*name)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%-18s %7s %6s %6s %6s %7s %6s %8s %8s %8s\n", "row", "thr%", "use", "jainP", "least", "wait", "clear", "first", "half", "half90")
	type res struct {
		i                                               int
		thr, use, jain, least, wait, clear, first, half float64
	}
	rs := rows()
	var jobs []res
	for i, r := range rs {
		match := *only == ""
		for _, p := range strings.Split(*only, ",") {
			match = match || strings.HasPrefix(r.s.Name, p)
		}
		if match {
			for range *seeds {
				jobs = append(jobs, res{i: i})
			}
		}
	}
	var wg sync.WaitGroup
	next := make(chan int)
	for range 2 {
		wg.Go(func() {
			for n := range next {
				jb := &jobs[n]
				r := rs[jb.i]
				s := r.s
				w := &wrap{at: make([][]time.Duration, s.Processes)}
				rec := engine.Run(s, w.client(c), uint64(n)%uint64(*seeds)+1)
				best := s.Ideal()
				sc := score.Of(rec, best)
				jb.thr, jb.use, jb.wait, jb.clear = sc.Total, sc.Use, sc.Wait, sc.Clear
				var sum, sq float64
				jb.least = math.Inf(1)
				got := make([]float64, s.Processes)
				for _, cl := range rec.Callers {
					got[cl.Process] += float64(cl.Successes)
				}
				for p, g := range got {
					x := g / best.Fair[p]
					sum += x
					sq += x * x
					jb.least = min(jb.least, x)
				}
				jb.jain = sum * sum / float64(s.Processes) / sq
				jb.first, jb.half = math.NaN(), math.NaN()
				if r.new {
					// of each joiner: worst
					p := s.Processes - 1
					joined := s.Present(p).From
					end := s.Duration
					jb.first, jb.half = (end - joined).Seconds(), (end - joined).Seconds()
					at := w.at[p]
					if len(at) > 0 {
						jb.first = (at[0] - joined).Seconds()
					}
					need := int(s.Server.Rate.At(0) / float64(s.Processes) * 30 / 2)
					for k := range at {
						if k >= need-1 && at[k]-at[k-need+1] <= 30*time.Second {
							jb.half = (at[k] - joined).Seconds()
							break
						}
					}
				}
				if *verbose {
					fmt.Println(s.Name, got, rec.Totals())
				}
			}
		})
	}
	for n := range jobs {
		next <- n
	}
	close(next)
	wg.Wait()
	for i := range rs {
		var v [8][]float64
		for _, jb := range jobs {
			if jb.i == i {
				for k, x := range []float64{jb.thr, jb.use, jb.jain, jb.least, jb.wait, jb.clear, jb.first, jb.half} {
					v[k] = append(v[k], x)
				}
			}
		}
		if len(v[0]) == 0 {
			continue
		}
		for k := range v {
			slices.Sort(v[k])
		}
		m := func(k int) float64 { return v[k][len(v[k])/2] }
		fmt.Printf("%-18s %7.2f %6.3f %6.3f %6.2f %7.1f %6.1f %8.1f %8.1f %8.1f\n", rs[i].s.Name, m(0), m(1), m(2), v[3][0], m(4), m(5), m(6), m(7), v[7][len(v[7])*9/10])
	}
}
