package debug

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

var (
	//go:embed page.html
	pageText string
	//go:embed style.css
	style string
	//go:embed script.js
	script string
)

// policy lets the page run its own script and style and fetch its own data, and nothing else.
var policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	hash(script), hash(style))

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// pageTemplate is executed with functions that know the present time: see render.
var pageTemplate = template.Must(template.New("page").Funcs(functions(time.Time{})).Parse(pageText))

func functions(now time.Time) template.FuncMap {
	return template.FuncMap{
		"ago": func(t *time.Time) string { return ago(now.Sub(*t)) },
		"when": func(t time.Time) string {
			if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
				return t.Format("15:04:05")
			}
			return t.Format("Jan 2 15:04:05")
		},
		"perSecond": rateText,
		"limit": func(l *float64) string {
			if l == nil {
				return "none"
			}
			return perSecond(rate.Limit(*l))
		},
		"calls": func(n uint64) string { return count(int(n), "call", "calls") },
		"budget": func(left *float64) string {
			if left == nil {
				return "no budget limits them"
			}
			return fmt.Sprintf("%.0f left in the budget", *left)
		},
		"pause": func(s float64) string {
			if s <= 0 {
				return "–"
			}
			return duration(time.Duration(math.Ceil(s)) * time.Second)
		},
		"top":     func(past []Point) string { return perSecond(rate.Limit(ceiling(past))) },
		"minutes": minutes,
		"last":    func(minutes int) string { return count(minutes, "minute", "minutes") },
		"chart":   func(a API, minutes int) template.HTML { return chart(a.History, minutes, describe(a)) },
		"spark":   func(l Limiter, minutes int) template.HTML { return chart(l.past, minutes, "") },
	}
}

// rateText returns a measured rate as text. 0 is a rate too.
func rateText(r float64) string {
	if r == 0 {
		return "0/s"
	}
	return perSecond(rate.Limit(r))
}

// describe returns the content of the chart in words.
func describe(a API) string {
	lowest, highest := math.Inf(1), 0.
	for _, p := range a.History {
		lowest, highest = math.Min(lowest, p.Rate), math.Max(highest, p.Rate)
	}
	return fmt.Sprintf("Attempts in the last 5 minutes: %s to %s, now %s; %s", rateText(lowest), rateText(highest), rateText(a.Rate), a.lately())
}

// ServeHTTP answers GET and HEAD with the page, or with a [Report] as JSON if the query has
// format=json, or if the client accepts application/json but not text/html. It answers 403 for a
// host that is not allowed: see [WithHosts].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Vary", "Accept")
	if !p.serves(r) {
		http.Error(w, "not served for this host: see WithHosts", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	report := p.Report()
	var body bytes.Buffer
	var err error
	accept := r.Header.Get("Accept")
	if r.URL.Query().Get("format") == "json" || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html") {
		h.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "\t")
		err = encoder.Encode(report)
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		err = render(&body, report)
	}
	if err != nil {
		http.Error(w, "cruise: "+err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body.Bytes()) // an error means that the client has gone
}

// serves reports whether the page may be shown for the host of the request.
func (p *Page) serves(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost") {
		return true
	}
	if len(p.hosts) > 0 {
		return slices.ContainsFunc(p.hosts, func(h string) bool { return strings.EqualFold(h, host) })
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return !ok || !local.IP.IsLoopback()
}

func render(body *bytes.Buffer, report Report) error {
	page, err := pageTemplate.Clone()
	if err != nil {
		return err
	}
	return page.Funcs(functions(report.At)).Execute(body, map[string]any{
		"Report": report, "Title": title(report), "Live": live(report),
		"Style": template.CSS(style), "Script": template.JS(script),
	})
}

// title returns the title of the page, with the trouble first, where a browser tab shows it.
func title(r Report) string {
	for _, a := range r.APIs {
		if a.State == StatePaused || a.State == StateThrottled {
			return fmt.Sprintf("%s: %s – cruise", a.Name, a.State)
		}
	}
	return "cruise"
}

// live returns the text that a screen reader reads out by itself. It has no numbers that change all
// the time, so it is read out only when a state changes.
func live(r Report) string {
	var bad []string
	for _, a := range r.APIs {
		switch a.State {
		case StatePaused:
			bad = append(bad, a.Name+" is paused")
		case StateThrottled:
			bad = append(bad, a.Name+" is throttled")
		}
	}
	if len(bad) == 0 {
		return "No API throttles."
	}
	return strings.Join(bad, ", ") + "."
}
