package debug_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/debug"
)

func Example() {
	page := debug.New()
	heroku := page.Watch("heroku")
	api := cruise.Must(cruise.New(cruise.WithObserver(heroku)))
	heroku.Add(api)

	mux := http.NewServeMux() // of the loopback interface, or behind a login
	mux.Handle("/debug/cruise", page)

	_ = api.Do(context.Background(), func(context.Context) error { return nil })
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/debug/cruise", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}

func ExampleWatch_Add() {
	page := debug.New(debug.WithKeys(debug.PlainKeys)) // hosts are no secret
	hosts := page.Watch("hosts")
	transport := cruise.Must(cruisehttp.NewTransport(cruisehttp.WithRetrierOptions(cruise.WithObserver(hosts))))
	hosts.Add(transport.Retrier())

	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client := &http.Client{Transport: transport}
	if resp, err := client.Get(server.URL); err == nil {
		resp.Body.Close()
	}
	for _, api := range page.Report().APIs {
		fmt.Println(api.Name, "sent", api.Attempts, "to", len(api.Limiters), "host")
	}
	// Output: hosts sent 1 to 1 host
}
