package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

// APIError is how the client of some API tells that a call failed.
type APIError struct {
	Code string
	Wait time.Duration
}

func (e *APIError) Error() string { return e.Code }

// appClient is the client of an API that throttles its first call.
type appClient struct{ calls int }

func (c *appClient) App(_ context.Context, name string) (string, error) {
	if c.calls++; c.calls == 1 {
		return "", &APIError{Code: "rate_limited", Wait: time.Second / 100}
	}
	return name, nil
}

func Example() {
	client := &appClient{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var app string

	// README
	api := cruise.Must(cruise.New()) // one for each API, shared by all goroutines

	err := api.Do(ctx, func(ctx context.Context) (err error) {
		app, err = client.App(ctx, "example") // any call that can fail
		if failed, ok := errors.AsType[*APIError](err); ok {
			switch failed.Code {
			case "rate_limited":
				return cruise.Throttled(err, cruise.RetryAfter(failed.Wait)) // everyone slows down
			case "not_found":
				return cruise.Permanent(err) // another attempt would not help
			}
		}
		return err // nil, or worth another attempt
	})

	fmt.Println(app, err)
	// Output: example <nil>
}

// The Go code of the README is that of Example, from its README comment on, and
// is short.
func TestReadmeShowsTestedCode(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, blocks, 1)
	code := strings.TrimSpace(blocks[0][1])
	assert.LessOrEqual(t, strings.Count(code, "\n")+1, 15, "lines")

	fset := token.NewFileSet()
	source, err := os.ReadFile("readme_test.go")
	require.NoError(t, err)
	file, err := parser.ParseFile(fset, "readme_test.go", source, 0)
	require.NoError(t, err)
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "Example" {
			body := string(source[fset.Position(f.Body.Lbrace).Offset+1 : fset.Position(f.Body.Rbrace).Offset])
			_, body, _ = strings.Cut(body, "// README\n")
			body, _, _ = strings.Cut(body, "\n\tfmt.Println")
			want, err := format.Source([]byte(strings.ReplaceAll("\n"+body, "\n\t", "\n")))
			require.NoError(t, err)
			assert.Equal(t, strings.TrimSpace(string(want)), code)
		}
	}
}

// documents are all texts for readers, by their name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "*/README.md"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			texts[name] = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(text), "")
		}
	}
	require.GreaterOrEqual(t, len(texts), 20)
	return texts
}

// anchors are those of the headings of a document, as GitHub makes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		plain := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		found[strings.ReplaceAll(plain, " ", "-")] = true
	}
	return found
}

// Links of the documents lead to files, and headings in them, that exist.
func TestDocumentsLinkToWhatIsThere(t *testing.T) {
	texts := documents(t)
	for doc, text := range texts {
		for _, link := range regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`).FindAllStringSubmatch(text, -1) {
			to := doc
			if link[1] != "" {
				to = filepath.Join(filepath.Dir(doc), link[1])
				assert.FileExists(t, to, "in %s", doc)
			}
			if link[2] != "" {
				assert.True(t, anchors(texts[to])[link[2]], "%s has no heading %q, as %s says", to, link[2], doc)
			}
		}
	}
}

// Every row of a table has as many cells as its head, so that no other table's rows stand there.
func TestTablesOfDocumentsAreWhole(t *testing.T) {
	inCell := regexp.MustCompile("`[^`]*`|" + `\\\|`)
	for doc, text := range documents(t) {
		cells := 0
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "|") {
				cells = 0
				continue
			}
			n := strings.Count(inCell.ReplaceAllString(line, ""), "|")
			if cells == 0 {
				cells = n
			}
			assert.Equal(t, cells, n, "%s: %s", doc, line)
		}
	}
}

// Tests, and options of ours, that the documents name are there.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	tests := map[string]bool{}
	for name := range findTests(t) {
		tests[name[strings.LastIndexByte(name, '.')+1:]] = true
	}
	options := map[string]bool{}
	for _, of := range []string{
		"WithMaxElapsedTime", "WithMaxTries", "WithNotify", // of cenkalti/backoff
		"WithThrottle",     // of retry-go
		"WithDisableRetry", // of gRPC
		"WithPolicy",       // of Google's storage client
		"WithRetryer",      // of the AWS SDK
	} {
		options[of] = true
	}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, f := range regexp.MustCompile(`(?m)^func (With\w+)`).FindAllStringSubmatch(string(source), -1) {
			options[f[1]] = true
		}
		return err
	}))
	for doc, text := range documents(t) {
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`).FindAllString(text, -1) {
			assert.True(t, tests[name], "%s names %s", doc, name)
		}
		for _, name := range regexp.MustCompile(`\bWith[A-Z]\w+`).FindAllString(text, -1) {
			assert.True(t, options[name], "%s names %s", doc, name)
		}
	}
}

// docs/architecture.md says what lives in every file of the root package.
func TestArchitectureNamesEveryFile(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	want := map[string]bool{}
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			want[name] = true
		}
	}
	got := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+\.go) \|`).FindAllStringSubmatch(string(text), -1) {
		got[row[1]] = true
	}
	assert.Equal(t, want, got)
}

// docs/operating.md tells of every event.
func TestEventsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("observe.go")
	require.NoError(t, err)
	doc, err := os.ReadFile("docs/operating.md")
	require.NoError(t, err)
	events := regexp.MustCompile(`func \((\w+)\) event\(\)`).FindAllStringSubmatch(string(source), -1)
	require.GreaterOrEqual(t, len(events), 8)
	for _, e := range events {
		assert.Contains(t, string(doc), "| `"+e[1]+"` |")
	}
}

// docs/tuning.md tells what to do about every reason, and has its text for those who look for it.
func TestReasonsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("errors.go")
	require.NoError(t, err)
	doc, err := os.ReadFile("docs/tuning.md")
	require.NoError(t, err)
	reasons := regexp.MustCompile(`(?m)^\t(Err\w+).*"cruise: ([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	require.GreaterOrEqual(t, len(reasons), 8)
	for _, r := range reasons {
		assert.Contains(t, string(doc), "| `"+r[1]+"`: "+r[2]+" |")
	}
}

// The README tells of a few clients what the scoreboard tells of all.
func TestReadmeShowsTheScoreboard(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	board, err := os.ReadFile("docs/scoreboard.md")
	require.NoError(t, err)
	_, suite, found := strings.Cut(string(board), "## Means: suite of 13\n")
	require.True(t, found)
	suite, _, _ = strings.Cut(strings.ReplaceAll(suite, "*", ""), "\n## ")
	for name, client := range map[string]string{
		"cruise":                        "cruise",
		"AWS SDK, adaptive mode":        "aws-adaptive",
		"cenkalti/backoff v7":           "cenkalti",
		"failsafe-go, adaptive limiter": "failsafe-adaptive",
		"Heroku's proportional rule, by cruise's `delay.Limiter`": "heroku-proportional",
	} {
		row := regexp.MustCompile(`(?m)^\| ` + client + ` \| 13 \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|`).FindStringSubmatch(suite)
		require.NotNil(t, row, client)
		var throttled, wait, use float64
		_, err := fmt.Sscan(strings.Join(row[1:], " "), &throttled, &wait, &use)
		require.NoError(t, err)
		want := fmt.Sprintf("| %s | %.2g %% | %.0f s | %s |\n", name, throttled, wait, strings.TrimPrefix(fmt.Sprintf("%.2f", use), "0"))
		assert.True(t, strings.Contains(string(readme), want), "the README lacks %q", want)
	}
}
