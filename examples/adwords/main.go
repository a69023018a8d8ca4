// Adwords shows a limit for each account within a common one: two accounts with one developer
// token call a server that limits each account and both together, as AdWords did, by a SOAP
// fault that names the limit and the wait. Without scopes, the limit of the small account slows
// the large one; with scopes it does not. Both ways run at the same time, each with a server of
// its own, show their progress and end with a table.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegoogle"
)

const (
	workers   = 5 // for each account
	developer = 40
)

// accounts, with how many calls are to be made for them, and their limits in calls
// a second.
var accounts = []struct {
	id    string
	calls int64
	limit rate.Limit
}{
	{"small", 50, 5},
	{"large", 300, 30},
}

// ads is a server that keeps the limits.
type ads struct {
	byAccount map[string]*rate.Limiter
	developer *rate.Limiter
}

func newAds() *ads {
	a := &ads{byAccount: map[string]*rate.Limiter{}, developer: rate.NewLimiter(developer, developer)}
	for _, account := range accounts {
		a.byAccount[account.id] = rate.NewLimiter(account.limit, int(account.limit))
	}
	return a
}

func (a *ads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !a.byAccount[r.URL.Query().Get("clientCustomerId")].Allow():
		refuse(w, "ACCOUNT")
	case !a.developer.Allow():
		refuse(w, "DEVELOPER")
	default:
		fmt.Fprint(w, `<soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/"><soap:Body/></soap:Envelope>`)
	}
}

func refuse(w http.ResponseWriter, scope string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(http.StatusInternalServerError)
	fmt.Fprintf(w, `<soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/"><soap:Body><soap:Fault>`+
		`<faultcode>soap:Server</faultcode><faultstring>[RateExceededError]</faultstring><detail><ApiExceptionFault><errors>`+
		`<errorString>RateExceededError.RATE_EXCEEDED</errorString><ApiError.Type>RateExceededError</ApiError.Type>`+
		`<rateName>RequestsPerMinute</rateName><rateScope>%s</rateScope><retryAfterSeconds>1</retryAfterSeconds>`+
		`</errors></ApiExceptionFault></detail></soap:Fault></soap:Body></soap:Envelope>`, scope)
}

// call makes one call for an account.
func call(ctx context.Context, url, account string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?clientCustomerId="+account, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return cruisegoogle.AdsError(resp, body) // nil if it is none
}

// seen counts throttles.
type seen struct{ throttles atomic.Int64 }

func (s *seen) Observe(_ context.Context, e cruise.Event) {
	if e, ok := e.(cruise.AttemptEnded); ok && e.Outcome == cruise.OutcomeThrottled {
		s.throttles.Add(1)
	}
}

// run makes the calls of each account by the Retrier that retrier returns, and returns how long
// each account took.
func run(ctx context.Context, name string, retrier func(account string) *cruise.Retrier) (took []time.Duration, failed int64) {
	server := httptest.NewServer(newAds())
	defer server.Close()
	took = make([]time.Duration, len(accounts))
	var (
		all sync.WaitGroup
		bad atomic.Int64
	)
	began := time.Now()
	for i, account := range accounts {
		all.Go(func() {
			var (
				group sync.WaitGroup
				next  atomic.Int64
			)
			for range workers {
				group.Go(func() {
					for next.Add(1) <= account.calls {
						err := retrier(account.id).Do(ctx, func(ctx context.Context) error {
							return call(ctx, server.URL, account.id)
						})
						if err != nil {
							bad.Add(1)
						}
					}
				})
			}
			group.Wait()
			took[i] = time.Since(began)
			fmt.Printf("%s: %d calls of the %s account in %.1f s\n", name, account.calls, account.id, took[i].Seconds())
		})
	}
	all.Wait()
	return took, bad.Load()
}

func main() {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: go run ./examples/adwords (it has no options)") }
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "adwords: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	ways := []struct {
		name    string
		retrier func(developer *cruise.Retrier, account string) *cruise.Retrier
	}{
		{"without scopes", func(developer *cruise.Retrier, _ string) *cruise.Retrier { return developer }},
		{"with scopes", func(developer *cruise.Retrier, account string) *cruise.Retrier {
			return developer.Scope(cruisegoogle.ScopeAccount, account)
		}},
	}
	results := make([]struct {
		throttles seen
		took      []time.Duration
		failed    int64
	}, len(ways))
	var both sync.WaitGroup
	for i, way := range ways {
		r := &results[i]
		developer, err := cruise.New(cruise.WithUncountedThrottles(), cruise.WithObserver(&r.throttles))
		if err != nil {
			log.Fatal(err)
		}
		both.Go(func() {
			r.took, r.failed = run(ctx, way.name, func(account string) *cruise.Retrier { return way.retrier(developer, account) })
		})
	}
	both.Wait()

	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\t")
	for _, account := range accounts {
		fmt.Fprintf(table, "%s, %.0f/s\t", account.id, float64(account.limit))
	}
	fmt.Fprint(table, "throttled\tfailed\t\n")
	for i := range results {
		r := &results[i]
		fmt.Fprintf(table, "%s\t", ways[i].name)
		for k, account := range accounts {
			fmt.Fprintf(table, "%d in %.1f s\t", account.calls, r.took[k].Seconds())
		}
		fmt.Fprintf(table, "%d\t%d\t\n", r.throttles.throttles.Load(), r.failed)
	}
	if err := table.Flush(); err != nil {
		log.Fatal(err)
	}
}
