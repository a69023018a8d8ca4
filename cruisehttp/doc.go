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
//
// # What goes above, and what beneath
//
// A request may wait for minutes, and be sent several times. So all that must be fresh when it
// is sent goes beneath the Transport, as its base ([WithBase]):
//
//   - signers, of AWS or OAuth 1.0 for instance: beneath, each attempt gets a date and a nonce of
//     its own; above, signatures grow old, and a request with a nonce is sent once ([ErrNonce])
//   - oauth2.Transport and other sources of tokens: beneath; above, a token may expire while the
//     request waits. Let what fails before it sends say so by [Unsent]
//   - tracing and metrics, such as otelhttp: above, a span is a request with all of its waits and
//     attempts; beneath, it is one attempt
//   - caches: above, so that what is cached takes nothing of the limit
//
// # Bulk requests
//
// A success may hold refusals: of items of a _bulk of OpenSearch, of requests in a $batch of
// OData or a batch of Google, of entries that DynamoDB, Kinesis or SQS did not take. The response is
// returned, as some of its work is done, and the limiter slows down as for any throttle. To send
// the refused items again is the caller's part: see the example.
package cruisehttp
