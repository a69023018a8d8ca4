package cruise_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/reliability.md anew")

// cases is how many cases the catalogue numbers.
const cases = 80

// docs/reliability.md is what testdata/reliability.txt says, and every test that
// is named there exists. After a change: go test . -run Reliability -update
func TestReliability(t *testing.T) {
	source, err := os.ReadFile("testdata/reliability.txt")
	require.NoError(t, err)
	all := findTests(t)
	numbered := map[string]bool{}
	var out strings.Builder
	out.WriteString("<!-- Generated from testdata/reliability.txt by: go test . -run Reliability -update -->\n\n")
	inTable, bugs := false, false
	for n, line := range strings.Split(strings.TrimSpace(string(source)), "\n") {
		cells := strings.Split(line, " | ")
		switch {
		case strings.HasPrefix(line, "//"):
			continue
		case len(cells) == 1:
			inTable = false
			if strings.HasPrefix(line, "## ") {
				bugs = strings.HasPrefix(line, "## Bugs")
			}
			fmt.Fprintln(&out, line)
			continue
		}
		require.Len(t, cells, 3, "line %d: id, what must hold or went wrong, tests", n+1)
		require.False(t, numbered[cells[0]], "line %d: %s is there twice", n+1, cells[0])
		numbered[cells[0]] = true
		if !inTable {
			inTable = true
			out.WriteString(map[bool]string{false: "promise", true: "bug"}[bugs] + " | test\n---|---\n")
		}
		shown := []string{}
		for proof := range strings.SplitSeq(cells[2], "; ") {
			link, err := all.link(strings.TrimSpace(proof))
			assert.NoError(t, err, "line %d", n+1)
			shown = append(shown, link)
		}
		if bugs { // of several issues the page names the first
			issue, _, more := strings.Cut(cells[0], ", ")
			cells[1] += " (" + issue + map[bool]string{true: ", …"}[more] + ")"
		}
		fmt.Fprintf(&out, "%s | %s\n", cells[1], strings.Join(shown, "<br>"))
	}
	for i := 1; i <= cases; i++ {
		assert.True(t, numbered[fmt.Sprint(i)], "case %d is missing", i)
	}
	const doc = "docs/reliability.md"
	if *update {
		require.NoError(t, os.WriteFile(doc, []byte(out.String()), 0o644))
	}
	got, err := os.ReadFile(doc)
	require.NoError(t, err)
	assert.True(t, string(got) == out.String(), "%s is not what its source says: go test . -run Reliability -update", doc)
}

// A knownTest is where a test is, and its text.
type knownTest struct{ file, text string }

// knownTests are those of the repository. Those of the root package go by their
// name, all others by their folder and name.
type knownTests map[string]knownTest

func findTests(t *testing.T) knownTests {
	t.Helper()
	all := knownTests{}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, source, 0)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !isTest.MatchString(f.Name.Name) {
				continue
			}
			name := f.Name.Name
			if dir != "." {
				name = dir + "." + name
			}
			all[name] = knownTest{filepath.ToSlash(path), string(source[fset.Position(f.Pos()).Offset:fset.Position(f.End()).Offset])}
		}
		return nil
	}))
	return all
}

var (
	isTest   = regexp.MustCompile(`^(Test|Fuzz|Example|Benchmark)([^a-z]|$)`)
	aTest    = regexp.MustCompile(`^([\w/]+\.)?(\w+)((?: "[^"]+")*)$`)
	ofATable = regexp.MustCompile(`"([^"]+)"`)
)

// link is the cell for a proof: a test, which has the rows of its table that are in quotes, or
// a reason in brackets why there is none.
func (all knownTests) link(proof string) (string, error) {
	if strings.HasPrefix(proof, "(") && strings.HasSuffix(proof, ")") {
		return proof[1 : len(proof)-1], nil
	}
	m := aTest.FindStringSubmatch(proof)
	if m == nil || !isTest.MatchString(m[2]) {
		return "", fmt.Errorf("neither a test nor a reason: %s", proof)
	}
	name := m[1] + m[2]
	test, found := all[name]
	if !found {
		return "", fmt.Errorf("no test %s", name)
	}
	for _, row := range ofATable.FindAllStringSubmatch(m[3], -1) {
		if !strings.Contains(test.text, row[1]) && !inTestdata(test.file, row[1]) {
			return "", fmt.Errorf("no row %s of %s", row[0], name)
		}
	}
	return fmt.Sprintf("[%s](../%s)", name, test.file), nil
}

// inTestdata reports whether a line of a table beside a test begins with a row's
// name.
func inTestdata(file, row string) bool {
	tables, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "testdata", "*.txt"))
	for _, table := range tables {
		if text, err := os.ReadFile(table); err == nil && strings.Contains(string(text), "\n"+row+" |") {
			return true
		}
	}
	return false
}
