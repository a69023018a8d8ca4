// Command mutate breaks a package in one place at a time, and prints the changes that no test
// noticed.
//
//	go run ./internal/mutate -n 40 -seed 1 ./internal/queue
//
// A mutant negates a condition, moves the bound of a comparison, exchanges plus and minus, leaves
// out an assignment, or doubles a number. The seed decides which mutants are tried. The files
// themselves stay as they are.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A mutant is one change of a file.
type mutant struct {
	file     string
	from, to int // offsets of the text to replace
	by       string
	line     int
	what     string
}

var swapped = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.ADD: "-", token.SUB: "+",
}

// mutants returns all changes of a file, in the order in which they stand there.
func mutants(name string, source []byte) ([]mutant, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []mutant
	add := func(from, to token.Pos, what, by string) {
		p := files.Position(from)
		all = append(all, mutant{name, p.Offset, files.Position(to).Offset, by, p.Line, what})
	}
	text := func(n ast.Node) string {
		return string(source[files.Position(n.Pos()).Offset:files.Position(n.End()).Offset])
	}
	negate := func(e ast.Expr) {
		if e != nil {
			add(e.Pos(), e.End(), "negate", "!("+text(e)+")")
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.ArrayType:
			return false
		case *ast.IfStmt:
			negate(n.Cond)
		case *ast.BinaryExpr:
			if by, ok := swapped[n.Op]; ok {
				add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), "swap", by)
			}
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				add(n.Pos(), n.End(), "leave out", "")
			}
		case *ast.IncDecStmt:
			add(n.Pos(), n.End(), "leave out", "")
		case *ast.BasicLit:
			if (n.Kind == token.INT || n.Kind == token.FLOAT) && strings.Trim(n.Value, "0_.") != "" {
				add(n.Pos(), n.End(), "double", "(2*"+n.Value+")")
			}
		}
		return true
	})
	slices.SortStableFunc(all, func(a, b mutant) int { return cmp.Compare(a.from, b.from) })
	return all, nil
}

// apply returns the source of a mutant, or an error if it is none.
func (m mutant) apply(source []byte) ([]byte, error) {
	return format.Source(slices.Concat(source[:m.from], []byte(m.by), source[m.to:]))
}

// describe tells a mutant and its line.
func (m mutant) describe(source []byte) string {
	was := strings.Join(strings.Fields(string(source[m.from:m.to])), " ")
	line := strings.TrimSpace(strings.Split(string(source), "\n")[m.line-1])
	if m.by == "" || m.what == "negate" {
		return fmt.Sprintf("%s:%d: %s %q in: %s", m.file, m.line, m.what, was, line)
	}
	return fmt.Sprintf("%s:%d: %s %s to %s in: %s", m.file, m.line, m.what, was, m.by, line)
}

// The results of a mutant.
const (
	killed   = "killed"
	timeout  = "killed by the timeout"
	survived = "SURVIVED"
	invalid  = "does not compile"
)

// test runs the tests against a mutant, in the working directory.
func test(m mutant, source []byte, tmp string, limit time.Duration, packages []string) (string, error) {
	changed, err := m.apply(source)
	if err != nil {
		return invalid, nil
	}
	file, overlay := filepath.Join(tmp, "mutant.go"), filepath.Join(tmp, "overlay.json")
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+2*time.Minute) // time to build
	defer cancel()
	args := append([]string{"test", "-short", "-failfast", "-vet=off", "-overlay=" + overlay, "-timeout=" + limit.String()}, packages...)
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	switch text := string(out); {
	case err == nil:
		return survived, nil
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		return invalid, nil
	case ctx.Err() != nil || strings.Contains(text, "test timed out"):
		return timeout, nil
	}
	return killed, nil
}

func run() error {
	n := flag.Int("n", 30, "how many `mutants` to try")
	seed := flag.Uint64("seed", 1, "from which it follows which ones")
	limit := flag.Duration("timeout", time.Minute, "for the tests of a mutant")
	with := flag.String("test", "", "the `packages` whose tests are run, with commas between; default that of the mutants")
	flag.Parse()
	if flag.NArg() != 1 {
		return fmt.Errorf("want the folder of one package, got %d", flag.NArg())
	}
	folder := flag.Arg(0)
	packages := []string{"./" + filepath.ToSlash(filepath.Clean(folder))}
	if *with != "" {
		packages = strings.Split(*with, ",")
	}
	pkg, err := build.ImportDir(folder, 0)
	if err != nil {
		return err
	}
	var all []mutant
	sources := map[string][]byte{}
	for _, name := range pkg.GoFiles {
		name = filepath.Join(folder, name)
		if sources[name], err = os.ReadFile(name); err != nil {
			return err
		}
		found, err := mutants(name, sources[name])
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	total := len(all)
	rng := rand.New(rand.NewPCG(*seed, 0))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	results := map[string]int{}
	tried := 0
	for _, m := range all {
		if tried == *n {
			break
		}
		result, err := test(m, sources[m.file], tmp, *limit, packages)
		if err != nil {
			return err
		}
		results[result]++
		if result == invalid {
			continue
		}
		tried++
		if result == survived {
			fmt.Println(m.describe(sources[m.file]))
		}
	}
	fmt.Printf("%d of %d mutants: %d killed, %d of them by the timeout, %d survived; %d more did not compile\n",
		tried, total, results[killed]+results[timeout], results[timeout], results[survived], results[invalid])
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}
