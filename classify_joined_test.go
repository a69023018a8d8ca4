package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

type (
	httpCode  int           // gax-go
	getWait   time.Duration // go-github
	ownWord   cruise.Verdict
	rudeWord  struct{}
	nilWithin struct{}
)

func (e httpCode) Error() string               { return fmt.Sprint(int(e)) }
func (e httpCode) HTTPCode() int               { return int(e) }
func (e getWait) Error() string                { return "wait" }
func (e getWait) GetRetryAfter() time.Duration { return time.Duration(e) }
func (e ownWord) Error() string                { return "word" }
func (e ownWord) Verdict() cruise.Verdict      { return cruise.Verdict(e) }
func (rudeWord) Error() string                 { return "rude" }
func (rudeWord) Verdict() cruise.Verdict       { panic("Verdict") }
func (nilWithin) Error() string                { return "nil" }
func (nilWithin) Unwrap() []error              { return []error{nil, nil} }

func TestClassifyJoined(t *testing.T) {
	const s = time.Second
	verdict := func(o cruise.Outcome, wait time.Duration) cruise.Verdict {
		return cruise.Verdict{Outcome: o, RetryAfter: wait}
	}
	final := func(wait time.Duration) cruise.Verdict {
		return cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: wait, NoRetry: true}
	}
	gaveUp := &cruise.Error{Reason: cruise.ErrAttemptsExhausted, Attempts: 5, Last: statusError(500)}
	for _, tt := range []struct {
		name string
		errs []error
		want cruise.Verdict
	}{
		{"404 and 429", []error{statusError(404), statusError(429)}, final(0)},
		{"404 and 429 with a wait", []error{statusError(404), &sdkError{status: 429, wait: s}}, final(s)},
		{"marked", []error{cruise.Permanent(errBoom), cruise.Throttled(errBoom, cruise.RetryAfter(s))}, final(s)},
		{"marked, and a status", []error{cruise.Permanent(errBoom), statusError(429)}, final(0)},
		{"deeper", []error{fmt.Errorf("b: %w", errors.Join(io.EOF, statusError(404))), fmt.Errorf("a: %w", codeError("SlowDown"))}, final(0)},
		{"two throttles", []error{&sdkError{status: 429, wait: s}, cruise.Throttled(errBoom, cruise.RetryAfter(9*s))}, verdict(cruise.OutcomeThrottled, 9*s)},
		{"the wait of a failure is not the throttle's", []error{statusError(429), cruise.Transient(errBoom, cruise.RetryAfter(60*s))}, verdict(cruise.OutcomeThrottled, 0)},
		{"marks keep their waits from others", []error{statusError(403), cruise.Transient(errBoom, cruise.RetryAfter(9*s))}, verdict(cruise.OutcomePermanent, 0)},
		{"a quota", []error{statusError(429), cruise.QuotaExhausted(errBoom, cruise.RetryAfter(s)), statusError(404)}, verdict(cruise.OutcomeQuotaExhausted, s)},
		{"given up, and a throttle", []error{gaveUp, statusError(429)}, final(0)},
		{"timeout and 404", []error{slowError(true), statusError(404)}, verdict(cruise.OutcomePermanent, 0)},
		{"cancelled and 429", []error{context.Canceled, statusError(429)}, verdict(cruise.OutcomeThrottled, 0)},
		{"cancelled and something", []error{&url.Error{Op: "Get", Err: context.Canceled}, errBoom}, verdict(cruise.OutcomeDropped, 0)},
		{"methods panic beside a throttle", []error{grumpyError{}, statusError(429), (*typedNil)(nil)}, verdict(cruise.OutcomeThrottled, 0)},
		{"one that may not be sent again", []error{ownWord{Outcome: cruise.OutcomeTransient, NoRetry: true}, statusError(429)}, final(0)},
		{"a word that panics", []error{rudeWord{}, statusError(404)}, verdict(cruise.OutcomePermanent, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, cruise.Classify(errors.Join(tt.errs...)))
			for i, j := 0, len(tt.errs)-1; i < j; i, j = i+1, j-1 {
				tt.errs[i], tt.errs[j] = tt.errs[j], tt.errs[i]
			}
			assert.Equal(t, tt.want, cruise.Classify(errors.Join(tt.errs...)), "the other way round")
		})
	}
	assert.Equal(t, verdict(cruise.OutcomeTransient, 0), cruise.Classify(nilWithin{}))
}

