package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source is the text of the files that hold the law, by their paths.
type source map[string]string

func read() (source, error) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/a7df5faa/cruise").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	root := strings.TrimSpace(string(dir))
	files, err := filepath.Glob(filepath.Join(root, "internal", "law", "*.go"))
	if err != nil {
		return nil, err
	}
	s := source{}
	for _, name := range append(files, filepath.Join(root, "brake.go"), filepath.Join(root, "adaptive.go")) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s[name] = string(text)
	}
	return s, nil
}

// with returns the files that the change changes, with their new texts.
func (s source) with(c change) (source, error) {
	changed := source{}
	for _, e := range c.edits {
		found := 0
		for name, text := range s {
			if now, ok := changed[name]; ok {
				text = now
			}
			if n := strings.Count(text, e.old); n > 0 {
				found += n
				changed[name] = strings.Replace(text, e.old, e.new, 1)
			}
		}
		if found != 1 {
			return nil, fmt.Errorf("%q is in the law %d times, want once", e.old, found)
		}
	}
	return changed, nil
}

// overlay writes the change to the folder, and returns the name of the file for go build's
// -overlay.
func (s source) overlay(c change, dir string) (string, error) {
	changed, err := s.with(c)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range changed {
		replace[name] = filepath.Join(dir, filepath.Base(name))
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
