package report

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a7df5faa/cruise/internal/calm"
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
	if calm.Raced {
		t.Skip("it takes long, and others race as much")
	}
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
	// A browser that darkens pages by itself would leave dark labels in charts without a ground.
	for _, want := range []string{`class="best"`, "<h2>Targets", "outage-1m", `lang="en"`, `name="viewport"`, "color-scheme: only light", "<dt>wait ratio</dt><dd>the longest wait, relative"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// A small page has no heads of missing parts.
func TestThePageOfAPeerAtARandomServer(t *testing.T) {
	s, err := scenario.Find("random-1")
	if err != nil {
		t.Fatal(err)
	}
	peer := []engine.Client{client.Cenkalti()}
	d := Data{Board: board.New(peer, score.Play([]*scenario.Scenario{s}, peer, []uint64{1}, nil, nil))}
	var page, md strings.Builder
	if err := errors.Join(d.HTML(&page), d.Board.Markdown(&md, nil)); err != nil {
		t.Fatal(err)
	}
	for _, none := range []string{">Scenarios<", "## Scenarios", "place;", "<dt>stdev"} {
		if strings.Contains(page.String()+md.String(), none) {
			t.Errorf("%q of nothing", none)
		}
	}
}

// A bucket that does not refill has no rate, but its successes are drawn all the same.
func TestTheAxisReachesTheLastPoint(t *testing.T) {
	d := small()
	for _, name := range []string{"heroku-clear", "emr-1000", changing} {
		recs := d.recordings(name)
		got := 0.
		for _, rec := range recs {
			got = max(got, float64(rec.Totals().Successes)/rec.Elapsed.Seconds())
		}
		if top := highest(recs); top < got {
			t.Errorf("%s: the axis ends at %.3g/s, the mean rate is %.3g/s", name, top, got)
		}
	}
}

// All that there is to use is the line that points are looked at against.
func TestTheAxisOfUseHasItsTop(t *testing.T) {
	d := small()
	for _, use := range []float64{.98, .76, .57, .31, 0} {
		rows := d.Board.Rows()[0]
		rows[0].Means.Use = use
		svg, err := d.Tradeoff(rows)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(svg, ">1.00</text>") {
			t.Errorf("down to a use of %v the axis has no 1.00", use)
		}
	}
}

// A user who tries a limiter wants to see it beside the usual one.
func TestEveryOneOfOurOwnIsDrawnOverTime(t *testing.T) {
	clients := []engine.Client{client.Cenkalti(), client.Oracle(), client.Cruise(scenario.Yours), client.Cruise("cruise")}
	d := Data{Board: &board.Board{Clients: clients, Own: scenario.Yours}, Recordings: Recordings{"a": {}}}
	for _, c := range clients {
		d.Recordings["a"][c.Name] = &engine.Recording{Client: c.Name}
	}
	var names []string
	for _, rec := range d.shown(d.recordings("a")) {
		names = append(names, rec.Client)
	}
	if want := []string{scenario.Yours, "cruise", "cenkalti"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

func TestFilesAreImagesWithATitle(t *testing.T) {
	files, err := small().Files()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 {
		t.Errorf("%d files", len(files))
	}
	for _, f := range files {
		if f.Alt == "" || f.Caption == "" || !strings.HasSuffix(f.Suffix, ".svg") {
			t.Errorf("%q: %q", f.Suffix, f.Alt)
		}
		for d := xml.NewDecoder(strings.NewReader(f.SVG)); ; {
			if _, err := d.Token(); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v", f.Suffix, err)
				}
				break
			}
		}
	}
}

func TestThePageRendersInABrowser(t *testing.T) {
	if calm.Raced {
		t.Skip("it takes long, and others race as much")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CRUISE_REQUIRE_SERVICES") == "1" {
			t.Fatal("chromium is required and missing")
		}
		t.Skip("chromium is missing; the page was not rendered")
	}
	// Not t.TempDir: a browser's last children may still write their profile.
	dir, err := os.MkdirTemp("", "report")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var buf bytes.Buffer
	if err := small().HTML(&buf); err != nil {
		t.Fatal(err)
	}
	// The browser writes its layout where the dump of the page shows it.
	const count = `<script>addEventListener("load", function () {
		document.querySelectorAll("details").forEach(function (d) { d.open = true; });
		var seen = 0;
		document.querySelectorAll("svg[role=img]").forEach(function (s) {
			var r = s.getBoundingClientRect();
			if (r.width > 100 && r.height > 60 && s.querySelectorAll("path").length > 3 && s.querySelectorAll("text").length > 3) seen++;
		});
		var wide = document.documentElement.scrollWidth > innerWidth;
		var sheet = document.styleSheets[0], cut = 0;
		Array.from(sheet.cssRules).forEach(function (m) { // as on paper, which does not scroll
			if (m.media && m.media.mediaText == "print") Array.from(m.cssRules).forEach(function (r) { sheet.insertRule(r.cssText, sheet.cssRules.length); });
		});
		document.querySelectorAll(".scroll").forEach(function (s) { if (innerWidth > 900 && s.scrollWidth > s.clientWidth) cut++; });
		document.title = "charts " + seen + " wide " + wide + " cut " + cut;
	});</script>`
	page := filepath.Join(dir, "page.html")
	if err := os.WriteFile(page, []byte(strings.Replace(buf.String(), "</body>", count+"</body>", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, size := range []string{"980,900", "500,900"} {
		dump, log, err := browse(t, chromium, dir, size, page)
		for again := 0; err != nil && again < 2; again++ { // a busy machine may stall a browser
			t.Logf("once more, because of %v", err)
			dump, log, err = browse(t, chromium, dir, size, page)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		for line := range strings.Lines(log) {
			if strings.Contains(line, "CONSOLE") {
				t.Errorf("the console says %s", line)
			}
		}
		_, after, _ := strings.Cut(dump, "<title>")
		title, _, _ := strings.Cut(after, "</title>")
		if want := fmt.Sprintf("charts %d wide false cut 0", charts); title != want {
			t.Errorf("at %s the page has %q", size, title)
		}
	}
}

// browse opens a page in a new browser and returns the resulting document and the browser's log.
func browse(t *testing.T, chromium, dir, size, page string) (dump, log string, err error) {
	profile, err := os.MkdirTemp(dir, "profile")
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir="+profile, "--window-size="+size,
		"--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom", "file://"+page)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 20 * time.Second
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well; a child of its still holds the log
	}
	if err == nil && !strings.Contains(out.String(), "</html>") {
		err = errors.New("no page in the dump")
	}
	return out.String(), errs.String(), err
}
