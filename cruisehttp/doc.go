// Package cruisehttp makes HTTP clients keep to the rate that a server gives
// them: it understands every common way in which servers say slow down.
//
//	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport())}
//
// is all that it takes. A [Transport] paces the requests to each host, pauses
// all of them for as long as the server asks, and retries those that can be sent
// twice without harm.
//
// A [Profile] holds what is known of a provider, as data, and reads a response
// into a [Signal]: what the attempt meant, how long to wait, which limit is to
// blame, and what is left of the limits. [Generic] recognises the providers of
// this package by itself and reads everything else by the rules that hold for
// every server.
package cruisehttp
