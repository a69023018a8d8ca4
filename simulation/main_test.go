package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/format"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func play(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	o, p, e := parse(args, &err)
	if e == nil {
		e = run(o, p, &out, &err)
	}
	if e != nil {
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
	if err != nil || !strings.Contains(string(md), "](b-step-cruise.svg)") {
		t.Errorf("%v\n%s", err, md)
	}
	for _, file := range []string{"b-use-throttled.svg", "b-step-cruise.svg", "b-step-cenkalti.svg", "b.html"} {
		if info, err := os.Stat(name(file)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Minutes of runs are not lost if the text is not read to its end.
func TestFilesAreWrittenWithoutAReader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.json")
	o, p, err := parse([]string{"-scenarios", "emr-1000", "-clients", "cruise", "-seeds", "1", "-json", file}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	closed, w := io.Pipe()
	closed.Close()
	if err := run(o, p, w, io.Discard); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want the error of the text", err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() < 1000 {
		t.Errorf("%v", err)
	}
}

// That a file can be written is tried before all runs, and leaves no trace.
func TestFilesStayAsTheyAreUntilThereAreResults(t *testing.T) {
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, "old"), filepath.Join(dir, "new")
	if err := os.WriteFile(old, []byte("figures"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := parse([]string{"-json", old, "-html", fresh}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(old); string(text) != "figures" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestFewScenariosAreToldInWords(t *testing.T) {
	out, _ := play(t, "-rate", "20", "-processes", "2", "-duration", "1m", "-clients", "cruise", "-seeds", "1")
	want := "yours: a bucket of 20 that refills at 20 a second; tells nothing\n2 processes of 10 callers, 100ms latency, 1m\n\n"
	if !strings.HasPrefix(out, want) || strings.Contains(out, "means over") {
		t.Errorf("%s", out)
	}
	for _, want := range []string{"\ncruise  cruise with its adaptive limiter", "\nJain             fairness: 1 if", "\nstdev            of the"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, _ = play(t, "-scenarios", "random-42", "-clients", "cruise", "-seeds", "1")
	if !strings.HasPrefix(out, "random-42: bursts: 1.62/s, fixed of 38 in 23.435s (full at first), tells Retry-After in whole seconds\n3 processes of 11 callers, 45.6ms latency, 8m8.4s\n") {
		t.Errorf("%s", out)
	}
}

func TestList(t *testing.T) {
	out, _ := play(t, "-list")
	for _, want := range []string{"\n  cenkalti ", "\n  metastable-280 ", "\nscenarios:\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestTryYourOwn(t *testing.T) {
	dir := t.TempDir()
	page, md, data := filepath.Join(dir, "own.html"), filepath.Join(dir, "own.md"), filepath.Join(dir, "own.json")
	out, _ := play(t, "-html", page, "-md", md, "-json", data, "-server", "fixed", "-rate", "5", "-window", "10s", "-workers", "4", "-processes", "2", "-duration", "2m", "-seeds", "1",
		"-signal", "seconds", "-max-rate", "10", "-limiter-burst", "2", "-decrease", "0.7")
	for _, file := range []string{page, md, data} {
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), "Targets") || strings.Contains(string(text), "other named") {
			t.Errorf("%s: %v, or targets or means that are not of this server", file, err)
		}
		// A file must name the options of its run, for later readers.
		for _, want := range []string{"0 requests in each 10s; tells Retry-After in whole seconds", "cruise with -max-rate 10 -limiter-burst 2 -decrease 0.7"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q", file, want)
			}
		}
		if file != data && (strings.Contains(string(text), "Means") || strings.Contains(string(text), "means over")) {
			t.Errorf("%s: means over one scenario, which is shown by itself", file)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "blue is yours and cruise,") {
		t.Errorf("the page does not say whose points are blue: %v", err)
	}
	_, code, found := strings.Cut(out, "retrier, err := ")
	if !found || !strings.Contains(out, "yours") {
		t.Fatalf("%s", out)
	}
	code = "retrier, err := " + code
	want := "retrier, err := cruise.New(\n\tcruise.WithMaxRate(10),\n\tcruise.WithTuning(cruise.Tuning{Burst: 2}),\n\tcruise.WithTuning(cruise.Tuning{DecreaseFactor: 0.7}),\n)\n" + goesOn
	if code != want {
		t.Errorf("the code is\n%s", code)
	}
	if _, err := format.Source([]byte(code)); err != nil {
		t.Error(err)
	}
	if out, _ := play(t, "-rate", "5", "-duration", "1m", "-seeds", "1", "-clients", "cruise"); !strings.Contains(out, "cruise.New()") {
		t.Errorf("%s", out)
	}
	_, p, err := parse(strings.Fields("-rate 5 -limiter-burst 1000000 -min-rate 1e-5"), io.Discard)
	if err != nil || !strings.Contains(p.code, "\tcruise.WithTuning(cruise.Tuning{MinRate: 0.00001}),\n\tcruise.WithTuning(cruise.Tuning{Burst: 1000000}),\n") {
		t.Errorf("%v, numbers as nobody writes them: %s", err, p.code)
	}
	_, p, err = parse(strings.Fields("-rate 5 -max-rate 1e300"), io.Discard)
	if err != nil || !strings.Contains(p.code, "\tcruise.WithMaxRate(1e+300),\n") {
		t.Errorf("%v, a constant that overflows: %s", err, p.code)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"quick", `unexpected argument "quick": all options are flags, see -h`},
		{"-nonsense", "flag provided but not defined: -nonsense"},
		{"-clients nobody", `-clients nobody: there is no client "nobody"; want some of cruise, aws-adaptive,`},
		{"-scenarios nowhere", `-scenarios nowhere: there is no scenario "nowhere"; want none alone, or some of suite, named, random-N, heroku-30min,`},
		{"-scenarios random-5junk", `there is no scenario "random-5junk"`},
		{"-scenarios suite,none", `there is no scenario "none"; want none alone`},
		{"-scenarios none", "-scenarios none: want scenarios"},
		{"-quick -full", "-quick and -full contradict each other"},
		{"-seeds 0", "-seeds 0: want 1 to 1000"},
		{"-html=", `-html "": want a file`},
		{"-json nowhere/b.json", "-json nowhere/b.json: want a file in a folder that exists, nowhere does not"},
		{"-cpuprofile nowhere/p", "-cpuprofile nowhere/p: want a file in a folder that exists, nowhere does not"},
		{"-json .", "-json .: want a file, that is a folder"},
		{"-md testdata/", "-md testdata/: want a file, that is a folder"},
		{"-html testdata", "-html testdata: want a file, that is a folder"},
		{"-html a -md ./a", "-html a: want a file of its own, -md is written there, too"},
		{"-clients oracle -scenarios step-50-5-50", "-clients oracle: none of them makes sense in these scenarios"},
		{"-seeds 99999999999", "-seeds 99999999999: want 1 to 1000"},
		{"-seeds 1.5", `invalid value "1.5" for flag -seeds: want a whole number, such as 3`},
		{"-random -1", "-random -1: want 0 to 100000"},
		{"-random 999999999", "-random 999999999: want 0 to 100000"},
		{"-random 100000 -seeds 1000 -clients cruise", "-random 100000 -seeds 1000: scenarios times seeds times clients is 100013000 runs, want at most 1000000"},
		{"-from 5", "-from 5: want random scenarios"},
		{"-from -1", `invalid value "-1" for flag -from: want a whole number from 0 to 18446744073709551615`},
		{"-split", "-split: want random scenarios"},
		{"-split -random 2 -clients cruise", "-split: want the client pacer-0.8 with it"},
		{"-md a.md -json a-x.svg", "-json a-x.svg: want another name, charts of -md have such"},
		{"-json a -html ../simulation/a", "-html ../simulation/a: want a file of its own, -json is written there, too"},
		{"-json /proc/none", "-json /proc/none: want a file that can be written: open"},
		{"-rate 5 -quick", "-quick does not go with"},
		{"-rate 5 -targets", "-targets does not go with"},
		{"-decrease .7 -random 7", "-random does not go with"},
		{"-rate 5 -scenarios none", "-rate is about a server of yours: it does not go with -scenarios"},
		{"-decrease .7 -scenarios none", "-scenarios none: want scenarios"},

		{"-server cloud -rate 1", "-server cloud: want bucket,"},
		{"-server bucket", "no -rate: want the requests a second"},
		{"-decrease .7", "no -rate: want the requests a second"},
		{"-rate 20/s", `invalid value "20/s" for flag -rate: want a number, such as 20 or 0.5`},
		{"-rate 0", "-rate 0: want the requests a second"},
		{"-rate NaN", "-rate NaN: want"},
		{"-rate Inf", "-rate +Inf: want"},
		{"-rate 1e-300", "-rate 1e-300: want"},
		{"-rate 1 -burst 0", "-burst 0: want 1 to 1000000"},
		{"-rate 1 -burst Inf", "-burst +Inf: want 1 to 1000000"},
		{"-rate 1 -window 1s", "-window does not go with -server bucket"},
		{"-rate 1 -server concurrency -burst 8", "-rate does not go with -server concurrency"},
		{"-server concurrency", "no -burst: want the slots"},
		{"-server concurrency -burst 0", "-burst 0: want the slots"},
		{"-server concurrency -burst NaN", "-burst NaN: want the slots"},
		{"-server concurrency -burst 2.5", "-burst 2.5: want the slots"},
		{"-server concurrency -burst 8 -work 0s", "-work 0s: want 1µs to 1h"},
		{"-server sliding -rate 1 -window 1ms", "-window 1ms: want one that holds 1 to 1000000 requests"},
		{"-server sliding -rate 20 -window 50ms -duration 24h", "-window 50ms: want 216ms at least, a run of the -duration 24h0m0s is of 400000 windows at most"},
		{"-server sliding -rate 999999 -window 2562047h", "-window 2562047h0m0s: want one that holds 1 to 1000000 requests"},
		{"-server sliding -rate 1 -window 24h -duration 1s", "-window 24h0m0s: want at most 100 times the -duration 1s"},
		{"-server fixed -rate 1.9 -window 1s", "-rate 1.9 -window 1s: want whole requests in a window, such as -rate 1 for 1 of them"},
		{"-server fixed -rate 1 -window 10m -empty -duration 5m", "-empty -window 10m0s: want a window shorter than the -duration 5m0s"},
		{"-server sliding -rate 1 -window 1s -empty -duration 1s", "-empty -duration 1s: want more than 1 s, or nothing is served"},
		{"-rate .01 -empty -duration 1m", "-empty -duration 1m0s: want more than 100 s, or nothing is served"},
		{"-rate 1 -duration 10", "want a duration with its unit, such as 10s or 1m30s"},
		{"-rate 1 -signal smoke", `-signal "smoke": want none, retry-after, seconds, remaining, rest or reset`},
		{"-rate 1 -workers 0", "-processes 1 -workers 0: want"},
		{"-rate 5 -processes 4294967296 -workers 4294967296", "-processes 4294967296 -workers 4294967296: want"},
		{"-rate 5 -processes 101 -workers 100", "-processes 101 -workers 100: want"},
		{"-rate 5 -processes 100 -workers 100 -duration 24h", "-duration 24h0m0s: want at most 1h0m0s for 10000 workers in all"},
		{"-rate 1 -latency 0s", "-latency 0s: want 1µs to 1h"},
		{"-rate 1 -latency 2h -duration 3h", "-latency 2h0m0s: want 1µs to 1h"},
		{"-rate 1 -latency 1h -duration 1s", "-latency 1h0m0s -work 0s: want at most the -duration 1s together"},
		{"-rate 1 -work 2s -duration 1s", "-latency 100ms -work 2s: want at most the -duration 1s together"},
		{"-rate 1 -work 2h", "-work 2h0m0s: want 1µs to 1h"},
		{"-rate 5 -duration 2562047h", "-duration 2562047h0m0s: want 1s to 24h"},
		{"-rate 1e6 -latency 1ms -duration 1h", "-duration 1h0m0s: want at most 10000000 requests"},

		{"-decrease abc", `invalid value "abc" for flag -decrease: want a number, such as 20 or 0.5`},
		{"-rate 1 -limiter-burst 2.7", "-limiter-burst 2.7: want a whole number from 1 to 2147483647"},
		{"-rate 1 -limiter-burst NaN", "-limiter-burst NaN: want a finite number"},
		{"-rate 1 -max-rate Inf", "-max-rate +Inf: want a finite number"},
		{"-rate 1 -initial-rate 0", "-initial-rate 0: want a finite number above 0"},
		{"-rate 1 -limiter-burst 1e300", "-limiter-burst 1e+300: want a whole number"},
		{"-rate 1 -decrease 1.5", "-decrease 1.5: cruise: WithTuning: DecreaseFactor 1.5: want"},
		{"-rate 1 -min-rate 7 -max-rate 5", "-min-rate 7 -max-rate 5: cruise: WithTuning: MinRate 7: want"},
	} {
		if _, _, err := parse(strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
}

// The usage begins with the most common flags, and has every flag once.
func TestUsage(t *testing.T) {
	var usage strings.Builder
	if _, _, err := parse([]string{"-workers", "7", "-h"}, &usage); !errors.Is(err, flag.ErrHelp) || !strings.Contains(usage.String(), "-workers callers\n    \tcallers in each client (default 10)\n") {
		t.Errorf("%v\n%s", err, usage.String())
	}
	at := -1
	for _, want := range []string{"-server", "-max-rate", "-scenarios", "-html"} {
		i := strings.Index(usage.String(), "\n  "+want+" ")
		if i < at || strings.Count(usage.String(), "\n  "+want+" ") != 1 {
			t.Errorf("%s is not there once, or too early:\n%s", want, usage.String())
		}
		at = i
	}
}

func TestNoNameIsPlayedTwice(t *testing.T) {
	_, p, err := parse(strings.Fields("-clients cruise,cenkalti,cruise -scenarios random-1,emr-1000 -random 2 -from 1"), io.Discard)
	if err != nil || len(p.clients) != 2 {
		t.Fatal(err, len(p.clients))
	}
	var names []string
	for _, part := range p.parts {
		for _, s := range part.scenarios {
			names = append(names, s.Name)
		}
	}
	if want := []string{"random-1", "emr-1000", "random-2"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// A window holds a whole number of requests, and the clients that know the rate know that number.
func TestWindowsHoldWholeNumbers(t *testing.T) {
	for args, want := range map[string]float64{
		"-server fixed -rate 20.9 -window 1s":    20,
		"-server sliding -rate 1.667 -window 1m": 100. / 60,
		"-server fixed -rate 0.1 -window 10s":    .1,
	} {
		_, p, err := parse(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.parts[0].scenarios[0].Server.Rate.At(0); got != want {
			t.Errorf("%s: %v, want %v", args, got, want)
		}
	}
}

func TestTheServerOfTheFlagsIsToldInWords(t *testing.T) {
	for args, want := range map[string]string{
		"-rate 2.5":             "a bucket of 3 that refills at 2.5 a second; tells nothing",
		"-rate 1e6 -latency 1s": "a bucket of 1000000 that refills at 1000000 a second; tells nothing",
		"-rate 2.5 -burst 40 -empty -signal rest":                                "a bucket of 40 that refills at 2.5 a second, used up at the start; tells what is left",
		"-server fixed -rate 5 -signal remaining":                                "300 requests in each 1m0s; tells the limit and what is left",
		"-server sliding -rate 5 -window 10s -signal reset":                      "50 requests in any 10s; tells the limit, what is left and until when",
		"-rate 8 -burst 60 -work 10s -workers 100":                               "a bucket of 60 that refills at 8 a second, 10s for each; tells nothing",
		"-server concurrency -burst 8 -signal retry-after -work 20ms -workers 9": "8 requests at a time, 20ms each; tells Retry-After",
	} {
		_, p, err := parse(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.parts[0].scenarios[0].About; got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
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
		{"", 13, 0, 19, 3},
		{"-clients cruise", 13, 0, 1, 3},
		{"-clients cruise -scenarios named -seeds 1", 158, 0, 1, 1},
		{"-scenarios none -random 5", 0, 5, 19, 3},
		{"-quick", 15, 24, 19, 3},
		{"-quick -random 0 -clients cruise", 15, 0, 1, 3},
		{"-full", 158, 200, 19, 10},
		{"-targets", 158, 200, 4, 3},
		{"-targets -clients cruise", 13, 0, 1, 3},
	} {
		_, p, err := parse(strings.Fields(c.args), nil)
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
