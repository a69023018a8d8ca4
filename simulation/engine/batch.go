package engine

import (
	"runtime"
	"sync"

	"github.com/a7df5faa/cruise/simulation/scenario"
)

// Job is one run to be made.
type Job struct {
	Scenario *scenario.Scenario
	Client   Client
	Seed     uint64
}

// Batch makes all runs, as many at a time as there are cores, and hands each
// recording to done with the index of its job. done is called for one
// recording at a time, in no particular order.
func Batch(jobs []Job, done func(i int, rec *Recording)) {
	next := make(chan int)
	var mu sync.Mutex // for done
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		wg.Go(func() {
			for i := range next {
				rec := Run(jobs[i].Scenario, jobs[i].Client, jobs[i].Seed)
				mu.Lock()
				done(i, rec)
				mu.Unlock()
			}
		})
	}
	for i := range jobs {
		next <- i
	}
	close(next)
	wg.Wait()
}
