// Package cruiseaws makes clients of the AWS SDK for Go v2 keep to the rate that
// a service gives them: every attempt of every operation passes an adaptive
// limiter, the limiter learns from every answer, and retries follow cruise's
// backoff and budget in place of the SDK's.
//
//	throttle, err := cruiseaws.New()
//	if err != nil {
//		return err
//	}
//	throttle.Configure(&cfg) // before clients are made of it
//
// # How it gets into the SDK
//
// [Throttle.APIOption] gives each operation its own retryer, in the SDK's retry loop. So it sees
// every attempt, in the SDK's older retry mode, in that of AWS_NEW_RETRIES_2026, where a shared
// retryer is told the end of first attempts only, and in the one mode of v1.48.0; request signing,
// clock skew, rewinding of bodies and attempt metrics stay the SDK's.
//
// [Throttle.Retryer] is for places that take nothing but an [github.com/aws/aws-sdk-go-v2/aws.Retryer].
//
// Sources: aws-sdk-go-v2 aws/retry (codes, x-amz-retry-after and its bounds), and
// the services' own documentation of throttling.
package cruiseaws
