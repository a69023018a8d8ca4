package cruisegoogle

import (
	"fmt"
	"reflect"
	"time"

	"github.com/googleapis/gax-go/v2"

	"github.com/a7df5faa/cruise"
)

// WithoutRetries returns a call option that switches off the own retries of Google's clients for
// one call; [DisableRetries] does it for a whole client. Otherwise the client's attempts multiply
// the Retrier's.
func WithoutRetries() gax.CallOption {
	return gax.WithRetry(func() gax.Retryer { return never{} })
}

type never struct{}

func (never) Retry(error) (time.Duration, bool) { return 0, false }

// DisableRetries adds [WithoutRetries] to all methods of clients. Call it before the clients' first
// call, with the CallOptions field of each client, a pointer to a struct of one []gax.CallOption
// for each method:
//
//	err := cruisegoogle.DisableRetries(client.CallOptions)
//
// It returns an error, and changes nothing, if it is given anything else.
func DisableRetries(callOptions ...any) error {
	var methods []*[]gax.CallOption
	for _, c := range callOptions {
		v := reflect.ValueOf(c)
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return fmt.Errorf("cruisegoogle: DisableRetries(%T): want the CallOptions of a client", c)
		}
		for i := range v.Elem().NumField() {
			field := v.Elem().Field(i)
			if !field.CanInterface() || field.Type() != reflect.TypeFor[[]gax.CallOption]() {
				return fmt.Errorf("cruisegoogle: DisableRetries(%T): field %s is no []gax.CallOption", c, v.Elem().Type().Field(i).Name)
			}
			methods = append(methods, field.Addr().Interface().(*[]gax.CallOption))
		}
	}
	for _, options := range methods {
		*options = append((*options)[:len(*options):len(*options)], WithoutRetries())
	}
	return nil
}

// WithRetry returns a call option for clients whose connection or HTTP client cannot be changed, in
// place of their own retries. A call is retried if [Classify] calls it throttled or transient, so
// give the option only to methods that may be called twice. The wait follows b and is never shorter
// than the server asks for. The call gives up if the server asks for more than
// 5 minutes. A Backoff without [cruise.WithRetries] makes 4 retries. Nothing
// is paced, and no call learns from another.
func WithRetry(b cruise.Backoff) gax.CallOption {
	return gax.WithRetry(func() gax.Retryer { return &retryer{backoff: b} })
}

type retryer struct {
	backoff cruise.Backoff
	retries int
	delay   time.Duration
}

func (r *retryer) Retry(err error) (pause time.Duration, again bool) {
	v := Classify(err)
	most := r.backoff.Retries()
	if most == 0 {
		most = 4
	}
	again = !v.NoRetry && (v.Outcome == cruise.OutcomeThrottled || v.Outcome == cruise.OutcomeTransient)
	if !again || r.retries >= most || v.RetryAfter > 5*time.Minute {
		return 0, false
	}
	r.retries++
	r.delay = r.backoff.Delay(r.retries, r.delay)
	return max(r.delay, v.RetryAfter), true
}
