package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/a7df5faa/cruise/internal/calm"

	"github.com/a7df5faa/cruise/simulation/score"
)

// The page and this module's README say the same of each figure.
func TestTheReadmeExplainsTheFigures(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range score.Metrics {
		if !strings.Contains(string(text), "| "+m.About+" |") && m.About != "" {
			t.Errorf("%s: the README does not say %q", m.Name, m.About)
		}
	}
}

// What the documentation says to run, runs.
func TestCommandsOfTheDocumentationRun(t *testing.T) {
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
		if strings.Contains(c[1], "metastable") && (calm.Raced || testing.Short()) {
			continue // takes seconds
		}
		if out, _ := play(t, append(args, "-seeds", "1")...); !strings.Contains(out, "longest wait s") {
			t.Errorf("%s prints no board:\n%s", c[1], out)
		}
	}
}
