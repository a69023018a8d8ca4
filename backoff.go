package cruise

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/check"
)

// Backoff computes the wait before a retry: a delay that grows from retry to retry up to a maximum,
// and jitter around it, so that callers that failed together do not come back together.
//
// It is an immutable value, safe to copy, compare, share and use from many goroutines. Make one with
// [NewBackoff] or take a preset such as [GoogleBackoff]. The zero Backoff waits 0 and never gives up.
type Backoff struct {
	base, max  time.Duration
	multiplier float64       // >= 1; multiplies the delay with each retry
	step       time.Duration // added to the delay with each retry; see LinearBackoff
	jitter     jitter
	retries    int // 0: no limit
}

// BackoffOption tunes a Backoff: see [NewBackoff]. If an option is given twice, the last one
// counts, but a value out of range is an error wherever it stands.
type BackoffOption func(*backoffConfig)

type backoffConfig struct {
	Backoff
	check.Errors
}

// WithBase sets the delay before the first retry, prior to jitter. Default: 100 ms. 0 or less, and
// more than the maximum, is an error.
func WithBase(d time.Duration) BackoffOption {
	return func(c *backoffConfig) {
		c.base = d
		c.Check(d > 0, "WithBase(%v): want above 0", d)
	}
}

// WithMultiplier sets the factor from each delay to the next, prior to jitter. Default: 2. A factor
// below 1 or not finite is an error.
func WithMultiplier(m float64) BackoffOption {
	return func(c *backoffConfig) {
		c.multiplier = m
		c.Check(m >= 1 && m <= math.MaxFloat64, "WithMultiplier(%v): want 1 or more, and finite", m)
	}
}

// WithMaxDelay caps the delay, jitter included. Default: 20 s. Less than the base is an error.
func WithMaxDelay(d time.Duration) BackoffOption {
	return func(c *backoffConfig) {
		c.max = d
		c.Check(d > 0, "WithMaxDelay(%v): want above 0", d)
	}
}

// WithRetries sets the number of retries before giving up. A [Retrier] without [WithMaxAttempts]
// obeys the number of its [WithBackoff]. Default: no limit. 0 or less is an error.
func WithRetries(n int) BackoffOption {
	return func(c *backoffConfig) {
		c.retries = n
		c.Check(n >= 1, "WithRetries(%d): want 1 or more; leave it out for no limit", n)
	}
}

// jitter draws the wait from a range around a delay d, which has grown to at most the maximum.
type jitter struct {
	kind  jitterKind
	share float64       // of proportional jitter
	extra time.Duration // of additive jitter
}

type jitterKind uint8

const (
	fullJitter jitterKind = iota
	equalJitter
	decorrelatedJitter
	noJitter
	proportionalJitter
	additiveJitter
)

func withJitter(j jitter) BackoffOption { return func(c *backoffConfig) { c.jitter = j } }

// FullJitter draws the wait from 0 to d, the delay before jitter. It spreads callers the most, for
// half the mean delay. It is the default of [NewBackoff].
//
// For full, equal and decorrelated jitter see Marc Brooker, Exponential Backoff And Jitter,
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
func FullJitter() BackoffOption { return withJitter(jitter{}) }

// EqualJitter draws the wait from d/2 to d.
func EqualJitter() BackoffOption { return withJitter(jitter{kind: equalJitter}) }

// DecorrelatedJitter draws the wait from the base to 3 times the previous wait, or to the maximum
// if that is less. The previous wait counts as the base at least, so the first retry draws from the
// base to 3 times the base. Neither the number of the retry nor the multiplier matters.
func DecorrelatedJitter() BackoffOption { return withJitter(jitter{kind: decorrelatedJitter}) }

// NoJitter waits d. Callers that failed together come back together.
func NoJitter() BackoffOption { return withJitter(jitter{kind: noJitter}) }

// ProportionalJitter draws the wait from d - share·d to d + share·d. At the maximum, d is lowered
// so that the range ends there. Range of the share: 0 to 1. Any other value is an error.
func ProportionalJitter(share float64) BackoffOption {
	return func(c *backoffConfig) {
		c.jitter = jitter{kind: proportionalJitter, share: share}
		c.Check(share >= 0 && share <= 1, "ProportionalJitter(%v): want 0 to 1", share)
	}
}

