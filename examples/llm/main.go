// Llm shows an API with two limits, of requests and of tokens a minute: a language model on this
// machine names both on every response, in the headers of OpenAI, and refuses requests above
// either. Short prompts meet the limit of requests, long prompts that of tokens. The client
// is an http.Client with a cruisehttp.Transport, which slows down as the remaining numbers fall.
//
//	go run ./examples/llm
//	go run ./examples/llm -plain    without cruise: each refused prompt waits by itself
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

const workers = 20

func main() {
	plain := flag.Bool("plain", false, "send the prompts without cruise")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *plain, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "llm:", err)
		os.Exit(1)
	}
}

// A model answers 600 requests and 120,000 tokens a minute.
type model struct {
	mu               sync.Mutex
	requests, tokens *rate.Limiter
	refused          atomic.Int64
}

func newModel() *model {
	return &model{requests: rate.NewLimiter(10, 20), tokens: rate.NewLimiter(2000, 10_000)}
}

// ServeHTTP answers a prompt, which is as many tokens as it has words.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	n := len(strings.Fields(string(body)))

	m.mu.Lock()
	now := time.Now()
	wait := max(lacks(m.requests, now, 1), lacks(m.tokens, now, n))
	if wait == 0 {
		m.requests.AllowN(now, 1)
		m.tokens.AllowN(now, n)
	}
	tell(w.Header(), "Requests", m.requests, now)
	tell(w.Header(), "Tokens", m.tokens, now)
	m.mu.Unlock()

	if wait > 0 {
		m.refused.Add(1)
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(wait.Milliseconds()+1, 10))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	time.Sleep(200 * time.Millisecond)
	_, _ = io.WriteString(w, "an answer")
}

// lacks is the time until l has n tokens.
func lacks(l *rate.Limiter, now time.Time, n int) time.Duration {
	return time.Duration(max(0, float64(n)-l.TokensAt(now)) / float64(l.Limit()) * float64(time.Second))
}

// tell sets the headers of one limit.
func tell(h http.Header, name string, l *rate.Limiter, now time.Time) {
	h.Set("X-Ratelimit-Limit-"+name, strconv.Itoa(l.Burst()))
	h.Set("X-Ratelimit-Remaining-"+name, strconv.Itoa(int(max(0, l.TokensAt(now)))))
	h.Set("X-Ratelimit-Reset-"+name, lacks(l, now, l.Burst()).Round(time.Millisecond).String())
}

func run(ctx context.Context, plain bool, out io.Writer) error {
	m := newModel()
	api := httptest.NewServer(m)
	defer api.Close()

	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(
		cruisehttp.WithAnyMethod(),                                // a prompt may be answered twice
		cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(10)), // and is not to be lost where the limit falls
	))}
	if plain {
		client.Transport = &patient{}
	}
	fmt.Fprintf(out, "%d workers; the model admits 10 requests a second, 20 at once, and 2,000 tokens a second, 10,000 at once\n", workers)
	for _, part := range []struct {
		name           string
		prompts, words int
	}{
		{"short prompts, 20 tokens each", 120, 20},
		{"long prompts, 1,000 tokens each", 30, 1000},
	} {
		begun, refused := time.Now(), m.refused.Load()
		if err := send(ctx, client, api.URL, part.prompts, part.words); err != nil {
			return err
		}
		took := time.Since(begun).Seconds()
		fmt.Fprintf(out, "%-32s %3d in %4.1f s: %5.1f requests and %6.0f tokens a second, %d refused\n",
			part.name+":", part.prompts, took, float64(part.prompts)/took, float64(part.prompts*part.words)/took,
			m.refused.Load()-refused)
	}
	return nil
}

// send sends as many prompts of so many words.
func send(ctx context.Context, client *http.Client, url string, prompts, words int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	prompt := strings.Repeat("word ", words)
	var left atomic.Int64
	left.Store(int64(prompts))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				if err := ask(ctx, client, url, prompt); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func ask(ctx context.Context, client *http.Client, url, prompt string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(prompt))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return errors.Join(err, resp.Body.Close())
	}
	if resp.StatusCode != http.StatusOK {
		return errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	return resp.Body.Close()
}

// A patient RoundTripper sends a refused request again after the wait that it was told.
type patient struct{}

func (p *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests {
			return resp, err
		}
		ms, err := strconv.Atoi(resp.Header.Get("Retry-After-Ms"))
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
}
