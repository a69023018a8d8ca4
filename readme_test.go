package cruise_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
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

// startServer serves an app, after one 429.
func startServer() *httptest.Server {
	requests := 0
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, `{"name":"example"}`)
	}))
}

func Example() {
	server := startServer()
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var app struct{ Name string }
	req := cruise.Must(http.NewRequest(http.MethodGet, server.URL, nil))

	// README
	api := cruise.Must(cruise.New()) // one for each API, shared by all goroutines

	err := api.Do(ctx, func(ctx context.Context) error {
		resp, err := http.DefaultClient.Do(req.WithContext(ctx))
		if err != nil {
			return err // worth another attempt
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			return cruise.Throttled(errors.New(resp.Status)) // everyone slows down
		}
		return json.NewDecoder(resp.Body).Decode(&app)
	})

	fmt.Println(app.Name, err)
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

// Links of the documents lead to files that exist.
func TestDocumentsLinkToWhatIsThere(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, doc := range append(docs, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		prose := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(text), "")
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`).FindAllStringSubmatch(prose, -1) {
			assert.FileExists(t, filepath.Join(filepath.Dir(doc), link[1]), "in %s", doc)
		}
	}
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
