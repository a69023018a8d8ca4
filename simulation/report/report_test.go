package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

// small is a report of a few scenarios of all sorts, short enough for a test.
var small = sync.OnceValue(func() Data {
	var list []*scenario.Scenario
	for _, name := range []string{"heroku-clear", changing, "emr-1000", "outage-1m", "metastable-280", "random-1", "random-2"} {
		s, err := scenario.Find(name)
		if err != nil {
			panic(err)
		}
		list = append(list, s)
	}
	clients := []engine.Client{client.Cruise("cruise"), client.Cenkalti(), client.Pacer()}
	d := Data{Recordings: Recordings{}}
	results := score.Play(list, clients, []uint64{1, 2}, nil, d.Recordings.Keep)
	d.Board = board.New(clients, results)
	return d
})

// charts is how many charts the page of the small report has: two trade-offs, and
// of five scenarios the waits, the shares, and the rates of two clients.
const charts = 2 + 5*4

func TestThePageIsWholeAndNeedsNoNetwork(t *testing.T) {
	var buf bytes.Buffer
	if err := small().HTML(&buf); err != nil {
		t.Fatal(err)
	}
	html := buf.String()
	if n := strings.Count(html, `role="img"`); n != charts {
		t.Errorf("%d charts, want %d", n, charts)
	}
	if n := strings.Count(html, `role="img" aria-label="`); n != charts {
		t.Errorf("%d charts have a label, want %d", n, charts)
	}
	for _, bad := range []string{"http://", "https://", "<script", "<link rel=\"stylesheet", "NaN", "ZgotmplZ", "+Inf"} {
		rest := strings.ReplaceAll(html, `xmlns="http://www.w3.org/2000/svg"`, "")
		if i := strings.Index(rest, bad); i >= 0 {
			t.Errorf("the page has %q: %.200s", bad, rest[max(0, i-80):])
		}
	}
	for _, want := range []string{`class="best"`, "<h2>Targets", "outage-1m", `lang="en"`, `name="viewport"`} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestFilesAreImagesThatTellWhatTheyShow(t *testing.T) {
	files, err := small().Files()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 {
		t.Errorf("%d files", len(files))
	}
	for _, f := range files {
		if f.Alt == "" || !strings.HasSuffix(f.Name, ".svg") {
			t.Errorf("%q: %q", f.Name, f.Alt)
		}
		for d := xml.NewDecoder(strings.NewReader(f.SVG)); ; {
			if _, err := d.Token(); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v", f.Name, err)
				}
				break
			}
		}
	}
}

func TestThePageRendersInABrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CRUISE_REQUIRE_SERVICES") == "1" {
			t.Fatal("chromium is required and missing")
		}
		t.Skip("chromium is missing; the page was not rendered")
	}
	dir := t.TempDir()
	var buf bytes.Buffer
	if err := small().HTML(&buf); err != nil {
		t.Fatal(err)
	}
	// What a browser lays out, it writes down where the dump of the page shows it.
	const count = `<script>addEventListener("load", function () {
		document.querySelectorAll("details").forEach(function (d) { d.open = true; });
		var seen = 0;
		document.querySelectorAll("svg[role=img]").forEach(function (s) {
			var r = s.getBoundingClientRect();
			if (r.width > 100 && r.height > 60 && s.querySelectorAll("path").length > 3 && s.querySelectorAll("text").length > 3) seen++;
		});
		document.title = "charts " + seen + " wide " + (document.documentElement.scrollWidth > innerWidth);
	});</script>`
	page := filepath.Join(dir, "page.html")
	if err := os.WriteFile(page, []byte(strings.Replace(buf.String(), "</body>", count+"</body>", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, size := range []string{"1200,900", "500,900"} {
		var out, log bytes.Buffer
		cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
			"--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--user-data-dir="+filepath.Join(dir, "profile"+size[:3]), "--window-size="+size,
			"--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom", "file://"+page)
		cmd.Stdout, cmd.Stderr = &out, &log
		cmd.WaitDelay = time.Second
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "CONSOLE") {
				t.Errorf("the console says %s", line)
			}
		}
		_, after, _ := strings.Cut(out.String(), "<title>")
		title, _, _ := strings.Cut(after, "</title>")
		if want := fmt.Sprintf("charts %d wide false", charts); title != want {
			t.Errorf("at %s the page has %q", size, title)
		}
	}
}
