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
// is sent goes beneath the Transport, as its RoundTripper ([WithRoundTripper]):
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
//
// # SDKs
//
// An SDK takes a Transport, or an http.Client with one. What it retries by itself multiplies the
// attempts of the Transport, so turn that off, and let the Transport return what the server
// said last, of which the SDK makes its own error: by [WithQuotaResponses] also where a quota is
// used up.
//
//	transport := cruise.Must(cruisehttp.NewTransport(cruisehttp.WithQuotaResponses()…
//
// Each of the following makes five attempts at most, and returns the SDK's own error.
//
// go-github retries nothing by itself.
//
//	client, err := github.NewClient(github.WithTransport(transport)…
//
// stripe-go gives each POST an Idempotency-Key. Turn its retries off.
//
//	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{HTTPClient: &http.Client{Transport: transport}, MaxNetworkRetries: stripe.Int64(0)…
//	client := stripe.NewClient("key", stripe.WithBackends(backends))
//
// slack-go retries nothing unless OptionRetry is given. All of its calls are POSTs, so those that
// only read are retried after a 500 only by a Transport [WithAnyMethod]; after a 429 all are.
//
//	client := slack.New("token", slack.OptionHTTPClient(&http.Client{Transport: transport})…
//
// openai-go and anthropic-sdk-go retry POSTs by themselves. Turn that off, and give the Transport
// [WithAnyMethod] instead: to ask twice costs tokens, and does no other harm.
//
//	client := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: transport}), option.WithMaxRetries(0)…
//	client := anthropic.NewClient(option.WithHTTPClient(&http.Client{Transport: transport}), option.WithMaxRetries(0)…
//
// azcore, beneath all SDKs of Azure, takes -1 for no retries.
//
//	options := policy.ClientOptions{Transport: &http.Client{Transport: transport}, Retry: policy.RetryOptions{MaxRetries: -1}}
//
// client-go retries ten times what has a Retry-After, which a Transport [WithoutRetryAfter] takes
// out. It has a limit of five requests a second; turn that off. Its base holds the certificates, so
// plug is a function that makes a Transport [WithRoundTripper].
//
//	config.QPS = -1
//	config.Wrap(plug)
//
// google-api-go-client retries uploads alone, and BigQuery and Cloud Storage what they know as
// idempotent. Module cruisegoogle makes such a client with credentials beneath, where tokens stay
// fresh, and takes those retries out of the way.
//
//	service, err := drive.NewService(ctx, option.WithHTTPClient(&http.Client{Transport: transport})…
//
// minio-go takes 1 for no retries, as that counts attempts. It signs above the Transport: a
// signature is valid for 15 minutes, so bound the waits by a deadline.
//
//	client, err := minio.New(endpoint, &minio.Options{Transport: transport, MaxRetries: 1…
//
// The AWS SDK, too, signs above its HTTP client. Module cruiseaws sits where the SDK retries, and
// signs each attempt anew; prefer that. Else turn the SDK's retries off.
//
//	config := aws.Config{HTTPClient: &http.Client{Transport: transport}, Retryer: func() aws.Retryer { return aws.NopRetryer{} }}
package cruisehttp
