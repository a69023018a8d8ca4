package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress tells how far the runs are: on a terminal in place, a few times a
// second, elsewhere by a line every few seconds.
type progress struct {
	w        io.Writer
	terminal bool
	every    time.Duration
	last     time.Time
	part     string
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, every: 5 * time.Second, last: time.Now()}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.terminal, p.every = true, 200*time.Millisecond
		}
	}
	return p
}

// begin names the runs that follow.
func (p *progress) begin(part string) { p.part = part }

// report hears how many of the part's runs are done.
func (p *progress) report(done, all int) {
	now := time.Now()
	if now.Sub(p.last) < p.every {
		return
	}
	p.last = now
	p.print(fmt.Sprintf("%s scenarios: %d of %d runs", p.part, done, all))
	if !p.terminal {
		fmt.Fprintln(p.w)
	}
}

// end says the last word.
func (p *progress) end(text string) {
	p.print(text)
	fmt.Fprintln(p.w)
}

// print writes a text over the one before if it can.
func (p *progress) print(text string) {
	if p.terminal {
		text = "\r\x1b[K" + text
	}
	io.WriteString(p.w, text)
}
