// Bulk shows a job with a progress bar, the time that is left, and a clean end on Ctrl-C: 8
// workers upload 600 items to a server on this machine that admits 40 a second and answers 429 to
// the rest. Throttled attempts do not count, so no item is lost. Ctrl-C stops the job at once and
// says how to go on with the other items.
//
//	go run ./examples/bulk
//	go run ./examples/bulk -items 2000 -workers 50
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

func main() {
	items := flag.Int("items", 600, "number of `items`")
	workers := flag.Int("workers", 8, "`number` of uploads at the same time")
	from := flag.Int("from", 0, "`number` of the first item")
	flag.Parse()
	if *workers < 1 || *from < 0 || *items <= *from {
		fmt.Fprintln(os.Stderr, "bulk: want a worker, and an item")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *from, *items, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "bulk:", err)
		os.Exit(1)
	}
}

// server takes 40 uploads a second, 40 at once, and refuses the rest.
func server(refused *atomic.Int64) *httptest.Server {
	limit := rate.NewLimiter(40, 40)
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !limit.Allow() {
			refused.Add(1)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
}

func run(ctx context.Context, from, items, workers int) error {
	var refused atomic.Int64
	api := server(&refused)
	defer api.Close()

	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(
		cruisehttp.WithRetrierOptions(cruise.WithUncountedThrottles()), // the end is that of ctx
	))}

	job := newJob(from, items)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for item, ok := job.next(ctx); ok; item, ok = job.next(ctx) {
				job.finished(item, upload(ctx, client, fmt.Sprintf("%s/items/%d", api.URL, item)))
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	job.show(ended)
	fmt.Printf("%d uploads were refused and sent again.\n", refused.Load())
	return job.result(ctx)
}

// upload puts one item. A PUT may be sent twice.
func upload(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader("content"))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// A job is which items are done.
type job struct {
	begun       time.Time
	from, items int

	mu     sync.Mutex // guards the fields below
	begins int        // the item that is begun next
	done   []bool     // by item
	count  int        // of the calls that are done
	failed []error
}

func newJob(from, items int) *job {
	return &job{begun: time.Now(), from: from, items: items, begins: from, done: make([]bool, items)}
}

// next is an item to work on, unless all are begun or ctx has ended.
func (j *job) next(ctx context.Context) (item int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ctx.Err() != nil || j.begins == j.items {
		return 0, false
	}
	j.begins++
	return j.begins - 1, true
}

func (j *job) finished(item int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err == nil:
		j.done[item] = true
		j.count++
	case !errors.Is(err, context.Canceled):
		j.failed = append(j.failed, fmt.Errorf("item %d: %w", item, err))
	}
}

// show draws the bar until the job has ended: in place on a terminal, else a line every 2 s.
func (j *job) show(ended <-chan struct{}) {
	every, before, after := 2*time.Second, "", "\n"
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		every, before, after = 200*time.Millisecond, "\r\033[K", ""
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Print(before, j.bar(), after)
		case <-ended:
			fmt.Print(before, j.bar(), "\n")
			return
		}
	}
}

// bar is such as [#####     ]  250/600  38.1/s  9s left.
func (j *job) bar() string {
	const width = 30
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.items - j.from
	full := width * j.count / all
	text := fmt.Sprintf("[%s%s] %4d/%d", strings.Repeat("#", full), strings.Repeat(" ", width-full), j.count, all)
	if j.count == 0 {
		return text
	}
	speed := float64(j.count) / time.Since(j.begun).Seconds()
	left := time.Duration(float64(all-j.count) / speed * float64(time.Second))
	return fmt.Sprintf("%s  %.1f/s  %v left", text, speed, left.Round(time.Second))
}

// result says how to go on, if there is anything left.
func (j *job) result(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.failed) > 0 {
		return errors.Join(j.failed...)
	}
	if ctx.Err() == nil {
		return nil
	}
	for item := j.from; item < j.items; item++ {
		if !j.done[item] {
			return fmt.Errorf("stopped; go on with -from %d", item)
		}
	}
	return nil
}
