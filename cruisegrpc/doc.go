// Package cruisegrpc makes gRPC clients keep to the server's rate limit. Its client interceptors
// pass every attempt through an adaptive limiter, read the server's throttles and waits, and retry
// calls that are safe to retry.
//
//	throttle, err := cruisegrpc.New()
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, append(throttle.DialOptions(), creds)...)
//
// # Which calls are retried
//
// A throttled attempt (see [Classify]) is retried for every method, because the server refused to
// do the work. An attempt that never left this process is retried too, unless the server's
// certificate is not trusted. If only its source of credentials was throttled, the limiter does not
// slow down. After any other transient failure the server may have done the work already, also if
// HTTP/2 reset the stream for any reason. Such attempts are retried only for methods that are
// declared NO_SIDE_EFFECTS or IDEMPOTENT in their proto file, or named by [WithIdempotent].
//
// A stream is retried only before its first message has arrived, and while the sent messages fit in
// a buffer. Calls are never hedged: a call has one attempt at a time.
//
// # gRPC's own retries
//
// Transparent retries, of calls that the server has certainly not seen, are left to gRPC and count
// as part of one attempt. A retryPolicy of the service config would multiply attempts without the
// limiter seeing them; [Interceptor.DialOptions] switches it off. Wait-for-ready is respected: such
// a call waits for its connection, within its attempt.
//
// Sources: gRFC A6 (client retries, pushback), AIP-194 (automatic retry
// configuration), google/rpc/error_details.proto, the OTLP specification
// (throttling), and grpc-go itself for the errors that it makes.
package cruisegrpc
