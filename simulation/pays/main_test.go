package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a7df5faa/cruise/internal/calm"
)

// The README's table has the clients and servers of this command, and its place is found.
func TestTheReadmeHasTheTable(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs() {
		if !strings.Contains(string(text), " | "+j.About+" |") {
			t.Errorf("the README's table has no server %q", j.About)
		}
	}
	for _, c := range contenders() {
		if !strings.Contains(string(text), "\n| "+c.title+" | ") {
			t.Errorf("the README's table has no client %q", c.title)
		}
	}
	if calm.Raced || testing.Short() {
		return // the rest takes seconds
	}
	readme, chart := filepath.Join(t.TempDir(), "README.md"), filepath.Join(t.TempDir(), "pays.svg")
	if err := os.WriteFile(readme, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(readme, chart, 1); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(string(written), "\n"), strings.Count(string(text), "\n"); got != want {
		t.Errorf("the README has %d lines with a new table, want %d", got, want)
	}
	if _, err := os.Stat(chart); err != nil {
		t.Error(err)
	}
}

func TestWithoutAPlaceForTheTable(t *testing.T) {
	readme := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(readme, []byte("# cruise\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(readme, readme, 1); err == nil || !strings.Contains(err.Error(), "no place") {
		t.Errorf("got %v, want no place", err)
	}
}
