// Github shows an http.Client with a [cruisehttp.Transport] at an API with two limits: it reads
// all pages of a list from a server on this machine that limits like GitHub's REST API, with a
// primary limit in its X-RateLimit headers and a secondary one on bursts, without headers. The
// client is told neither.
//
//	go run ./examples/github
//	go run ./examples/github -pages 500 -workers 20
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/cruisehttp"
)

func main() {
	pages := flag.Int("pages", 150, "of the list")
	workers := flag.Int("workers", 8, "that read pages at the same time")
	flag.Parse()
	if err := check(*pages, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "github:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *pages, *workers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(pages, workers int) error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: all options are flags, see -h", flag.Arg(0))
	case pages < 1 || pages > 1_000_000:
		return fmt.Errorf("-pages %d: want 1 to 1000000", pages)
	case workers < 1 || workers > 1000:
		return fmt.Errorf("-workers %d: want 1 to 1000", workers)
	}
	return nil
}

func run(ctx context.Context, pages, workers int) error {
	api := &api{pages: pages}
	server := httptest.NewServer(api)
	defer server.Close()
	fmt.Printf("%d pages by %d workers; the server gives %d in %v, and no more than %d in %v\n",
		pages, workers, primary, primaryWindow, secondary, secondaryWindow)

	transport, err := cruisehttp.NewTransport()
	if err != nil {
		return err
	}
	l := &list{client: &http.Client{Transport: transport}, url: server.URL + "/repos/example/example/issues"}
	begin := time.Now()
	issues, err := l.all(ctx, workers)
	if err != nil {
		return err
	}
	fmt.Printf("%d issues in %.1f s; of %d requests the primary limit stopped %d, the secondary %d\n", issues,
		time.Since(begin).Seconds(), api.requests.Load(), api.byPrimary.Load(), api.bySecondary.Load())
	return nil
}

// A list is read page by page.
type list struct {
	client *http.Client
	url    string
	done   atomic.Int64 // pages
	left   atomic.Int64 // of the limit, as the server last said
}

// all reads all pages, the first one for the number of the others.
func (l *list) all(ctx context.Context, workers int) (issues int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n, last, err := l.page(ctx, 1)
	if err != nil {
		return 0, err
	}
	stop := l.show(last)
	defer stop()
	total := atomic.Int64{}
	total.Add(int64(n))
	next := atomic.Int64{}
	next.Store(1)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for p := int(next.Add(1)); p <= last; p = int(next.Add(1)) {
				n, _, err := l.page(ctx, p)
				if err != nil {
					cancel(fmt.Errorf("page %d: %w", p, err))
					return
				}
				total.Add(int64(n))
			}
		})
	}
	group.Wait()
	return total.Load(), context.Cause(ctx)
}

var lastPage = regexp.MustCompile(`page=(\d+)>; rel="last"`)

// page reads a page, and returns the number of its issues and of the last page.
func (l *list) page(ctx context.Context, number int) (issues, last int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+"?page="+strconv.Itoa(number), nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("status %s", resp.Status)
	}
	var page []struct{ Number int }
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return 0, 0, err
	}
	if m := lastPage.FindStringSubmatch(resp.Header.Get("Link")); m != nil {
		last, _ = strconv.Atoi(m[1])
	}
	if left, err := strconv.ParseInt(resp.Header.Get("X-RateLimit-Remaining"), 10, 64); err == nil {
		l.left.Store(left)
	}
	l.done.Add(1)
	return len(page), max(last, number), nil
}

// show draws a progress bar until it is told to stop: on a terminal in one line,
// else a line every two seconds.
func (l *list) show(last int) (stop func()) {
	every, end := 2*time.Second, "\n"
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		every, end = 100*time.Millisecond, "\r"
	}
	begin := time.Now()
	draw := func(end string) {
		const width = 40
		done := int(l.done.Load())
		filled := done * width / last
		fmt.Printf("[%s%s] %d/%d pages, %.1f/s, %d left of the limit  %s", strings.Repeat("#", filled), strings.Repeat(".", width-filled),
			done, last, float64(done)/time.Since(begin).Seconds(), l.left.Load(), end)
	}
	stopped, drawn := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(drawn)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				draw(end)
			case <-stopped:
				draw("\n")
				return
			}
		}
	}()
	return func() {
		close(stopped)
		<-drawn
	}
}
