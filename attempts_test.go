package cruise_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

// loop ends its turns with errs, in order.
func loop(t *testing.T, r *cruise.Retrier, errs ...error) (numbers []int, final error) {
	t.Helper()
	for attempt, err := range r.Attempts(t.Context()) {
		if err != nil {
			return numbers, err
		}
		numbers = append(numbers, attempt.Number())
		require.NoError(t, attempt.Context().Err())
		attempt.Done(errs[len(numbers)-1])
	}
	return numbers, nil
}

func TestAttempts(t *testing.T) {
	fatal := cruise.Permanent(errBoom)
	synctest.Test(t, func(t *testing.T) {
		numbers, err := loop(t, plain(), nil)
		assert.NoError(t, err)
		assert.Equal(t, []int{1}, numbers)

		start := time.Now()
		numbers, err = loop(t, plain(), errBoom, cruise.Throttled(errBoom), nil)
		assert.NoError(t, err)
		assert.Equal(t, []int{1, 2, 3}, numbers)
		assert.Equal(t, 2100*time.Millisecond, time.Since(start))

		numbers, err = loop(t, plain(), fatal)
		assert.True(t, err == fatal)
		assert.Equal(t, []int{1}, numbers)

		numbers, err = loop(t, plain(), errBoom, fatal)
		assert.ErrorIs(t, err, cruise.ErrPermanent)
		assert.Equal(t, []int{1, 2}, numbers)

		numbers, err = loop(t, plain(cruise.WithMaxAttempts(2)), errBoom, errBoom)
		assert.Equal(t, cruise.ErrAttemptsExhausted, gaveUp(t, err).Reason)
		assert.ErrorIs(t, err, errBoom)
		assert.Equal(t, []int{1, 2}, numbers)
	})
}

func TestDoneTellsTheMeaningOfTheError(t *testing.T) {
	asked := 0
	r := plain(cruise.WithMaxAttempts(1), cruise.WithClassifier(func(err error) cruise.Verdict {
		if asked++; err == errBoom {
			return cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Second, Scope: "ACCOUNT"}
		}
		return cruise.Verdict{}
	}))
	done := func(err error) (v cruise.Verdict) {
		for attempt, gaveUp := range r.Attempts(t.Context()) {
			if gaveUp == nil {
				v = attempt.Done(err)
			}
		}
		return v
	}
	assert.Equal(t, cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Second, Scope: "ACCOUNT"}, done(errBoom))
	assert.Equal(t, 1, asked, "once for both")
	assert.Equal(t, cruise.Verdict{Outcome: cruise.OutcomePermanent}, done(cruise.Permanent(errBoom)))
	assert.Equal(t, cruise.Verdict{Outcome: cruise.OutcomeSuccess}, done(nil))
}

func TestAttemptsGivesUpAfterTheLastTurn(t *testing.T) {
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	turns := 0
	for attempt, err := range plain().Attempts(dead) {
		turns++
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, dead, attempt.Context())
		attempt.Done(nil) // changes nothing
	}
	assert.Equal(t, 1, turns)
}

func TestAttemptsForgottenDone(t *testing.T) {
	l := &witness{}
	var errs []error
	for _, err := range plain(cruise.WithLimiter(l)).Attempts(t.Context()) {
		errs = append(errs, err)
	}
	require.Len(t, errs, 2)
	assert.NoError(t, errs[0])
	assert.EqualError(t, errs[1], "cruise: the loop's body did not call Done")
	assert.Equal(t, []cruise.Outcome{cruise.OutcomePermanent}, l.outcomes())
}

func TestForgottenDoneIsPermanentForAnyClassifier(t *testing.T) {
	l := &witness{}
	sent := 0
	r := plain(cruise.WithLimiter(l), cruise.WithClassifier(func(error) cruise.Verdict { return cruise.Verdict{Outcome: cruise.OutcomeThrottled} }))
	for _, err := range r.Attempts(t.Context()) {
		if err == nil {
			sent++
		}
	}
	assert.Equal(t, 1, sent)
	assert.Equal(t, []cruise.Outcome{cruise.OutcomePermanent}, l.outcomes())
}

func TestAttemptsForgottenDoneOfARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last error
		turns := 0
		for attempt, err := range plain().Attempts(t.Context()) {
			if turns++; turns == 1 {
				attempt.Done(errBoom)
			}
			last = err
		}
		assert.Equal(t, 3, turns)
		assert.ErrorContains(t, last, "the loop's body did not call Done")
	})
}

func TestZeroAttempt(t *testing.T) {
	var a cruise.Attempt
	assert.Equal(t, context.Background(), a.Context())
	assert.Zero(t, a.Number())
	a.Done(nil) // changes nothing

	var none context.Context
	for attempt, err := range plain().Attempts(none) {
		require.EqualError(t, err, "cruise: nil context")
		assert.Equal(t, context.Background(), attempt.Context())
		assert.Zero(t, attempt.Number())
	}
}