// AdditiveJitter draws the wait from d to d + extra. At the maximum, d is lowered so that the range
// ends there. Range of the extra: 0 to the maximum delay. Any other value is an error.
func AdditiveJitter(extra time.Duration) BackoffOption {
	return func(c *backoffConfig) {
		c.jitter = jitter{kind: additiveJitter, extra: extra}
		c.Check(extra >= 0, "AdditiveJitter(%v): want 0 or more", extra)
	}
}

// NewBackoff returns an exponential backoff: the n-th retry waits
//
//	d = base·multiplierⁿ⁻¹, at most the maximum
//
// with jitter around d. By default d is 100 ms, 200 ms, 400 ms … 20 s, with [FullJitter], and
// retries never end. Every kind of jitter stays between 0 and the maximum. All except [NoJitter]
// still spread the wait once d has reached the maximum, so that a crowd does not line up there. The
// error names every option that is out of range or contradicts another.
func NewBackoff(opts ...BackoffOption) (Backoff, error) {
	b := Backoff{base: 100 * time.Millisecond, multiplier: 2, max: 20 * time.Second}
	return b.with(opts)
}

// GoogleBackoff returns the flow that Google documents for its APIs: wait 1, 2, 4, 8 and 16 s, each
// with up to 1,000 ms added at random, then give up.
//
// Source: https://developers.google.com/tag-platform/tag-manager/api/v2/errors.
func GoogleBackoff() Backoff {
	return Backoff{
		base: time.Second, multiplier: 2, max: 17 * time.Second,
		jitter: jitter{kind: additiveJitter, extra: time.Second}, retries: 5,
	}
}

// AWSBackoff returns the backoff of AWS SDKs in standard mode from 2026 on, after failures other
// than throttling: full jitter up to 50 ms, doubling up to 20 s, 2 retries. After throttling they
// begin with 1 s: NewBackoff(WithBase(time.Second), WithRetries(2)).
//
// Source: aws-sdk-go-v2 v1.47, aws/retry, with AWS_NEW_RETRIES_2026.
func AWSBackoff() Backoff {
	return Backoff{base: 50 * time.Millisecond, multiplier: 2, max: 20 * time.Second, retries: 2}
}

// LinearBackoff returns a backoff of step, 2·step, 3·step … up to maxDelay. Without options it has
// no jitter and its retries never end. A step of 0 or less, or above maxDelay, is an error.
func LinearBackoff(step, maxDelay time.Duration, opts ...BackoffOption) (Backoff, error) {
	if step <= 0 || maxDelay < step {
		return Backoff{}, fmt.Errorf("cruise: LinearBackoff(%v, %v): want a step above 0 and at most the maximum", step, maxDelay)
	}
	b := Backoff{base: step, multiplier: 1, step: step, max: maxDelay, jitter: jitter{kind: noJitter}}
	return b.with(opts)
}

// ConstantBackoff returns a backoff of d before every retry. Without options it has no jitter and
// never ends. For jitter above d, raise the maximum by [WithMaxDelay]. d of 0 or less is an error.
func ConstantBackoff(d time.Duration, opts ...BackoffOption) (Backoff, error) {
	if d <= 0 {
		return Backoff{}, fmt.Errorf("cruise: ConstantBackoff(%v): want above 0", d)
	}
	b := Backoff{base: d, multiplier: 1, max: d, jitter: jitter{kind: noJitter}}
	return b.with(opts)
}

// with applies options, or returns all errors in them.
func (b Backoff) with(opts []BackoffOption) (Backoff, error) {
	c := backoffConfig{Backoff: b}
	for i, opt := range opts {
		if c.Check(opt != nil, "option %d is nil", i+1) {
			opt(&c)
		}
	}
	if c.base > 0 && c.max > 0 {
		c.Check(c.base <= c.max, "WithMaxDelay(%v): want at least the base of %v: raise it, or lower WithBase", c.max, c.base)
		c.Check(c.jitter.extra <= c.max, "AdditiveJitter(%v): want at most the maximum of %v, see WithMaxDelay", c.jitter.extra, c.max)
	}
	if len(c.Errors) > 0 {
		return Backoff{}, errors.Join(c.Errors...)
	}
	return c.Backoff, nil
}

// Retries returns the number of retries before giving up; 0 means no limit.
func (b Backoff) Retries() int { return b.retries }

