package cruiseotel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseotel"
	"github.com/a7df5faa/cruise/internal/calm"
)

func TestMain(m *testing.M) { os.Exit(calm.Run(m)) }

const operating = "../docs/operating/"

// program finds a program that a test needs.
func program(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CRUISE_REQUIRE_SERVICES") == "1" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed", name)
	}
	return path
}

// serveMetrics serves the metrics of an API that throttles every tenth call, and has
// paused one region, until the test ends.
func serveMetrics(t *testing.T) *httptest.Server {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
	require.NoError(t, err)
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	o, err := cruiseotel.New("heroku", cruiseotel.WithMeterProvider(meters))
	require.NoError(t, err)
	api := cruise.Must(cruise.New(cruise.WithObserver(o), cruise.WithInitialRate(200), cruise.WithMaxServerDelay(time.Hour)))
	o.Add(api)

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(cancel)
	region := api.Scope("REGION", "eu")
	region.Limiter().(*cruise.AdaptiveLimiter).Pause(20 * time.Minute)
	all.Go(func() { _ = region.Do(ctx, func(context.Context) error { return nil }) })
	all.Go(func() {
		sent := 0
		for n := 0; ctx.Err() == nil; n++ {
			_ = api.Scope("ACCOUNT", fmt.Sprint(n%2)).Do(ctx, func(context.Context) error {
				time.Sleep(time.Millisecond)
				switch sent++; sent % 10 {
				case 0:
					return cruise.Throttled(errBoom, cruise.RetryAfter(10*time.Millisecond), cruise.InScope("ACCOUNT"))
				case 5:
					return cruise.QuotaExhausted(errBoom)
				}
				return nil
			})
		}
	})
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	return server
}

