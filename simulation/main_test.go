package main

import (
	"bytes"
	"encoding/json"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func play(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	if e := run(args, &out, &err); e != nil {
		t.Fatalf("%v: %v", args, e)
	}
	return out.String(), err.String()
}

func TestTheCommandPrintsABoardAndWritesFiles(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	out, progress := play(t, "-clients", "cruise,cenkalti,pacer-0.8", "-scenarios", "heroku-clear,step-50-5-50", "-seeds", "2", "-random", "2", "-targets",
		"-json", name("b.json"), "-md", name("b.md"), "-html", name("b.html"))
	for _, want := range []string{"heroku-clear", "means over", "random, all", "targets met", "best of the column", "step-50-5-50"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(progress, "\r") || !strings.Contains(progress, "results in") {
		t.Errorf("progress to no terminal is %q", progress)
	}
	data, err := os.ReadFile(name("b.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Results []struct{ Median map[string]*float64 }
		Targets []struct{ Verdict string }
	}
	// The pacer has no pace where nothing flows in.
	if err := json.Unmarshal(data, &board); err != nil || len(board.Results) != 11 || len(board.Targets) == 0 {
		t.Errorf("%v, %d results, %d targets", err, len(board.Results), len(board.Targets))
	}
	md, err := os.ReadFile(name("b.md"))
	if err != nil || !strings.Contains(string(md), "](scoreboard-step-cruise.svg)") {
		t.Errorf("%v\n%s", err, md)
	}
	for _, file := range []string{"scoreboard-use-throttled.svg", "scoreboard-step-cruise.svg", "scoreboard-step-cenkalti.svg", "b.html"} {
		if info, err := os.Stat(name(file)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestTryYourOwn(t *testing.T) {
	out, _ := play(t, "-server", "fixed", "-rate", "5", "-window", "10s", "-workers", "4", "-processes", "2", "-duration", "2m", "-seeds", "1",
		"-signal", "seconds", "-max-rate", "10", "-limiter-burst", "2", "-decrease", "0.7")
	_, code, found := strings.Cut(out, "retrier, err := ")
	if !found || !strings.Contains(out, "yours") {
		t.Fatalf("%s", out)
	}
	code = "retrier, err := " + code
	want := "retrier, err := cruise.New(\n\tcruise.WithMaxRate(10),\n\tcruise.WithBurst(2),\n\tcruise.WithDecreaseFactor(0.7),\n)\n"
	if code != want {
		t.Errorf("the code is\n%s", code)
	}
	if _, err := format.Source([]byte(code)); err != nil {
		t.Error(err)
	}
	if out, _ := play(t, "-rate", "5", "-duration", "1m", "-seeds", "1", "-clients", "cruise"); !strings.Contains(out, "cruise.New()") {
		t.Errorf("%s", out)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-clients nobody", "nobody"},
		{"-scenarios nowhere", "nowhere"},
		{"-quick -full", "contradict"},
		{"quick", "unexpected"},
		{"-server bucket", "-rate"},
		{"-server cloud -rate 1", "-server cloud"},
		{"-rate 1 -signal smoke", "-signal smoke"},
		{"-rate NaN", "-rate"},
		{"-rate 1 -workers 0", "-workers"},
		{"-rate 1 -decrease 1.5", "WithDecreaseFactor"},
		{"-rate 1 -server concurrency", "slots"},
		{"-rate 1 -server sliding -window 1ms", "-window"},
	} {
		var out bytes.Buffer
		if err := run(strings.Fields(c.args), &out, &out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
}

func TestPresetsYieldToFlags(t *testing.T) {
	for _, c := range []struct {
		args          string
		named, random int
		clients       int
		seeds         int
	}{
		{"", 13, 0, 16, 3},
		{"-clients cruise", 13, 0, 1, 3},
		{"-clients cruise -scenarios named -seeds 1", 44, 0, 1, 1},
		{"-scenarios none -random 5", 0, 5, 16, 3},
		{"-quick", 15, 24, 16, 3},
		{"-quick -random 0 -clients cruise", 15, 0, 1, 3},
		{"-full", 44, 200, 16, 10},
		{"-targets", 44, 200, 4, 3},
		{"-targets -clients cruise", 13, 0, 1, 3},
	} {
		o, err := parse(strings.Fields(c.args), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := o.plan()
		if err != nil {
			t.Fatal(err)
		}
		named, random, seeds := 0, 0, 0
		for _, part := range p.parts {
			if part.name == "named" {
				named, seeds = len(part.scenarios), part.seeds
			} else {
				random = len(part.scenarios)
				if seeds == 0 {
					seeds = part.seeds
				}
			}
		}
		if named != c.named || random != c.random || seeds != c.seeds || len(p.clients) != c.clients {
			t.Errorf("%q: %d named and %d random scenarios, %d clients, %d seeds", c.args, named, random, len(p.clients), seeds)
		}
	}
}