// What the limiter refuses is told in the last turn, and there is no attempt.
func TestAttemptsThatTheLimiterRefuses(t *testing.T) {
	l := &witness{refuse: errBoom}
	turns := 0
	for attempt, err := range plain(cruise.WithLimiter(l)).Attempts(t.Context()) {
		turns++
		assert.Equal(t, errBoom, gaveUp(t, err).Reason)
		assert.Zero(t, attempt.Number())
	}
	assert.Equal(t, 1, turns)
	assert.Empty(t, l.told)
}

func TestAttemptsCanBeUsedAgain(t *testing.T) {
	attempts := plain().Attempts(t.Context())
	for range 2 {
		for attempt, err := range attempts {
			require.NoError(t, err)
			assert.Equal(t, 1, attempt.Number())
			attempt.Done(nil)
		}
	}
}

// Whichever way the body is left, the limiter is told once.
func TestAttemptsLeavingTheLoop(t *testing.T) {
	for _, tt := range []struct {
		name string
		body func(*cruise.Attempt) (leave bool)
		want cruise.Outcome
		left float64
	}{
		{"before Done", func(*cruise.Attempt) bool { return true }, cruise.OutcomeDropped, 5},
		{"after Done(nil)", func(a *cruise.Attempt) bool { a.Done(nil); return true }, cruise.OutcomeSuccess, 6},
		{"after Done of an error", func(a *cruise.Attempt) bool { a.Done(cruise.Throttled(errBoom)); return true }, cruise.OutcomeThrottled, 5},
		{"after Done twice, the last counts", func(a *cruise.Attempt) bool { a.Done(errBoom); a.Done(nil); return true }, cruise.OutcomeSuccess, 6},
		{"by the end of the body", func(a *cruise.Attempt) bool { a.Done(nil); return false }, cruise.OutcomeSuccess, 6},
		{"by a panic", func(*cruise.Attempt) bool { panic("at the disco") }, cruise.OutcomeDropped, 5},
		{"by a panic after Done", func(a *cruise.Attempt) bool { a.Done(nil); panic("at the disco") }, cruise.OutcomeDropped, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &witness{}
			budget := cruise.Must(cruise.NewBudget(10, 1, 0))
			spend(t, budget, 5)
			func() {
				defer func() { _ = recover() }()
				for attempt, err := range plain(cruise.WithLimiter(l), cruise.WithBudget(budget)).Attempts(t.Context()) {
					require.NoError(t, err)
					if tt.body(attempt) {
						return
					}
				}
			}()
			assert.Equal(t, []cruise.Outcome{tt.want}, l.outcomes())
			assert.Equal(t, tt.left, budget.Left())
		})
	}
}

func TestAttemptsPanicPassesThrough(t *testing.T) {
	value := errors.New("at the disco")
	assert.PanicsWithValue(t, value, func() {
		for range cruise.Must(cruise.New()).Attempts(t.Context()) {
			panic(value)
		}
	})
}

func TestAttemptsHaveTheirOwnTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		for attempt, err := range plain(cruise.WithAttemptTimeout(time.Second)).Attempts(t.Context()) {
			require.NoError(t, err)
			if n++; n == 3 {
				attempt.Done(nil)
				continue
			}
			<-attempt.Context().Done()
			attempt.Done(attempt.Context().Err())
		}
		assert.Equal(t, 3, n)
	})
}

// Who leaves the loop though another attempt could help tells observers why.
func TestGiveUpTellsObserversWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []*cruise.Error
		r := plain(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, event cruise.Event) {
			if e, ok := event.(cruise.GaveUp); ok {
				told = append(told, e.Err)
			}
		})))
		why := errors.New("may not be sent again")
		leave := func(ctx context.Context, reason error) {
			for attempt, err := range r.Attempts(ctx) {
				require.NoError(t, err)
				if attempt.Number() == 2 {
					attempt.Done(cruise.Transient(errBoom, cruise.RetryAfter(time.Minute)))
					attempt.GiveUp(reason)
					break
				}
				attempt.GiveUp(errors.New("of an attempt that another one followed"))
				attempt.Done(errServer)
			}
		}
		leave(t.Context(), nil)
		assert.Empty(t, told)
		leave(t.Context(), why)
		require.Len(t, told, 1)
		assert.Equal(t, []any{why, 2, time.Minute}, []any{told[0].Reason, told[0].Attempts, told[0].RetryAfter})
		assert.ErrorIs(t, told[0], errBoom)

		outer := cruise.Must(cruise.New())
		require.NoError(t, outer.Do(t.Context(), func(ctx context.Context) error {
			for attempt := range r.Attempts(ctx) {
				attempt.Done(errBoom)
				attempt.GiveUp(why)
				break
			}
			return nil
		}))
		assert.Len(t, told, 1, "the outer Retrier decides")
		for attempt := range r.Attempts(t.Context()) { // without Done
			attempt.GiveUp(why)
			break
		}
		assert.Len(t, told, 2)
		new(cruise.Attempt).GiveUp(why)
	})
}
