package main

import (
	"go/parser"
	"go/token"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

// A law that moved on takes its table of changes with it.
func TestEveryChangeFitsTheLaw(t *testing.T) {
	law, err := read()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range slices.Concat(changes, curve) {
		if seen[c.what] || len(c.edits) == 0 {
			t.Errorf("%q is there twice, or changes nothing", c.what)
		}
		seen[c.what] = true
		changed, err := law.with(c)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		for name, text := range changed {
			if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil || text == law[name] {
				t.Errorf("%s: does not parse, or is what it was: %v", c.what, err)
			}
		}
	}
}

// In a small set of random scenarios it may be that no limit can be kept.
func TestFiguresOfNoScenarioAreLeftOut(t *testing.T) {
	slow, err := scenario.Find("heroku-10x1")
	if err != nil {
		t.Fatal(err)
	}
	p := played{board: board.New(clients(), []score.Result{{Scenario: slow, Client: "cruise", Runs: 1}})}
	row := "| 0 | none | " + p.figures(played{board: p.board}) + " |"
	if got, want := strings.Count(row, "|"), strings.Count(head, "|"); got != want || strings.Contains(row, "NaN") {
		t.Errorf("%d instead of %d columns, or no numbers: %s", got, want, row)
	}
	var out strings.Builder
	byCalls(&out, p)
	if strings.Contains(out.String(), "NaN") {
		t.Error(out.String())
	}
}

func TestDifferencesAreOfTheSameScenarios(t *testing.T) {
	play := func(throttled ...float64) played {
		var results []score.Result
		for i, v := range throttled {
			s := scenario.Random(uint64(i + 1))
			results = append(results,
				score.Result{Scenario: s, Client: "cruise", Median: score.Score{Throttled: v, Ratio: 1 + v}},
				score.Result{Scenario: s, Client: client.Pacer().Name})
		}
		return played{board: board.New(clients(), results)}
	}
	base := play(1, 5, 9)
	if got := base.against(base); got != "" {
		t.Errorf("the law differs from itself: %s", got)
	}
	if got, want := play(2, 5, 11).against(base), "+1.00 ± 0.58, +19.6 ± 11.7, +0.000 ± 0.000, +0.000 ± 0.000"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := play(2).against(play(1)), "+0.00 ± 0.00, +0.0 ± 0.0, +0.000 ± 0.000, +0.000 ± 0.000"; got != want {
		t.Errorf("of one scenario: %s, want %s", got, want)
	}
}

func TestAChangeIsComparedWithTheLawAsItIs(t *testing.T) {
	if calm.Raced {
		t.Skip("it takes long, and others race as much")
	}
	var out strings.Builder
	if err := (settings{seeds: 1, random: 4, from: 5001}).table(&out, "the ceiling is the rate, whatever"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("want the head, the law and one change:\n%s", out.String())
	}
	law, changed := strings.Split(lines[2], "|"), strings.Split(lines[3], "|")
	differs := slices.Index(strings.Split(head, "|"), " more throttled, longer wait in %, fairer, more use ")
	if cell := strings.TrimSpace(law[differs]); cell != "" {
		t.Errorf("the law differs from itself: %s", cell)
	}
	if cell := changed[differs]; !strings.Contains(cell, "±") || strings.HasPrefix(cell, " +0.00 ± 0.00") {
		t.Errorf("the change differs by %q:\n%s", cell, out.String())
	}
}

// So the figures before and after an edit can be compared.
func TestTheLawIsPlayedAloneWhereNoChangeIsWanted(t *testing.T) {
	var out strings.Builder
	if err := (settings{seeds: 1, random: 1, from: 5001}).table(&out, "none"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[2], "| 0 | none | ") {
		t.Errorf("want the head and the law:\n%s", out.String())
	}
}

func TestAnInterruptLeavesNoFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no program can interrupt itself there")
	}
	law, err := read()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	files := func() int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := settings{seeds: 1, random: 1, from: 1}.play(law, none, nil)
		ended <- err
	}()
	for files() == 0 && len(ended) == 0 {
		time.Sleep(time.Millisecond)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	if n := files(); n > 0 {
		t.Errorf("%d files are left", n)
	}
}

func TestWordsThatNoChangeHasAreRefused(t *testing.T) {
	s := settings{seeds: 1, random: 1, from: 5001}
	if err := s.table(io.Discard, "nonsense"); err == nil || err.Error() != "-only nonsense: no change has such words" {
		t.Errorf("%v", err)
	}
}