func TestClassifyMoreShapes(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want cruise.Verdict
	}{
		{"HTTPCode", httpCode(429), cruise.Verdict{Outcome: cruise.OutcomeThrottled}},
		{"HTTPCode, of gRPC", httpCode(-1), cruise.Verdict{Outcome: cruise.OutcomeTransient}},
		{"GetRetryAfter", getWait(time.Second), cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Second}},
		{"GetRetryAfter of none", getWait(0), cruise.Verdict{Outcome: cruise.OutcomeTransient}},
		{"GetRetryAfter below 0", getWait(-1), cruise.Verdict{Outcome: cruise.OutcomeTransient}},
		{"its own word", fmt.Errorf("x: %w", ownWord{Outcome: cruise.OutcomeThrottled, RetryAfter: -1, Scope: "TABLE"}), cruise.Verdict{Outcome: cruise.OutcomeThrottled, Scope: "TABLE"}},
		{"no word", ownWord{}, cruise.Verdict{Outcome: cruise.OutcomeTransient}},
		{"a word that does not exist", ownWord{Outcome: 99}, cruise.Verdict{Outcome: cruise.OutcomeTransient}},
	} {
		assert.Equal(t, tt.want, cruise.Classify(tt.err), tt.name)
	}
}

// What must not be sent again teaches all the same.
func TestThrottleThatForbidsTheRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New())
		calls := 0
		err := errors.Join(cruise.Permanent(errBoom), cruise.Throttled(errBoom, cruise.RetryAfter(7*time.Second)))
		assert.Equal(t, err, r.Do(t.Context(), func(context.Context) error { calls++; return err }))
		assert.Equal(t, 1, calls)
		assert.Equal(t, 7*time.Second, r.Limiter().(*cruise.AdaptiveLimiter).PauseLeft())

		errs := []error{statusError(500), err}
		after := r.Do(t.Context(), func(context.Context) error { defer func() { errs = errs[1:] }(); return errs[0] })
		assert.ErrorIs(t, after, cruise.ErrPermanent)
		assert.ErrorIs(t, after, errBoom)
	})
}

var errMiss = errors.New("no rows")

func TestWithPermanent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithPermanent(io.EOF), cruise.WithPermanent(errMiss, io.ErrNoProgress)))
		for _, miss := range []error{io.EOF, errMiss, fmt.Errorf("row: %w", io.ErrNoProgress)} {
			calls := 0
			err := r.Do(t.Context(), func(context.Context) error { calls++; return miss })
			assert.Equal(t, miss, err)
			assert.Equal(t, 1, calls, miss)
		}
		assert.EqualValues(t, 100, r.Budget().Left())

		calls := 0
		throttled := cruise.Throttled(errMiss, cruise.RetryAfter(time.Minute))
		assert.Equal(t, throttled, r.Do(t.Context(), func(context.Context) error { calls++; return throttled }))
		assert.Equal(t, 1, calls)
		assert.Equal(t, time.Minute, r.Limiter().(*cruise.AdaptiveLimiter).PauseLeft(), "the throttle is learned")

		calls = 0
		_ = cruise.Must(cruise.New(cruise.WithPermanent(errMiss), cruise.WithoutLimiter())).Do(t.Context(), func(context.Context) error { calls++; return grumpyError{} })
		assert.Equal(t, 5, calls, "methods that panic match nothing")
	})
	_, err := cruise.New(cruise.WithPermanent())
	assert.EqualError(t, err, "cruise: WithPermanent without an error: want one or more")
	_, err = cruise.New(cruise.WithPermanent(errMiss, nil))
	assert.EqualError(t, err, "cruise: WithPermanent: error 2 is nil")
}

