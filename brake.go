package cruise

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/queue"
)

// A brake turns throttles into pauses: consecutive throttles raise a level, and calls that are not
// throttled lower it again. The throttles of one congestion count once, since an attempt sent
// before the first of them is late.
type brake struct {
	backoff   Backoff
	forgive   int           // un-throttled calls that lower the level by one
	level     int           // 0 without throttles
	passed    int           // un-throttled calls since the level changed
	raisedAt  clock.Instant // when the level last rose
	row       int           // consecutive throttles, those of one moment counted once
	lastPause time.Duration // the last pause
}

// maxGrown caps the growth of a short Retry-After that was in vain. A longer one is rounded up,
// or of a window whose end it does not tell, as HAProxy's: only further probes find the end.
const maxGrown = time.Second

func newBrake() brake { return brake{backoff: defaultPause, forgive: 10} }

// defaultPause is the pause for a throttle without a Retry-After: the constants of the control law.
var defaultPause = Must(NewBackoff(WithBase(300*time.Millisecond), WithMaxDelay(time.Minute), EqualJitter()))

// late reports whether an attempt was sent before the level last rose: its throttle is no news.
func (b *brake) late(sent clock.Instant) bool {
	return sent != 0 && sent <= b.raisedAt
}

// A fixedLimiter is the part that limiters share whose limit no server changes: a throttle pauses
// them, and they learn nothing else.
type fixedLimiter struct {
	base   // its lock guards the brake too
	brake  brake
	raised atomic.Bool // the level is above 0; else a success costs next to nothing
}

// Learn takes the result of an attempt: see [Feedback]. A throttle pauses the limiter for its
// Retry-After, or longer if a Retry-After of less than a second was not enough. Without one the
// pause is 0.15 to 0.3 s, doubled with each throttle up to a minute and halved with every ten calls
// that are not throttled. If calls got through since the last throttle, it is at most half of the
// time since then. A quota that is exhausted for a known time pauses the limiter too. Learn ignores
// a Feedback of Cost 0 or less.
func (l *fixedLimiter) Learn(f Feedback) {
	fixedPolicy{limiter: l}.Apply(f)
	reportToParents(&l.queue, f)
}

// A fixedPolicy is a fixedLimiter as its queue sees it.
type fixedPolicy struct {
	queue.Policy
	limiter *fixedLimiter
}

// Apply is Learn without the ancestors.
func (p fixedPolicy) Apply(f Feedback) {
	l := p.limiter
	if f.Cost <= 0 || !l.queue.Ready() || !f.Outcome.refused() && !l.raised.Load() {
		return
	}
	l.queue.Lock()
	defer l.queue.Unlock()
	now := l.queue.Now()
	pause := l.brake.pause(now, l.queue.At(clock.Of(f.Sent)), f)
	if l.pauseBy(now, f, l.brake.row, pause) {
		l.queue.Slowed(now)
	}
	l.raised.Store(l.brake.level > 0)
}

// Pause stops all calls for d, unless a longer pause is in force. d of 0 or less does nothing. After
// a pause a [TokenBucket] has one saved token left, and a [SlidingWindow] spreads the calls of its
// shortest window over that window, or over a minute if it is longer.
func (l *fixedLimiter) Pause(d time.Duration) { l.pauseFor(d) }

// Resume ends a pause as if its time were over.
func (l *fixedLimiter) Resume() { l.resumeNow() }

// Waiting returns the number of waiting calls.
func (l *fixedLimiter) Waiting() (calls int) {
	l.queue.Locked(func(clock.Instant) { calls = l.queue.Waiting() })
	return calls
}

// pause is pauseAfter where no rate bounds a pause. If calls got through since the last throttle,
// longer pauses do not help: the rate after each pause is the same.
func (b *brake) pause(now, sent clock.Instant, f Feedback) time.Duration {
	atMost := clock.Never
	if b.row == 0 && b.raisedAt != 0 {
		atMost = max(b.backoff.grown(1), now.Sub(b.raisedAt)/2)
	}
	return b.pauseAfter(now, sent, f, 0, atMost)
}

// pauseAfter returns the pause that an attempt asks for, 0 if none. For a throttle without a
// Retry-After the pause is the backoff's delay at the level, raised by ahead, at most atMost.
//
// atMost comes from the rate, or from the time in which calls got through. With no call through
// since the last throttle, the server has an outage of unknown length: the cap does not apply. If
// it came from the rate, the backoff begins anew. Its delays then grow from the last pause, or from
// the time until the next attempt if the rate made that longer.
//
// If no call got through since the last throttle, all clients were told the same moment. So a
// Retry-After of less than a second is then the least of a wait that grows: see [Tuning].
func (b *brake) pauseAfter(now, sent clock.Instant, f Feedback, ahead int, atMost time.Duration) time.Duration {
	switch f.Outcome {
	case OutcomeThrottled:
		if b.late(sent) {
			return f.RetryAfter
		}
		again, gap := b.row > 0, sent.Sub(b.raisedAt)
		if !again || sent != 0 {
			b.row++
		}
		b.raisedAt, b.passed = now, 0
		if b.level == 0 || b.backoff.grown(b.level) < b.backoff.max {
			b.level++ // a higher one would pause no longer, and take more calls to forgive
		}
		if f.RetryAfter > 0 {
			grown := float64(f.RetryAfter) * math.Pow(b.backoff.multiplier, float64(b.row-1))
			b.lastPause = max(f.RetryAfter, chance.UpperHalf(saturate(grown, min(b.backoff.max, maxGrown))))
			return b.lastPause
		}
		wait := b.backoff.Delay(b.level+ahead, 0)
		switch {
		case atMost == clock.Never:
		case again:
			wait = max(b.backoff.Delay(1, 0), b.backoff.after(max(b.lastPause, min(gap, atMost))))
		case wait > atMost:
			wait = chance.UpperHalf(atMost)
		}
		b.lastPause = wait
		return wait
	case OutcomeQuotaExhausted:
		return f.RetryAfter
	case OutcomeDropped:
		return 0
	}
	b.row = 0
	if b.level > 0 {
		if b.passed++; b.passed >= b.forgive {
			b.level, b.passed = b.level-1, 0
		}
	}
	return 0
}
