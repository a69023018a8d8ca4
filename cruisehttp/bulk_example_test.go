package cruisehttp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// search is a server that takes two documents of a bulk and refuses the others.
func search() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		type item map[string]map[string]int
		answer := struct {
			Errors bool   `json:"errors"`
			Items  []item `json:"items"`
		}{}
		for i := range strings.Count(string(body), "\n") / 2 {
			status := http.StatusCreated
			if i >= 2 {
				status, answer.Errors = http.StatusTooManyRequests, true
			}
			answer.Items = append(answer.Items, item{"index": {"status": status}})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
}

// A bulk that is refused in part is a success to HTTP. It slows down all requests to the host. The
// caller sends only the refused items again.
func Example_bulk() {
	api := search()
	defer api.Close()
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(
		cruisehttp.WithRetrierOptions(cruise.WithTuning(cruise.Tuning{PauseBackoff: cruise.Must(cruise.ConstantBackoff(time.Millisecond))})), // for a quick example
	))}

	documents := []string{`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`}
	for len(documents) > 0 {
		var bulk strings.Builder
		for _, document := range documents {
			fmt.Fprintf(&bulk, "{\"index\":{}}\n%s\n", document)
		}
		resp, err := client.Post(api.URL+"/things/_bulk", "application/x-ndjson", strings.NewReader(bulk.String()))
		if err != nil {
			fmt.Println(err)
			return
		}
		var answer struct {
			Items []map[string]struct{ Status int }
		}
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil || len(answer.Items) != len(documents) {
			fmt.Println(resp.Status, err)
			return
		}
		var refused []string
		for i, item := range answer.Items {
			switch status := item["index"].Status; {
			case status == http.StatusTooManyRequests:
				refused = append(refused, documents[i])
			case status >= 300:
				fmt.Println("failed for good:", documents[i])
			}
		}
		fmt.Println(len(documents)-len(refused), "taken,", len(refused), "refused")
		documents = refused
	}
	// Output:
	// 2 taken, 3 refused
	// 2 taken, 1 refused
	// 1 taken, 0 refused
}