// The last classifier is asked first, and leaves what it declines to those before.
func TestClassifiersInARow(t *testing.T) {
	says := func(target error, o cruise.Outcome) cruise.Option {
		return cruise.WithClassifier(func(err error) (v cruise.Verdict) {
			if errors.Is(err, target) {
				v.Outcome = o
			}
			return v
		})
	}
	r := cruise.Must(cruise.New(says(io.EOF, cruise.OutcomePermanent), says(errMiss, cruise.OutcomeTransient), says(errMiss, cruise.OutcomePermanent)))
	for _, err := range []error{io.EOF, errMiss} {
		calls := 0
		assert.Equal(t, err, r.Do(t.Context(), func(context.Context) error { calls++; return err }))
		assert.Equal(t, 1, calls, err)
	}
	_, err := cruise.New(cruise.WithClassifier(nil), cruise.WithClassifier(cruise.Classify))
	assert.ErrorContains(t, err, "WithClassifier(nil)")
}

// A throttle is heard by the innermost limiter that can learn.
func TestThrottleWithinALimiterThatCannotLearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) {
			return rate.NewLimiter(100, 1), nil
		})))
		began, calls := time.Now(), 0
		err := r.Scope("HOST", "a").Do(t.Context(), func(context.Context) error {
			if calls++; calls == 1 {
				return cruise.Throttled(errBoom, cruise.RetryAfter(5*time.Second))
			}
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, 5*time.Second, time.Since(began))
		stats := r.Limiter().(*cruise.AdaptiveLimiter).Stats()
		assert.EqualValues(t, 1, stats.Throttles)
		assert.EqualValues(t, 1, stats.Successes)
	})
}

func ExampleWithPermanent() {
	errNoRows := errors.New("sql: no rows in result set") // sql.ErrNoRows
	db := cruise.Must(cruise.New(cruise.WithPermanent(errNoRows)))

	attempts := 0
	err := db.Do(context.Background(), func(context.Context) error {
		attempts++
		return fmt.Errorf("user 7: %w", errNoRows)
	})
	fmt.Println(attempts, err)
	// Output: 1 user 7: sql: no rows in result set
}

func ExampleClassify_joined() {
	tooMany := errors.New("429 Too Many Requests")
	v := cruise.Classify(errors.Join(cruise.Throttled(tooMany), cruise.Permanent(tooMany)))
	fmt.Println(v.Outcome, v.NoRetry)
	// Output: throttled true
}

// An SDK that keeps the status of a response in a field takes one line.
// A mark that a caller puts around an error, or beside it, is the last word. One of the error's own is not.
func TestClassifyAsAndMarks(t *testing.T) {
	limited := cruise.Verdict{Outcome: cruise.OutcomeThrottled}
	classify := cruise.ClassifyAs(func(*wrapping) cruise.Verdict { return limited })
	inner := &wrapping{cruise.Transient(errBoom)}
	for _, tt := range []struct {
		name string
		err  error
		want cruise.Verdict
	}{
		{"no mark", &wrapping{errBoom}, limited},
		{"around", cruise.Permanent(&wrapping{errBoom}), cruise.Verdict{}},
		{"beside", errors.Join(cruise.Permanent(errBoom), &wrapping{errBoom}), cruise.Verdict{}},
		{"beside, behind it", errors.Join(&wrapping{errBoom}, cruise.Permanent(errBoom)), cruise.Verdict{}},
		{"within", inner, limited},
		{"within, and wrapped", fmt.Errorf("list: %w", inner), limited},
		{"within and around", cruise.Permanent(inner), cruise.Verdict{}},
		{"another error", errBoom, cruise.Verdict{}},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, classify(tt.err)) })
	}
}

// wrapping is an error of a package that knows nothing of cruise.
type wrapping struct{ error }

func (e *wrapping) Unwrap() error { return e.error }

func ExampleClassifyAs() {
	api := cruise.Must(cruise.New(cruise.WithClassifier(cruise.ClassifyAs(func(e *apiError) cruise.Verdict {
		return cruise.Verdict{Outcome: cruise.StatusOutcome(e.Code, e.Wait), RetryAfter: e.Wait}
	}))))
	calls := 0
	err := api.Do(context.Background(), func(context.Context) error {
		if calls++; calls == 1 {
			return fmt.Errorf("list: %w", &apiError{429, time.Millisecond})
		}
		return &apiError{Code: 404}
	})
	fmt.Println(calls, errors.Is(err, cruise.ErrPermanent))
	// Output: 2 true
}

type apiError struct {
	Code int
	Wait time.Duration
}

func (e *apiError) Error() string { return fmt.Sprint("status ", e.Code) }
