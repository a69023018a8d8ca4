// Package cruisehttp makes HTTP clients keep to the rate that a server gives
// them: it understands every common way in which servers say slow down.
//
//	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport())}
//
// is all that it takes. A [Transport] paces the requests to each host, pauses
// all of them for as long as the server asks, and retries those that can be sent
// twice without harm.
//
// Package [github.com/a7df5faa/cruise/cruisehttp/signal] reads the responses: a Profile holds what is known of a
// provider, as data. By default its Generic profile recognises many providers by itself, and
// reads everything else by the rules that hold for every server; [WithProfile] gives
// another one.
package cruisehttp
