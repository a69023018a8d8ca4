package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

// A side is one way of doing the work, and how far it is. It observes its
// Retrier.
type side struct {
	name    string
	make    func(counts, page cruise.Observer) (*cruise.Retrier, error)
	retrier *cruise.Retrier
	url     string

	mu        sync.Mutex // guards the fields below
	began     time.Time
	ended     time.Time // zero while it works
	done      int       // requests
	attempts  int
	throttled int           // of the attempts
	longest   time.Duration // that a request took
}

// Observe counts attempts.
func (s *side) Observe(_ context.Context, event cruise.Event) {
	if e, ok := event.(cruise.AttemptEnded); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.attempts++
		if e.Outcome == cruise.OutcomeThrottled {
			s.throttled++
		}
	}
}

func (s *side) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = time.Now()
}

func (s *side) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = time.Now()
}

func (s *side) finished(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	s.longest = max(s.longest, took)
}

// A report is how far a side is.
type report struct {
	took, longest             time.Duration
	done, attempts, throttled int
	limit                     rate.Limit // 0 without a limiter
	pause                     time.Duration
}

func (s *side) report() report {
	s.mu.Lock()
	r := report{longest: s.longest, done: s.done, attempts: s.attempts, throttled: s.throttled}
	switch {
	case !s.ended.IsZero():
		r.took = s.ended.Sub(s.began)
	case !s.began.IsZero():
		r.took = time.Since(s.began)
	}
	s.mu.Unlock()
	if limiter, ok := s.retrier.Limiter().(*cruise.AdaptiveLimiter); ok {
		stats := limiter.Stats()
		r.limit, r.pause = stats.Limit, stats.PauseLeft
	}
	return r
}

// rate is the limiter's rate in words.
func (r report) rate() string {
	switch r.limit {
	case 0:
		return "none"
	case rate.Inf:
		return "no limit"
	}
	return fmt.Sprintf("%.1f/s", float64(r.limit))
}

// share is how many of the attempts were throttled.
func (r report) share() string {
	return fmt.Sprintf("%.0f %%", 100*float64(r.throttled)/float64(max(1, r.attempts)))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// show shows how the work goes until done is closed: as a bar on a terminal,
// else as a line every second.
func show(w io.Writer, live bool, requests int, sides []*side, done <-chan struct{}) {
	every, line := time.Second, plainLine
	if live {
		every, line = 100*time.Millisecond, barLine
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-done:
			if live {
				fmt.Fprintln(w, line(requests, sides))
			}
			fmt.Fprintln(w)
			return
		}
		fmt.Fprint(w, line(requests, sides))
		if !live {
			fmt.Fprintln(w)
		}
	}
}

// barLine overwrites the line before. It fits in 80 columns.
func barLine(requests int, sides []*side) string {
	const width = 20
	r := sides[0].report()
	full := width * r.done / requests
	text := fmt.Sprintf("[%s%s] %d/%d  %s  %s throttled", strings.Repeat("#", full), strings.Repeat(".", width-full),
		r.done, requests, r.rate(), r.share())
	if r.pause > 0 {
		text += "  paused " + seconds(r.pause)
	}
	if len(sides) > 1 {
		text += fmt.Sprintf("  (plain: %d)", sides[1].report().done)
	}
	return fmt.Sprintf("\r%-79.79s", text)
}

func plainLine(requests int, sides []*side) string {
	r := sides[0].report()
	took := r.took
	text := fmt.Sprintf("%d/%d done, rate %s, %s throttled", r.done, requests, r.rate(), r.share())
	if r.pause > 0 {
		text += ", paused for " + seconds(r.pause)
	}
	if len(sides) > 1 {
		r := sides[1].report()
		took = max(took, r.took)
		text += fmt.Sprintf("; %s: %d done, %s throttled", sides[1].name, r.done, r.share())
	}
	return fmt.Sprintf("%7s  %s", seconds(took), text)
}

// printTable sums up. The longest wait is that of one request, from the first
// attempt to the answer.
func printTable(w io.Writer, requests int, sides []*side) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tdone\ttime\tsent\tthrottled\tlongest wait\tfinal rate")
	for _, s := range sides {
		r := s.report()
		fmt.Fprintf(table, "%s\t%d of %d\t%s\t%d\t%s\t%s\t%s\n",
			s.name, r.done, requests, seconds(r.took), r.attempts, r.share(), seconds(r.longest), r.rate())
	}
	_ = table.Flush()
}

// isTerminal reports whether f is a terminal, or at least a device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
