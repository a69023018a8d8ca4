// Package cruisegrpc makes gRPC clients keep to the rate that a server gives
// them: client interceptors that pass every attempt through an adaptive limiter,
// read what the server says about throttling, and retry what is safe to retry.
//
//	throttle, err := cruisegrpc.New()
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, append(throttle.DialOptions(), creds)...)
//
// # What is retried
//
// A throttled attempt (see [Classify]) is retried for every method, because the
// server refused to do the work. An attempt that never left this process is too,
// unless the server's certificate is not trusted; if it was its credentials that were
// throttled, nobody slows down for that. Any other transient failure may have
// done its work already, and so may a stream that HTTP/2 reset for whatever reason. These
// are retried only for methods that are declared NO_SIDE_EFFECTS or IDEMPOTENT in their
// proto file, or named by [WithIdempotent].
//
// A stream is retried only before its first message has arrived, and while what
// was sent on it fits in a buffer. Nothing is ever hedged: at no time are there
// two attempts of one call.
//
// # What gRPC does by itself
//
// Transparent retries, of calls that the server has certainly not seen, stay
// gRPC's and count as part of one attempt. A retryPolicy of the service config
// would multiply attempts without the limiter seeing them; [Interceptor.DialOptions]
// switches it off. Wait-for-ready is respected: such a call waits for its
// connection, within its attempt.
//
// Sources: gRFC A6 (client retries, pushback), AIP-194 (automatic retry
// configuration), google/rpc/error_details.proto, the OTLP specification
// (throttling), and grpc-go itself for the errors that it makes.
package cruisegrpc
