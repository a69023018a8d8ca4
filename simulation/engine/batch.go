package engine

import (
	"runtime"
	"sync"

	"github.com/a7df5faa/cruise/internal/chance"
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
// recording at a time, in no particular order. With one core, GOMAXPROCS=1, the
// jitter of cruise follows from the seed of each run too, and the run repeats.
func Batch(jobs []Job, done func(i int, rec *Recording)) {
	next := make(chan int)
	var mu sync.Mutex // for done
	var wg sync.WaitGroup
	alone := runtime.GOMAXPROCS(0) == 1
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		wg.Go(func() {
			for i := range next {
				restore := func() {}
				if alone {
					restore = chance.Seed(jobs[i].Seed)
				}
				rec := Run(jobs[i].Scenario, jobs[i].Client, jobs[i].Seed)
				restore()
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
