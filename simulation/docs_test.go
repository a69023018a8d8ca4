package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/a7df5faa/cruise/internal/calm"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/score"
)

// The page and this module's README say the same of each figure, which has a name in tables
// and one in JSON.
func TestTheReadmeExplainsTheFigures(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range score.Metrics {
		want := fmt.Sprintf("| %s | `%s` | %s |", board.Title(m), m.Name, m.About)
		if m.About == "" { // no table shows it
			want = fmt.Sprintf("| | `%s` | ", m.Name)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("the README does not say %q", want)
		}
	}
}

func TestTheReadmeExplainsTheJSON(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "b.json")
	play(t, "-rate", "5", "-duration", "10s", "-clients", "cruise,pacer-0.8", "-seeds", "1", "-json", file)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var whole any
	if err := json.Unmarshal(data, &whole); err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	var walk func(any)
	walk = func(part any) {
		switch part := part.(type) {
		case []any:
			for _, p := range part {
				walk(p)
			}
		case map[string]any:
			for key, p := range part {
				keys[key] = true
				walk(p)
			}
		}
	}
	walk(whole)
	if len(keys) < 30 {
		t.Errorf("only %d keys", len(keys))
	}
	for key := range keys {
		if !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("the README does not say what %q is", key)
		}
	}
}

// The commands in the documentation run.
func TestCommandsOfTheDocumentationRun(t *testing.T) {
	if calm.Raced {
		t.Skip("it takes long, and others race as much")
	}
	text, err := os.ReadFile("../docs/tuning.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)cd simulation && go run \. (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(commands) < 15 {
		t.Errorf("only %d commands", len(commands))
	}
	for _, c := range commands {
		args := strings.Fields(c[1])
		if strings.Contains(c[1], "metastable") && testing.Short() {
			continue // takes seconds
		}
		if out, _ := play(t, append(args, "-seeds", "1")...); !strings.Contains(out, "longest wait s") {
			t.Errorf("%s prints no board:\n%s", c[1], out)
		}
	}
}
