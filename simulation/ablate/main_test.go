package main

import (
	"go/parser"
	"go/token"
	"slices"
	"testing"
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
