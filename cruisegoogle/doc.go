// Package cruisegoogle makes the client libraries of Google's APIs keep to the service's rate
// limit.
//
// Clients that speak REST get an HTTP client with their own authentication
// inside and the Transport of cruisehttp around it:
//
//	auth := []option.ClientOption{option.WithScopes(drive.DriveReadonlyScope)}
//	client, err := cruisegoogle.NewHTTPClient(ctx, auth)
//	if err != nil {
//		return err
//	}
//	files, err := drive.NewService(ctx, option.WithHTTPClient(client))
//
// Clients that speak gRPC get the interceptors of cruisegrpc, and their own
// retries are switched off:
//
//	throttle, err := cruisegoogle.NewInterceptor()
//	if err != nil {
//		return err
//	}
//	client, err := pubsub.NewClient(ctx, project, cruisegoogle.ClientOptions(throttle)...)
//	if err != nil {
//		return err
//	}
//	err = cruisegoogle.DisableRetries(client.TopicAdminClient.CallOptions)
//
// # Throttles and quotas
//
// A 403 with the reason rateLimitExceeded or userRateLimitExceeded is a throttle
// and not a missing permission. The waits of Retry-After and RetryInfo, which
// Google's own clients ignore, are obeyed. A quota per day is used up until
// midnight in Los Angeles: until then calls fail at once, with
// cruise.ErrQuotaExhausted or cruise.ErrServerDelay and the time left. An
// allocation that is used up, such as that of virtual machines, is permanent.
//
// For calls inside a Retrier of your own, and for Google Ads and AdWords with their
// limits by customer and developer token, there are classifiers.
//
// Sources: the APIs' guides to errors and quotas, google/rpc/error_details.proto,
// google/api/error_reason.proto, AIP-194, and google-api-go-client and gax-go
// themselves for their own retries.
package cruisegoogle
