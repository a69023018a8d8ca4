package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// A law that moved on takes its table of changes with it.
func TestEveryChangeFitsTheLaw(t *testing.T) {
	law, err := read()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range changes {
		if seen[c.what] || c.old == c.new {
			t.Errorf("%q is there twice, or changes nothing", c.what)
		}
		seen[c.what] = true
		name, text, err := law.with(c)
		if err == nil {
			_, err = parser.ParseFile(token.NewFileSet(), name, text, 0)
		}
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
