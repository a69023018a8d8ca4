package cruise

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A brake turns throttles into pauses: those that follow each other raise a
// level, and calls that are not throttled lower it again. The burst of throttles
// that one congestion sends counts once, because those of attempts sent before
// it was noticed are late. [TokenBucket] and [SlidingWindow] have one, and the law
// of an [AdaptiveLimiter].
type brake struct {
	backoff Backoff
	forgive int           // un-throttled calls that lower the level by one
	level   int           // 0 while all is well
	passed  int           // un-throttled calls since the level changed
	at      clock.Instant // when the level last rose
	row     int           // throttles since anything got through, those that may be of one moment as one
	last    time.Duration // the last pause
}

const (
	defaultForgive = 10
	defaultCold    = 2 // levels that a pause is longer before any success: a second or so

	// vainMost is how long a shorter Retry-After in vain grows to. Longer ones are rounded up, or
	// of windows whose end they don't tell, as HAProxy's: to go on knocking is what finds it.
	vainMost = time.Second
)

func newBrake() brake { return brake{backoff: defaultPause, forgive: defaultForgive} }

// defaultPause is the pause for a throttle that names no wait: the constants of
// the control law.
var defaultPause = Must(NewBackoff(WithBase(300*time.Millisecond), WithMaxDelay(time.Minute), WithJitter(EqualJitter())))

// late reports whether an attempt was sent before the level last rose, so that its
// throttle says nothing new.
func (b *brake) late(sent clock.Instant) bool {
	return sent != 0 && sent <= b.at
}

// An ownBrake is the brake of a limiter that learns nothing else.
type ownBrake struct {
	brake
	set atomic.Bool // the level is above 0; else success costs next to nothing
}

// stop learns from an attempt, and pauses the limiter if that asks for it.
func (b *ownBrake) stop(l *base, e ending) {
	if e.cost <= 0 || !l.queue.Ready() || !e.outcome.stops() && !b.set.Load() {
		return
	}
	l.queue.Lock()
	defer l.queue.Unlock()
	now := l.queue.Now()
	e.sent = l.queue.At(e.sent)
	atMost := clock.Never
	if b.row == 0 && b.at != 0 {
		// Calls got through since the last throttle: if they are too many, longer pauses are no
		// answer, as the rate after each of them is the same.
		atMost = max(b.backoff.grown(1), now.Sub(b.at)/2)
	}
	if l.pauseBy(now, e, b.learn(now, e, 0, atMost)) {
		l.queue.Slowed(now)
	}
	b.set.Store(b.level > 0)
}

// learn returns the pause that an attempt asks for, 0 if none. For a throttle without a
// Retry-After that is the backoff's delay at the level, raised by ahead, but at most
// atMost; never is no bound.
//
// A bound comes from the rate, or from how long calls got through. Where nothing got through
// since the last throttle, the server is closed, and neither says how long: then there is no
// bound, but where it would come from the rate, the backoff begins anew. Its delays grow from
// the last pause, or from the time until the next attempt where the rate held that up for
// longer.
//
// A Retry-After is waited for to the nanosecond. Where nothing got through since the last
// throttle, others were told the same moment, and took what there was: so one of less than a
// second is only the least of a wait that grows by the backoff's multiplier, and differs by
// chance.
func (b *brake) learn(now clock.Instant, e ending, ahead int, atMost time.Duration) time.Duration {
	switch e.outcome {
	case OutcomeThrottled:
		if b.late(e.sent) {
			return e.retryAfter
		}
		again, gap := b.row > 0, e.sent.Sub(b.at)
		if !again || e.sent != 0 {
			b.row++
		}
		b.at, b.passed = now, 0
		if b.level == 0 || b.backoff.grown(b.level) < b.backoff.max {
			b.level++ // a higher one would pause no longer, and take more calls to forgive
		}
		if e.retryAfter > 0 {
			grown := float64(e.retryAfter) * math.Pow(b.backoff.multiplier, float64(b.row-1))
			b.last = max(e.retryAfter, upperHalf(saturate(grown, min(b.backoff.max, vainMost))))
			return b.last
		}
		wait := b.backoff.Delay(b.level+ahead, 0)
		switch {
		case atMost == clock.Never:
		case again:
			wait = max(b.backoff.Delay(1, 0), b.backoff.after(max(b.last, min(gap, atMost))))
		case wait > atMost:
			wait = upperHalf(atMost)
		}
		b.last = wait
		return wait
	case OutcomeQuotaExhausted:
		return e.retryAfter
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

// upperHalf is a random time of at most most, and at least half of it.
func upperHalf(most time.Duration) time.Duration {
	return most - rand.N(most/2+1)
}
