// Package cruisehttp makes HTTP clients keep to the server's rate limit. It understands every
// common way in which servers ask a client to slow down. One line is enough:
//
//	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport())}
//
// A [Transport] paces the requests to each host, pauses all of them for as long as the server asks,
// and retries those that can be sent twice without harm.
//
// Package [github.com/a7df5faa/cruise/cruisehttp/signal] reads the responses. Its Profile describes
// the responses of a provider as data. The default profile, Generic, recognises many providers, and
// reads the responses of others by common rules. [WithProfile] sets another one.
//
// # Above and beneath the Transport
//
// A request may wait for minutes, and be sent several times. So a RoundTripper with work that must
// be fresh when the request is sent belongs beneath the Transport, by [WithRoundTripper]:
//
//   - Signers, of AWS or OAuth 1.0 for instance, belong beneath: each attempt gets a date and a
//     nonce of its own. Above, signatures grow old, and a request with a nonce is sent once
//     ([ErrNonce]).
//   - oauth2.Transport and other sources of tokens belong beneath: above, a token may expire while
//     the request waits. If the source fails before the request is sent, mark its error by [Unsent].
//   - Tracing and metrics, such as otelhttp, fit in both places. Above, a span is a request with all
//     of its waits and attempts; beneath, it is one attempt.
//   - Caches belong above, so that cached responses take nothing of the limit.
//
// # Bulk requests
//
// A successful response may say that the server refused a part of the request: items of a
// _bulk of OpenSearch, requests of a $batch of OData or a batch of Google, entries for DynamoDB,
// Kinesis or SQS. The Transport returns the response, as the rest is done, and the limiter slows
// down as for any throttle. The caller must send the refused items again: see the example Bulk.
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
// With the lines below each SDK makes five attempts at most, and returns its own error.
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
// are retried. After a 500 no call is retried, not even one that only reads, unless the Transport
// has [WithAnyMethod].
//
//	client := slack.New("token", slack.OptionHTTPClient(&http.Client{Transport: transport})…
//
// openai-go and anthropic-sdk-go retry POSTs by themselves. Turn that off, and give the Transport
// [WithAnyMethod] instead: a request that is sent twice costs tokens, and does no other harm.
//
//	client := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: transport}), option.WithMaxRetries(0)…
//	client := anthropic.NewClient(option.WithHTTPClient(&http.Client{Transport: transport}), option.WithMaxRetries(0)…
//
// azcore is the base of all SDKs of Azure. Its MaxRetries of -1 turns retries off.
//
//	options := policy.ClientOptions{Transport: &http.Client{Transport: transport}, Retry: policy.RetryOptions{MaxRetries: -1}}
//
// client-go retries a response with a Retry-After ten times; a Transport [WithoutRetryAfter] takes
// that header out. client-go also has a limit of five requests a second; turn that off. It calls plug
// with the RoundTripper that holds the certificates: plug is your function, which returns a Transport
// [WithRoundTripper] of that.
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
// The MaxRetries of minio-go counts attempts, so 1 turns retries off. minio-go signs above the
// Transport: a signature is valid for 15 minutes, so bound the waits by a deadline.
//
//	client, err := minio.New(endpoint, &minio.Options{Transport: transport, MaxRetries: 1…
//
// The AWS SDK, too, signs above its HTTP client. Prefer module cruiseaws: it takes the place of the
// SDK's retries, and each attempt is signed anew. Without it, turn the SDK's retries off.
//
//	config := aws.Config{HTTPClient: &http.Client{Transport: transport}, Retryer: func() aws.Retryer { return aws.NopRetryer{} }}
package cruisehttp
