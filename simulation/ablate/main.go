// Command ablate changes one thing of the control law at a time, plays the suite and
// random scenarios with each, and prints a row of figures for docs/control.md. Run it
// in the simulation module.
//
//	go run ./ablate                   every change of the table
//	go run ./ablate -only 'rule 6'    those whose rule or words match
//	go run ./ablate -only none        the law as it is in the tree
//
// It runs itself anew for each change, built with a changed copy of the law that
// go build's -overlay puts in its place.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

func main() {
	only := flag.String("only", "", "regular expression: changes whose rule or words match; default all")
	seeds := flag.Int("seeds", 3, "runs of each scenario")
	random := flag.Int("random", 200, "random scenarios")
	from := flag.Uint64("from", 5001, "seed of the first; those from 10001 on are for reports")
	row := flag.String("row", "", "print the row of the law that this program is built with, under this name, and nothing else")
	flag.Parse()
	var err error
	switch {
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: all options are flags, see -h", flag.Arg(0))
	case *seeds < 1 || *random < 1:
		err = fmt.Errorf("-seeds %d -random %d: want at least 1", *seeds, *random)
	case *row != "":
		fmt.Println("|", *row, "|", figures(play(*seeds, *random, *from)), "|")
	default:
		err = table(*only, os.Stdout, "-seeds", strconv.Itoa(*seeds), "-random", strconv.Itoa(*random), "-from", strconv.FormatUint(*from, 10))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ablate:", err)
		os.Exit(1)
	}
}

// table prints the law as it is, and each change that is asked for.
func table(only string, w io.Writer, args ...string) error {
	which, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only %s: %w", only, err)
	}
	law, err := read()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ablate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintln(w, "| rule | change | suite: throttled % | wait | Jain | use | random: throttled % | wait | Jain | use | broke down |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|")
	tried := []change{{what: "none"}}
	for _, c := range changes {
		if which.MatchString("rule " + c.name()) {
			tried = append(tried, c)
		}
	}
	for _, c := range tried {
		overlay, err := law.overlay(c, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		args := append([]string{"run", "-overlay", overlay, "github.com/a7df5faa/cruise/simulation/ablate", "-row", c.name()}, args...)
		again := exec.Command("go", args...)
		again.Stdout, again.Stderr = w, os.Stderr
		if err := again.Run(); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

// play plays the law that this program is built with, beside the pacer, which tells
// random scenarios whose limit can be kept from others.
func play(n, random int, from uint64) *board.Board {
	var seeds []uint64
	for i := range n {
		seeds = append(seeds, uint64(i)+1)
	}
	var scenarios []*scenario.Scenario
	for i := range random {
		scenarios = append(scenarios, scenario.Random(from+uint64(i)))
	}
	own := client.Cruise("cruise")
	clients := []engine.Client{own, client.Pacer()}
	results := score.Play(scenario.Suite(), clients[:1], seeds, nil, nil)
	return board.New(clients, append(results, score.Play(scenarios, clients, seeds, nil, nil)...))
}

// figures are the cells of a row: the means of the suite, and of the random scenarios
// that can be kept, with the wait relative to that between turns, and how many break down.
func figures(b *board.Board) string {
	var cells []string
	for _, r := range b.Rows() {
		if r.Client != b.Own || r.Group != board.Suite && r.Group != board.Keepable {
			continue
		}
		wait, collapses := r.Means.Wait, []string(nil)
		if r.Group == board.Keepable {
			wait = r.Means.Ratio
			collapses = []string{fmt.Sprintf("%d / %d / %d", r.Collapses.Use, r.Collapses.Throttled, r.Collapses.Jain)}
		}
		for _, v := range []float64{r.Means.Throttled, wait, r.Means.Jain, r.Means.Use} {
			cells = append(cells, board.Number(v))
		}
		cells = append(cells, collapses...)
	}
	return strings.Join(cells, " | ")
}

// source is the text of the files that hold the law, by their paths.
type source map[string]string

func read() (source, error) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/a7df5faa/cruise").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	s := source{}
	for _, file := range []string{"law.go", "brake.go", "adaptive.go"} {
		name := filepath.Join(strings.TrimSpace(string(dir)), file)
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s[name] = string(text)
	}
	return s, nil
}

// with returns the file that the change changes, and its new text.
func (s source) with(c change) (name, text string, err error) {
	found := 0
	for file, was := range s {
		if n := strings.Count(was, c.old); n > 0 {
			found += n
			name, text = file, strings.Replace(was, c.old, c.new, 1)
		}
	}
	if found != 1 {
		return "", "", fmt.Errorf("%q is in the law %d times, want once", c.old, found)
	}
	return name, text, nil
}

// overlay writes the change to the folder, and returns the name of what go build's
// -overlay wants.
func (s source) overlay(c change, dir string) (string, error) {
	replace := map[string]string{}
	if c.old != "" {
		name, text, err := s.with(c)
		if err != nil {
			return "", err
		}
		replace[name] = filepath.Join(dir, "law.go")
		if err := os.WriteFile(replace[name], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, data, 0o644)
}