// Delay returns the wait before a retry, from 0 to the maximum: 1 is the first retry, and anything
// below counts as 1. The previous delay of the same call, 0 if there was none, matters to
// [DecorrelatedJitter] only. Each call of Delay draws anew.
func (b Backoff) Delay(retry int, previous time.Duration) time.Duration {
	return b.at(retry, previous, chance.Float64())
}

// at is Delay with a given random number from 0 to 1, without 1, so that rounding stays in range.
func (b Backoff) at(retry int, previous time.Duration, u float64) time.Duration {
	least, most := b.spread(retry, previous)
	return least + time.Duration(u*float64(most-least))
}

// spread returns the ends of the range from which a delay is drawn.
func (b Backoff) spread(retry int, previous time.Duration) (least, most time.Duration) {
	d := b.grown(retry)
	switch j := b.jitter; j.kind {
	case equalJitter:
		return d / 2, d
	case decorrelatedJitter:
		// The published formula cuts off a draw above the maximum, where most callers would line up.
		return b.base, saturate(3*float64(max(previous, b.base)), b.max)
	case noJitter:
		return d, d
	case proportionalJitter:
		mid := min(float64(d), float64(b.max)/(1+j.share))
		return saturate(mid*(1-j.share), b.max), saturate(mid*(1+j.share), b.max)
	case additiveJitter:
		d = min(d, b.max-j.extra)
		return d, d + j.extra
	default:
		return 0, d
	}
}

// bounds is spread over all possible previous delays.
func (b Backoff) bounds(retry int) (least, most time.Duration) {
	previous := b.base
	for i := 1; i < retry && previous < b.max; i++ {
		previous = saturate(3*float64(previous), b.max) // the longest, if decorrelated
	}
	return b.spread(retry, previous)
}

// grown returns the delay before jitter.
func (b Backoff) grown(retry int) time.Duration {
	n := float64(max(retry, 1) - 1)
	return saturate(float64(b.base)*math.Pow(b.multiplier, n)+float64(b.step)*n, b.max)
}

// after returns the delay, before jitter, that follows a delay of d.
func (b Backoff) after(d time.Duration) time.Duration {
	return saturate(float64(d)*b.multiplier+float64(b.step), b.max)
}

// saturate returns f nanoseconds, at most limit. It compares before it converts, since converting a
// float that overflows gives any number, negative ones too.
func saturate(f float64, limit time.Duration) time.Duration {
	if f = math.Round(f); f < float64(limit) {
		return time.Duration(f)
	}
	return limit
}

// Schedule lists the delays of a [Backoff], retry by retry. It prints as a table.
type Schedule []struct { // the range of the delay before one retry
	Retry                 int           // 1 is the first
	Least, Most           time.Duration // of this delay
	TotalLeast, TotalMost time.Duration // the same of all delays up to this one
}

// longestSchedule caps the rows of a Schedule.
const longestSchedule = 10_000

// Schedule returns the ranges of the first n delays, of all if there are fewer, and at most of
// 10,000. With [DecorrelatedJitter] a range covers all possible delays.
func (b Backoff) Schedule(n int) Schedule {
	if b.retries > 0 {
		n = min(n, b.retries)
	}
	rows := make(Schedule, max(0, min(n, longestSchedule)))
	var sumLeast, sumMost time.Duration
	for i := range rows {
		least, most := b.bounds(i + 1)
		sumLeast += min(least, math.MaxInt64-sumLeast)
		sumMost += min(most, math.MaxInt64-sumMost)
		r := &rows[i]
		r.Retry, r.Least, r.Most, r.TotalLeast, r.TotalMost = i+1, least, most, sumLeast, sumMost
	}
	return rows
}

// String returns the table, one line a retry, times rounded to four digits.
func (s Schedule) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "retry\tleast\tmost\ttotal least\ttotal most\t")
	for _, r := range s {
		fmt.Fprintf(w, "%d\t%v\t%v\t%v\t%v\t\n", r.Retry,
			fourDigits(r.Least), fourDigits(r.Most), fourDigits(r.TotalLeast), fourDigits(r.TotalMost))
	}
	_ = w.Flush() // a Builder never fails
	return text.String()
}

// fourDigits rounds a duration to the digits that people read.
func fourDigits(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 10_000 {
		unit *= 10
	}
	return d.Round(unit)
}
