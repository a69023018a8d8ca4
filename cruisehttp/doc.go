// Package cruisehttp makes HTTP clients keep to the server's rate limit. It understands every
// common way in which servers ask a client to slow down.
//
//	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport())}
//
// is all that it takes. A [Transport] paces the requests to each host, pauses
// all of them for as long as the server asks, and retries those that can be sent
// twice without harm.
//
// Package [github.com/a7df5faa/cruise/cruisehttp/signal] reads the responses. A Profile describes a
// provider as data. By default its Generic profile recognises many providers by itself, and reads
// everything else by the rules that hold for every server; [WithProfile] sets another one.
//
// # Above and beneath the Transport
//
// A request may wait for minutes, and be sent several times. So put every RoundTripper whose work
// must be fresh when the request is sent beneath the Transport ([WithRoundTripper]):
//
//   - signers, of AWS or OAuth 1.0 for instance: beneath, each attempt gets a date and a nonce of
//     its own; above, signatures grow old, and a request with a nonce is sent once ([ErrNonce])
//   - oauth2.Transport and other sources of tokens: beneath; above, a token may expire while the
//     request waits. If the source fails before the request is sent, mark its error by [Unsent]
//   - tracing and metrics, such as otelhttp: above, a span is a request with all of its waits and
//     attempts; beneath, it is one attempt
//   - caches: above, so that cached responses take nothing of the limit
//
// # Bulk requests
//
// A success may hold refusals: of items of a _bulk of OpenSearch, of requests in a $batch of OData
// or a batch of Google, of entries that DynamoDB, Kinesis or SQS did not take. The Transport
// returns the response, as some of its work is done, and the limiter slows down as for any
// throttle. The caller must send the refused items again: see the example.
//
// # SDKs
//
// An SDK takes a Transport, or an http.Client with one. The SDK's own retries would multiply the
// attempts of the Transport, so turn them off. The Transport returns the server's last response,
// and the SDK makes its own error of it. Use [WithQuotaResponses] to return that response also when
// a quota is used up.
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
// slack-go retries nothing unless OptionRetry is given. All of its calls are POSTs. After a 429 all
// are retried. After a 500 none is, not even a call that only reads, unless the Transport is one
// [WithAnyMethod].
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
// client-go retries a response with a Retry-After ten times; a Transport [WithoutRetryAfter] takes
// that header out. It has a limit of five requests a second; turn that off. Its base holds the
// certificates, so plug is a function that makes a Transport [WithRoundTripper].
//
//	config.QPS = -1
//	config.Wrap(plug)
//
// google-api-go-client retries only uploads; BigQuery and Cloud Storage retry their idempotent
// calls. Module cruisegoogle makes such a client with credentials beneath, where tokens stay fresh,
// and takes those retries out of the way.
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
