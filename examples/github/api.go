package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// The limits of GitHub are 5,000 requests an hour, and bursts that are not
// documented. These are scaled down, so that the example takes no hour.
const (
	primary         = 100
	primaryWindow   = 5 * time.Second
	secondary       = 40
	secondaryWindow = time.Second
)

// api answers like api.github.com.
type api struct {
	pages                            int
	requests, byPrimary, bySecondary atomic.Int64

	mu       sync.Mutex
	used     int
	reset    time.Time // of the primary limit; whole seconds, as the header has them
	bursting int
	burst    time.Time // when the window of the secondary limit began
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := a.requests.Add(1)
	remaining, reset, calm := a.count(time.Now())
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-GitHub-Request-Id", fmt.Sprintf("C0DE:%04X", n))
	h.Set("X-GitHub-Media-Type", "github.v3; format=json")
	h.Set("X-RateLimit-Limit", strconv.Itoa(primary))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, remaining)))
	h.Set("X-RateLimit-Used", strconv.Itoa(primary-max(0, remaining)))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
	h.Set("X-RateLimit-Resource", "core")
	switch {
	case remaining < 0:
		a.byPrimary.Add(1)
		refuse(w, "API rate limit exceeded for user ID 1.", "https://docs.github.com/rest/overview/resources-in-the-rest-api#rate-limiting")
	case !calm:
		a.bySecondary.Add(1)
		h.Set("Retry-After", "1")
		refuse(w, "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
			"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits")
	default:
		a.list(w, r)
	}
}

// count takes a request off both limits. remaining is below 0 where the primary
// one is used up.
func (a *api) count(now time.Time) (remaining int, reset time.Time, calm bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !now.Before(a.reset) {
		a.used, a.reset = 0, now.Add(primaryWindow).Truncate(time.Second)
	}
	if a.used >= primary {
		return -1, a.reset, true
	}
	if now.Sub(a.burst) >= secondaryWindow {
		a.bursting, a.burst = 0, now
	}
	a.used++
	a.bursting++
	return primary - a.used, a.reset, a.bursting <= secondary
}

func refuse(w http.ResponseWriter, message, documentation string) {
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message, "documentation_url": documentation})
}

const perPage = 30

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	page, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil || page < 1 || page > a.pages {
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
		return
	}
	link := func(page int, rel string) string {
		return fmt.Sprintf(`<http://%s%s?page=%d>; rel=%q`, r.Host, r.URL.Path, page, rel)
	}
	if page < a.pages {
		w.Header().Set("Link", link(page+1, "next")+", "+link(a.pages, "last"))
	}
	issues := make([]map[string]any, perPage)
	for i := range issues {
		issues[i] = map[string]any{"number": (page-1)*perPage + i + 1, "state": "open"}
	}
	_ = json.NewEncoder(w).Encode(issues)
}
