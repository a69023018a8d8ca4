package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// The README's code is that between README and end in these files, in its order.
func TestReadmeShowsTestedCode(t *testing.T) {
	var want, got []string
	for _, name := range []string{"readme_test.go", "examples/workers/readme_test.go"} {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?ms)^\t+// README\n(\t+)(.*?)\n\t+// end$`).FindAllStringSubmatch(string(source), -1) {
			want = append(want, strings.ReplaceAll(m[2], "\n"+m[1], "\n"))
		}
	}
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)\n```").FindAllStringSubmatch(string(readme), -1) {
		assert.LessOrEqual(t, strings.Count(m[1], "\n")+1, 8, "lines of %s", m[1])
		got = append(got, m[1])
	}
	assert.ElementsMatch(t, want, got)
	assert.Len(t, got, 7, "an HTTP client, any call, and five recipes")
	assert.LessOrEqual(t, strings.Count(string(readme), "\n"), 150, "lines")
}

// inMemory makes the requests of the default transport end at the handler, without a network.
func inMemory(t *testing.T, handler http.HandlerFunc) {
	t.Helper()
	before := http.DefaultTransport
	http.DefaultTransport = roundTripper(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		handler(w, r)
		resp := w.Result()
		resp.Request = r
		return resp, nil
	})
	t.Cleanup(func() { http.DefaultTransport = before })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestReadmeHTTPClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := 1
		inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
			if refusals--; refusals >= 0 {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		begun := time.Now()

		// README
		transport := cruise.Must(cruisehttp.NewTransport())
		client := &http.Client{Transport: transport}
		resp, err := client.Get("https://api.example.com/")
		// end

		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.GreaterOrEqual(t, time.Since(begun), 7*time.Second)
	})
}

func TestReadmeAnyCall(t *testing.T) {
	// README
	api := cruise.Must(cruise.New()) // one for each API, shared by all goroutines
	addrs, err := cruise.DoValue(context.Background(), api, func(ctx context.Context) ([]string, error) {
		return net.DefaultResolver.LookupHost(ctx, "localhost")
	})
	// end

	require.NoError(t, err)
	assert.NotEmpty(t, addrs)
}

func TestReadmeKnownRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// README
		api := cruise.Must(cruise.New(cruise.WithMaxRate(10))) // calls a second
		// end

		begun := time.Now()
		for range 101 {
			require.NoError(t, api.Do(t.Context(), func(context.Context) error { return nil }))
		}
		assert.InDelta(t, 10, time.Since(begun).Seconds(), .01)
	})
}

func TestReadmePerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "limited" {
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})

		// README
		transport := cruise.Must(cruisehttp.NewTransport(
			cruisehttp.WithScope("host", cruisehttp.HostKey),
			cruisehttp.WithScope("token", cruisehttp.HeaderKey("Authorization")),
		))
		// end

		get := func(token string, wait time.Duration) (time.Duration, error) {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil)
			require.NoError(t, err)
			req.Header.Set("Authorization", token)
			resp, err := transport.RoundTrip(req)
			if err == nil {
				err = resp.Body.Close()
			}
			return time.Since(begun), err
		}
		_, _ = get("limited", time.Second)
		took, err := get("other", time.Second)
		require.NoError(t, err)
		assert.Zero(t, took)
		_, err = get("limited", time.Second)
		assert.ErrorIs(t, err, cruise.ErrDeadline, "that token is paused")
	})
}

func TestReadmeBulkJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, names := t.Context(), []string{"a", "b", "c"}
		errs := make(chan error, len(names))
		var refused atomic.Int64
		upload := func(context.Context, string) error {
			if refused.Add(1) <= 20 {
				return cruise.Throttled(errors.New("429"), cruise.RetryAfter(time.Minute))
			}
			return nil
		}

		// README
		api := cruise.Must(cruise.New(cruise.WithUncountedThrottles(), cruise.WithMaxElapsed(time.Hour)))
		var workers sync.WaitGroup
		for _, name := range names {
			workers.Go(func() {
				errs <- api.Do(ctx, func(ctx context.Context) error { return upload(ctx, name) })
			})
		}
		// end

		workers.Wait()
		for range names {
			assert.NoError(t, <-errs)
		}
	})
}

func TestReadmeTest(t *testing.T) {
	begun := time.Now()

	// README
	synctest.Test(t, func(t *testing.T) {
		api := cruise.Must(cruise.New(cruise.WithMaxRate(1)))
		for range 61 {
			_ = api.Do(t.Context(), func(context.Context) error { return nil })
		} // a minute has passed on the fake clock
	})
	// end

	assert.Less(t, time.Since(begun), 30*time.Second)
}

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

// An error that cruise does not know is wrapped by the call.
func Example() {
	client := &appClient{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	api := cruise.Must(cruise.New()) // one for each API, shared by all goroutines

	app, err := cruise.DoValue(ctx, api, func(ctx context.Context) (string, error) {
		app, err := client.App(ctx, "example")
		if failed, ok := errors.AsType[*APIError](err); ok {
			switch failed.Code {
			case "rate_limited":
				return "", cruise.Throttled(err, cruise.RetryAfter(failed.Wait)) // everyone slows down
			case "not_found":
				return "", cruise.Permanent(err) // another attempt would not help
			}
		}
		return app, err
	})

	fmt.Println(app, err)
	// Output: example <nil>
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
func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
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
func TestNamesInDocumentsExist(t *testing.T) {
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
