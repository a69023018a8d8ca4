// Google shows the official client of Drive, as it is and then with cruisegoogle: 8 workers list
// the files of 60 folders, at a server on this machine that admits 25 requests a second and
// answers 403 to the rest, as Drive does. It shows its progress and ends with a table.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/api/drive/v3"
	"google.golang.org/api/option"

	"github.com/a7df5faa/cruise/cruisegoogle"
)

const (
	folders = 60
	pages   = 6   // of each folder
	perPage = 100 // files
	workers = 8
	limit   = 25 // requests a second
)

// api is a Drive in which all folders look alike.
type api struct {
	bucket              *rate.Limiter
	requests, throttled atomic.Int64
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.requests.Add(1)
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	if !a.bucket.Allow() {
		a.throttled.Add(1)
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"error":{"code":403,"message":"User Rate Limit Exceeded","errors":`+
			`[{"domain":"usageLimits","reason":"userRateLimitExceeded","message":"User Rate Limit Exceeded"}]}}`)
		return
	}
	page := 1
	_, _ = fmt.Sscan(r.URL.Query().Get("pageToken"), &page) // the first has no token
	fmt.Fprint(w, `{"files":[`)
	for i := range perPage {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, `{"id":"%d-%d","name":"file"}`, page, i)
	}
	fmt.Fprint(w, `]`)
	if page < pages {
		fmt.Fprintf(w, `,"nextPageToken":"%d"`, page+1)
	}
	fmt.Fprint(w, `}`)
}

// list counts the folders that could be read to their end, and the files in them.
func list(ctx context.Context, name string, client *http.Client, url string) (files, complete int64, err error) {
	service, err := drive.NewService(ctx, option.WithHTTPClient(client), option.WithEndpoint(url)) // yours needs no endpoint
	if err != nil {
		return 0, 0, err
	}
	var (
		all            sync.WaitGroup
		next, n, whole atomic.Int64
	)
	for range workers {
		all.Go(func() {
			for folder := next.Add(1); folder <= folders; folder = next.Add(1) {
				found := 0
				call := service.Files.List().Q(fmt.Sprintf("'folder-%d' in parents", folder)).PageSize(perPage)
				err := call.Pages(ctx, func(page *drive.FileList) error {
					found += len(page.Files)
					return nil
				})
				if err == nil {
					n.Add(int64(found))
					if done := whole.Add(1); done%10 == 0 {
						fmt.Printf("%s: %d of %d folders, %d files\n", name, done, folders, n.Load())
					}
				}
			}
		})
	}
	all.Wait()
	return n.Load(), whole.Load(), nil
}

func main() {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: go run ./examples/google (it has no options)") }
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "google: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	auth := []option.ClientOption{option.WithAPIKey("key")} // or WithScopes(drive.DriveReadonlyScope), say
	paced, err := cruisegoogle.NewHTTPClient(ctx, auth)
	if err != nil {
		log.Fatal(err)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\tfolders\tfiles\trequests\tthrottled\ttook\t\n")
	for _, c := range []struct {
		name   string
		client *http.Client
	}{
		{"as it is", &http.Client{}},
		{"cruisegoogle", paced},
	} {
		a := &api{bucket: rate.NewLimiter(limit, limit)}
		server := httptest.NewServer(a)
		began := time.Now()
		files, complete, err := list(ctx, c.name, c.client, server.URL)
		if err != nil {
			log.Fatal(err)
		}
		took := time.Since(began)
		server.Close()
		fmt.Fprintf(table, "%s\t%d of %d\t%d\t%d\t%.1f %%\t%v\t\n", c.name, complete, folders, files, a.requests.Load(),
			100*float64(a.throttled.Load())/float64(a.requests.Load()), took.Round(10*time.Millisecond))
	}
	fmt.Println()
	if err := table.Flush(); err != nil {
		log.Fatal(err)
	}
}