// startPrometheus has Prometheus scrape a server twice a second, with the rules of
// the documents, and returns its address.
func startPrometheus(t *testing.T, metrics *httptest.Server) string {
	path := program(t, "prometheus")
	dir, err := os.MkdirTemp("", "prometheus") // not t.TempDir: it may still write while it ends
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	rules, err := filepath.Abs(operating + "alerts.yml")
	require.NoError(t, err)
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs:
  - job_name: program
    static_configs: [{targets: [%q]}]
`, rules, strings.TrimPrefix(metrics.URL, "http://")), 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	cmd := exec.Command(path, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	output := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond, "prometheus does not start")
	return address
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// ask gets data from Prometheus' API.
func ask(address, path string, query url.Values, data any) error {
	resp, err := http.Get("http://" + address + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %w: %.200s", path, err, body)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

type vector struct {
	Result []struct {
		Metric map[string]string
		Value  [2]any
	}
}

// dashboard are the queries of the dashboard, by panel, ready to ask.
func dashboard(t *testing.T) map[string]string {
	text, err := os.ReadFile(operating + "grafana-dashboard.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			Title, Type, Description string
			Targets                  []struct{ Expr, RefID string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	exprs := map[string]string{}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			require.NotEmpty(t, p.Description, p.Title)
			exprs[p.Title+" "+target.RefID] = strings.NewReplacer("$api", ".*", "$__rate_interval", "1m", "[6h:30s]", "[1m:1s]", "offset 30s", "offset 1s").Replace(target.Expr)
		}
	}
	require.Greater(t, len(exprs), 15)
	return exprs
}

var (
	metricName = regexp.MustCompile(`\bcruise_\w+`)
	labels     = []string{"cruise_api", "cruise_outcome", "cruise_reason", "cruise_scope", "cruise_cause", "cruise_limit"}
)

// A real Prometheus scrapes the exported metrics, knows every metric of the dashboard and the
// alerts, and answers every query.
func TestPrometheusAnswersDashboardAndAlerts(t *testing.T) {
	address := startPrometheus(t, serveMetrics(t))
	var names []string
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, ask(address, "/api/v1/label/__name__/values", nil, &names))
		require.Contains(c, names, "cruise_attempts_total")
		var v vector // two scrapes at least, for rates
		require.NoError(c, ask(address, "/api/v1/query", url.Values{"query": {"count_over_time(cruise_scopes[1m]) > 5"}}, &v))
		require.Len(c, v.Result, 1)
	}, time.Minute, 100*time.Millisecond)

	exprs := dashboard(t)
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Query, Health, LastError string }
		}
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, ask(address, "/api/v1/rules", nil, &rules))
		require.Len(c, rules.Groups, 1)
		for _, r := range rules.Groups[0].Rules {
			require.Equal(c, "ok", r.Health, "%s: %s", r.Name, r.LastError)
		}
	}, time.Minute, 100*time.Millisecond)
	doc, err := os.ReadFile(operating + "../operating.md")
	require.NoError(t, err)
	for _, r := range rules.Groups[0].Rules {
		exprs["alert "+r.Name] = r.Query
		assert.Contains(t, string(doc), "| "+r.Name+" |")
	}

	// Alerts have no answer, as nothing has lasted for long enough.
	for name, expr := range exprs {
		for _, metric := range metricName.FindAllString(expr, -1) {
			if !slices.Contains(labels, metric) {
				assert.Contains(t, names, metric, "in %s", name)
			}
		}
		var v vector
		assert.NoError(t, ask(address, "/api/v1/query", url.Values{"query": {expr}}, &v), "%s: %s", name, expr)
		if !strings.HasPrefix(name, "alert ") {
			assert.NotEmpty(t, v.Result, "%s: %s", name, expr)
		}
	}
	for _, name := range names {
		if base := strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count"); strings.HasPrefix(name, "cruise_") && base == name {
			assert.Contains(t, fmt.Sprint(exprs), name, "neither in the dashboard nor in an alert")
		}
	}

	for query, want := range map[string]string{
		`cruise_queue_length{cruise_scope="REGION"}`:                                "1",
		`cruise_rate_limit_per_second{cruise_scope="ACCOUNT"} > 0`:                  "",
		`cruise_throttles_total{cruise_scope="ACCOUNT",cruise_limit="ACCOUNT"} > 0`: "",
		`sum(cruise_attempts_total{cruise_outcome="success"})`:                      "",
		`max(cruise_pause_remaining_seconds) > 1100`:                                "",
	} {
		var v vector
		require.NoError(t, ask(address, "/api/v1/query", url.Values{"query": {query}}, &v))
		if assert.Len(t, v.Result, 1, query) && want != "" {
			assert.Equal(t, want, v.Result[0].Value[1], query)
		}
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool := program(t, "promtool")
	out, err := exec.Command(promtool, "test", "rules", operating+"alerts-test.yml").CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

func TestTheDashboardIsTrue(t *testing.T) {
	promtool := program(t, "promtool")
	text, err := os.ReadFile(operating + "grafana-dashboard.json")
	require.NoError(t, err)
	for _, tt := range []struct {
		name, expr, series, want string // expr is the beginning of a query
	}{
		// Collected once a minute, beside the times at which queries look; the series of a
		// scope begins with its first throttle.
		{"one throttle", "time() - ", `
      - series: cruise_attempts_total{cruise_api="heroku",cruise_outcome="throttled"}
        values: _ _ 0 _ _ _ _ _ 0 _ _ _ _ _ 1 _ _ _ _ _ 1 _ _ _ _ _ 1 _ _ _ _ _ 1
      - series: cruise_throttles_total{cruise_api="heroku",cruise_scope="HOST"}
        values: _ _ _ _ _ _ _ _ _ _ _ _ _ _ 1 _ _ _ _ _ 1 _ _ _ _ _ 1 _ _ _ _ _ 1`,
			`[{labels: "{}", value: 150}]`},
		{"two processes, each with a limit and a queue", "max by (cruise_api, cruise_scope) (cruise_queue_length", `
      - series: cruise_queue_length{cruise_api="heroku",cruise_scope="all",instance="1"}
        values: 20x30
      - series: cruise_rate_limit_per_second{cruise_api="heroku",cruise_scope="all",instance="1"}
        values: 10x30
      - series: cruise_pause_remaining_seconds{cruise_api="heroku",cruise_scope="all",instance="1"}
        values: 1x30
      - series: cruise_queue_length{cruise_api="heroku",cruise_scope="all",instance="2"}
        values: 3x30
      - series: cruise_rate_limit_per_second{cruise_api="heroku",cruise_scope="all",instance="2"}
        values: 2x30
      - series: cruise_pause_remaining_seconds{cruise_api="heroku",cruise_scope="all",instance="2"}
        values: 0x30`,
			`[{labels: '{cruise_api="heroku", cruise_scope="all"}', value: 3}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expr := regexp.MustCompile(`"expr": ("` + regexp.QuoteMeta(tt.expr) + `.*")`).FindSubmatch(text)
			require.NotNil(t, expr)
			file := filepath.Join(t.TempDir(), "test.yml")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
evaluation_interval: 30s
tests:
  - interval: 10s
    input_series: %s
    promql_expr_test:
      - {eval_time: 5m, expr: %s, exp_samples: %s}
`, tt.series, strings.ReplaceAll(string(expr[1]), "$api", "heroku"), tt.want), 0o600))
			out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
}
