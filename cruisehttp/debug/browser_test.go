package debug_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/debug"
	"github.com/a7df5faa/cruise/internal/calm"
)

// probe checks the laid-out page and writes its findings into the title: text with too little
// contrast (WCAG 2.2 AA: 4.5), and elements wider than the window.
const probe = `<script>addEventListener("load", function () {
	const found = [], canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	function rgb(color) {
		canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
		return canvas.getImageData(0, 0, 1, 1).data;
	}
	function light(color) {
		const c = Array.from(rgb(color)).slice(0, 3).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
		return .2126 * c[0] + .7152 * c[1] + .0722 * c[2];
	}
	function behind(e) {
		for (; e; e = e.parentElement) { const b = getComputedStyle(e).backgroundColor; if (rgb(b)[3] === 255) return b; }
		return "white";
	}
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let texts = 0;
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.nodeValue.trim() || e.closest("script,noscript,[hidden]")) continue;
		texts++;
		const a = light(getComputedStyle(e).color), b = light(behind(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) found.push("contrast " + ratio.toFixed(1) + " of " + walk.currentNode.nodeValue.trim());
		const r = e.getBoundingClientRect();
		if (r.right > innerWidth + 1 && !e.closest(".scroll")) found.push("too wide: " + e.outerHTML.slice(0, 60));
	}
	if (document.documentElement.scrollWidth > innerWidth) found.push("scrolls sideways: " + document.documentElement.scrollWidth);
	document.querySelectorAll("svg[role=img]").forEach(s => {
		const r = s.getBoundingClientRect();
		if (r.width < 200 || r.height < 80) found.push("small chart");
	});
	if (document.querySelectorAll("svg[role=img]").length !== 3) found.push("charts");
	if (texts < 100) found.push("only " + texts + " texts");
	if (matchMedia("(prefers-color-scheme: dark)").matches) found.push("dark");
	parent.document.title = found.join("; ") || "good";
});</script>`

func TestThePageIsLegibleInABrowser(t *testing.T) {
	if calm.Raced {
		t.Skip("it is about a page that no longer changes")
	}
	chromium := browser(t)
	var html string
	synctest.Test(t, func(t *testing.T) {
		html = get(story(t), "/").Body.String()
	})
	script := html[strings.Index(html, "<script>"):strings.LastIndex(html, "</body>")]
	still := strings.Replace(html, script, probe, 1)                            // as it was at that moment
	still = strings.ReplaceAll(still, "billing", strings.Repeat("billing", 30)) // a name too long for a line
	mux := http.NewServeMux()
	mux.HandleFunc("/still", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, still) })
	mux.HandleFunc("/phone", func(w http.ResponseWriter, _ *http.Request) { // narrower than a browser's window can be
		fmt.Fprint(w, `<!doctype html><html><body style="margin:0"><iframe src="/still" style="border:0;width:375px;height:4000px"></iframe></body></html>`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, tt := range []struct{ name, path, size, theme, want string }{
		{"wide", "/still", "1200,2400", "1", "good"},
		{"wide, dark", "/still", "1200,2400", "0", "dark"},
		{"phone", "/phone", "500,4000", "1", "good"},
		{"phone, dark", "/phone", "500,4000", "0", "dark"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			picture := filepath.Join(t.ArtifactDir(), "page.png")
			dump, log := browse(t, chromium, server.URL+tt.path, "--window-size="+tt.size,
				"--blink-settings=preferredColorScheme="+tt.theme, "--hide-scrollbars", "--screenshot="+picture)
			assert.Equal(t, tt.want, titleOf(dump))
			quietConsole(t, log)
			assert.FileExists(t, picture)
		})
	}
}

// The page's own script runs under its own policy, and brings it up to date.
func TestThePageFollowsInABrowser(t *testing.T) {
	chromium := browser(t)
	page := debug.New()
	watch := page.Watch("api")
	api := cruise.Must(cruise.New(cruise.WithObserver(watch)))
	watch.Add(api)
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > 1 && r.URL.Path == "/" {
			_ = api.Do(r.Context(), func(context.Context) error { return cruise.Permanent(errors.New("it is later now")) })
		}
		page.ServeHTTP(w, r)
	}))
	defer server.Close()
	dump, log := browse(t, chromium, server.URL)
	quietConsole(t, log)
	assert.Contains(t, dump, "permanent: it is later now")
	assert.NotContains(t, dump, `id="hold" hidden`)
	assert.NotContains(t, dump, ">No answer")
}

func browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CRUISE_REQUIRE_SERVICES") == "1" {
			t.Fatal("chromium is not installed")
		}
		t.Skip("chromium is not installed")
	}
	return chromium
}

// browse opens a page in a new browser and returns the resulting document and the browser's log.
func browse(t *testing.T, chromium, url string, flags ...string) (dump, log string) {
	t.Helper()
	// Not t.TempDir: a browser's last children may still write their profile.
	dir, err := os.MkdirTemp("", "debug")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for try := 1; ; try++ { // a busy machine may stall a browser
		var out, errs bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		cmd := exec.CommandContext(ctx, chromium, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
			"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--user-data-dir=" + filepath.Join(dir, fmt.Sprint(try)),
			"--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"}, append(flags, url)...)...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.WaitDelay = 20 * time.Second
		err := cmd.Run()
		cancel()
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil // it ended well; a child of its still holds the log
		}
		if err == nil && strings.Contains(out.String(), "</html>") {
			return out.String(), errs.String()
		}
		require.Less(t, try, 3, "%v\n%s", err, &errs)
		t.Logf("once more, because of %v", err)
	}
}

func titleOf(html string) string {
	_, after, _ := strings.Cut(html, "<title>")
	title, _, _ := strings.Cut(after, "</title>")
	return title
}

func quietConsole(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		assert.NotContains(t, line, "CONSOLE")
	}
}
