package cruiseslog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseslog"
)

// recorder is a handler that keeps records as lines of text.
type recorder struct {
	level slog.Level

	mu    sync.Mutex
	lines []string
}

func (r *recorder) Enabled(_ context.Context, level slog.Level) bool { return level >= r.level }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler               { return r }
func (r *recorder) WithGroup(string) slog.Handler                    { return r }

func (r *recorder) Handle(_ context.Context, rec slog.Record) error {
	line := rec.Level.String() + " " + strings.TrimPrefix(rec.Message, "cruise: ")
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "until" {
			a = slog.Duration("in", time.Until(a.Value.Time()).Round(time.Millisecond))
		}
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	return nil
}

// take returns the lines since the last take.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

func record(level slog.Level, opts ...cruiseslog.Option) (*recorder, func(...cruise.Event)) {
	r := &recorder{level: level}
	o := cruiseslog.NewObserver(slog.New(r), opts...)
	return r, func(events ...cruise.Event) {
		for _, e := range events {
			o.Observe(context.Background(), e)
		}
	}
}

func paused(d time.Duration) cruise.Paused {
	return cruise.Paused{Until: time.Now().Add(d), For: d}
}

func TestOneLineForEachChangeOfState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)

		// One congestion throttles several calls.
		observe(
			cruise.AttemptStarted{Attempt: 1},
			cruise.ThrottleSeen{RetryAfter: 2 * time.Second, Scope: "ACCOUNT"},
			cruise.RateChanged{From: 20, To: 9.87654, Why: cruise.CauseThrottle},
			paused(2*time.Second),
			cruise.AttemptEnded{Attempt: 1, Outcome: cruise.OutcomeThrottled},
			cruise.RetryScheduled{Attempt: 2},
			cruise.ThrottleSeen{RetryAfter: 2 * time.Second, Late: true},
			cruise.ThrottleSeen{RetryAfter: 2 * time.Second, Late: true},
		)
		time.Sleep(time.Millisecond)
		observe(paused(2 * time.Second)) // 1 ms longer
		assert.Equal(t, []string{
			"WARN throttled by the server retry_after=2s scope=ACCOUNT",
			"WARN rate cut from=20 to=9.877 why=throttle",
			"WARN paused for=2s in=2s",
		}, r.take())

		// The way back.
		time.Sleep(4 * time.Second)
		for limit := rate.Limit(10); limit < 20; limit++ {
			observe(cruise.RateChanged{From: limit, To: limit + 1, Why: cruise.CauseSuccess})
		}
		assert.Equal(t, []string{"INFO rate recovered from=9.877 to=20 why=success throttles=2"}, r.take())

		// Beyond: a line for more than 10 %, at most one in 10 s.
		for limit := rate.Limit(20); limit < 40; limit++ {
			time.Sleep(2 * time.Second)
			observe(cruise.RateChanged{From: limit, To: limit + 1, Why: cruise.CauseSuccess})
		}
		assert.Equal(t, []string{
			"INFO rate raised from=20 to=25 why=success",
			"INFO rate raised from=25 to=30 why=success",
			"INFO rate raised from=30 to=35 why=success",
			"INFO rate raised from=35 to=40 why=success",
		}, r.take())

		// The next throttle is news again, however soon.
		observe(cruise.ThrottleSeen{}, cruise.RateChanged{From: 40, To: 20, Why: cruise.CauseThrottle})
		assert.Equal(t, []string{
			"WARN throttled by the server",
			"WARN rate cut from=40 to=20 why=throttle",
		}, r.take())

		// So is a cut on the way back, which ends at the rate before it.
		observe(
			cruise.RateChanged{From: 20, To: 30, Why: cruise.CauseSuccess},
			cruise.ThrottleSeen{},
			cruise.RateChanged{From: 30, To: 15, Why: cruise.CauseThrottle},
			cruise.RateChanged{From: 15, To: 30, Why: cruise.CauseSuccess},
		)
		assert.Equal(t, []string{
			"WARN rate cut from=30 to=15 why=throttle throttles=1",
			"INFO rate recovered from=15 to=30 why=success",
		}, r.take())

		observe(cruise.RateChanged{From: 30, To: 5, Why: cruise.CauseSet})
		assert.Equal(t, []string{"INFO rate set from=30 to=5 why=set"}, r.take())
	})
}

func TestFirstRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo, cruiseslog.WithInterval(0))
		observe(
			cruise.ThrottleSeen{},
			cruise.RateChanged{From: rate.Inf, To: 0.00123456, Why: cruise.CauseThrottle},
			cruise.RateChanged{From: 0.00123456, To: 0.002, Why: cruise.CauseSuccess},
			cruise.ThrottleSeen{},
			cruise.RateChanged{From: 0.002, To: rate.Inf, Why: cruise.CauseSet},
		)
		assert.Equal(t, []string{
			"WARN throttled by the server",
			"WARN rate cut from=unlimited to=0.001235 why=throttle",
			"INFO rate raised from=0.001235 to=0.002 why=success",
			"WARN throttled by the server",
			"INFO rate set from=0.002 to=unlimited why=set",
		}, r.take())
	})
}

// A quota reported while all calls are throttled gives the first rate.
func TestFirstRateOfAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{level: slog.LevelInfo}
		api := cruise.Must(cruise.New(cruise.WithObserver(cruiseslog.NewObserver(slog.New(r)))))
		n := 0
		for range 4 {
			require.NoError(t, api.Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(50 * time.Millisecond)
				if n++; n == 1 {
					return cruise.Throttled(errors.New("429"), cruise.RetryAfter(time.Second))
				}
				cruise.Report(ctx, cruise.Quota{Limit: 100, Remaining: max(0, 3-n), Reset: time.Minute})
				return nil
			}))
		}
		assert.Equal(t, []string{
			"WARN throttled by the server retry_after=1s",
			"WARN paused for=1s in=1s",
			"WARN rate cut from=unlimited to=7 why=quota",
		}, r.take())
	})
}

// Two rates of one line differ as printed, too.
func TestSmallChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to rate.Limit
		want     string
	}{
		"four digits":      {2.345, 2.344, "from=2.345 to=2.344"},
		"a fifth":          {2.34512, 2.34504, "from=2.3451 to=2.345"},
		"the last that is": {0.1, rate.Limit(math.Nextafter(0.1, 0)), "from=0.1 to=0.09999999999999999"},
		"hardly any rate":  {5e-310, 4e-310, "from=5e-310 to=4e-310"},
		"to nothing":       {0.1, 0, "from=0.1 to=0"},
		"of an infinity":   {rate.Inf, 1.23456, "from=unlimited to=1.235"},
	} {
		t.Run(name, func(t *testing.T) {
			r, observe := record(slog.LevelInfo)
			observe(cruise.RateChanged{From: tc.from, To: tc.to, Why: cruise.CauseQuota})
			assert.Equal(t, []string{"WARN rate cut " + tc.want + " why=quota"}, r.take())
		})
	}
}

// Nothing got through before the first throttle, so there is no rate to tell of.
func TestThrottledWithoutARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)
		success := cruise.AttemptEnded{Outcome: cruise.OutcomeSuccess, Took: 100 * time.Millisecond}
		observe(cruise.ThrottleSeen{}, paused(time.Second), cruise.ThrottleSeen{}, success)
		time.Sleep(1050 * time.Millisecond)
		observe(success) // sent before the pause ended
		time.Sleep(50 * time.Millisecond)
		observe(success, success)
		assert.Equal(t, []string{
			"WARN throttled by the server",
			"WARN paused for=1s in=1s",
			"INFO no longer throttled throttles=1",
		}, r.take())
	})
}

// An event comes a moment late, and so does the end of the pause that it tells: the
// first call after the pause is one all the same, and one from before it is not.
func TestThrottlingEndsThoughEventsComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = time.Millisecond
		r, observe := record(slog.LevelInfo)
		observe(cruise.ThrottleSeen{RetryAfter: 20 * time.Millisecond})
		time.Sleep(late)
		observe(paused(20 * time.Millisecond))
		time.Sleep(5 * time.Millisecond)
		r.take()
		observe(cruise.AttemptEnded{Outcome: cruise.OutcomeSuccess, Took: 10 * time.Millisecond})
		assert.Empty(t, r.take(), "sent before the throttle")
		time.Sleep(15*time.Millisecond - late)
		observe(cruise.AttemptEnded{Outcome: cruise.OutcomeSuccess})
		assert.Equal(t, []string{"INFO no longer throttled"}, r.take())
	})
}

// A quota moves the rate up and down all the time.
func TestRateFollowsAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)
		observe(
			cruise.RateChanged{From: 20, To: 15, Why: cruise.CauseQuota},
			cruise.RateChanged{From: 15, To: 11, Why: cruise.CauseQuota},
			cruise.RateChanged{From: 11, To: 8, Why: cruise.CauseQuota},
		)
		time.Sleep(cruiseslog.DefaultInterval)
		observe(
			cruise.RateChanged{From: 8, To: 8.5, Why: cruise.CauseQuota},
			cruise.RateChanged{From: 8.5, To: 21, Why: cruise.CauseQuota},
		)
		assert.Equal(t, []string{
			"WARN rate cut from=20 to=15 why=quota",
			"INFO rate lowered from=15 to=8.5 why=quota",
			"INFO rate recovered from=8.5 to=21 why=quota",
		}, r.take())
	})
}

// A logger of warnings only gets the count in a warning.
func TestThrottlesAreCountedInLinesThatAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelWarn)
		observe(cruise.ThrottleSeen{}, cruise.RateChanged{From: 20, To: 10, Why: cruise.CauseThrottle}, cruise.ThrottleSeen{Late: true})
		time.Sleep(cruiseslog.DefaultInterval)
		observe(cruise.RateChanged{From: 10, To: 15, Why: cruise.CauseSuccess}, cruise.ThrottleSeen{}, paused(time.Second))
		assert.Equal(t, []string{
			"WARN throttled by the server",
			"WARN rate cut from=20 to=10 why=throttle",
			"WARN paused for=1s in=1s throttles=2",
		}, r.take())
	})
}

// A throttle is news though a quota has cut the rate before, but once only.
func TestThrottledAfterAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)
		for range 2 {
			observe(
				cruise.RateChanged{From: 20, To: 15, Why: cruise.CauseQuota},
				cruise.ThrottleSeen{},
				cruise.RateChanged{From: 15, To: 7, Why: cruise.CauseThrottle},
				cruise.ThrottleSeen{},
				cruise.RateChanged{From: 7, To: 21, Why: cruise.CauseSuccess},
			)
			assert.Equal(t, []string{
				"WARN rate cut from=20 to=15 why=quota",
				"WARN throttled by the server",
				"WARN rate cut from=15 to=7 why=throttle",
				"INFO rate recovered from=7 to=21 why=success throttles=1",
			}, r.take())
		}
	})
}

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)
		observe(paused(10*time.Second), paused(11*time.Second), paused(12*time.Second))
		time.Sleep(12 * time.Second)
		observe(paused(123456789 * time.Nanosecond))
		assert.Equal(t, []string{
			"WARN paused for=10s in=10s",
			"WARN paused for=12s in=12s",
			"WARN paused for=123.457ms in=123ms",
		}, r.take())
	})
}

// The announced end of a pause does not hold after Resume, so Resume has a line, and a further
// pause has another one.
func TestResumeHasALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{level: slog.LevelInfo}
		api := cruise.Must(cruise.New(cruise.WithInitialRate(10), cruise.WithObserver(cruiseslog.NewObserver(slog.New(r)))))
		limiter := api.Limiter().(*cruise.AdaptiveLimiter)
		call := func() { _ = api.Do(t.Context(), func(context.Context) error { return nil }) }
		limiter.Pause(time.Hour)
		time.Sleep(time.Minute)
		limiter.Resume()
		call()
		limiter.Pause(30 * time.Second)
		limiter.Resume()
		limiter.Resume() // does nothing
		limiter.Pause(20 * time.Second)
		call()
		limiter.Pause(time.Second)
		assert.Equal(t, []string{
			"WARN paused for=1h0m0s in=1h0m0s",
			"INFO resumed left=59m0s",
			"WARN paused for=30s in=30s",
			"INFO resumed left=30s",
			"WARN paused for=20s in=20s",
			"INFO goes on after a pause after=20s",
			"WARN paused for=1s in=1s",
		}, r.take())
	})
}

// Pauses of many callers at once may be told in any order.
func TestAShorterPauseToldLateHasNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)
		observe(paused(time.Minute), paused(30*time.Second))
		time.Sleep(30 * time.Second)
		observe(paused(30*time.Second - time.Millisecond))
		assert.Equal(t, []string{"WARN paused for=1m0s in=1m0s"}, r.take())
	})
}

// A pause is as long as it has become.
func TestAShortPauseThatIsExtendedIsALongOne(t *testing.T) {
	started := cruise.AttemptStarted{Attempt: 1, Waited: time.Second}
	for _, tt := range []struct {
		name string
		then []time.Duration // pauses that follow the first, each after 5 s
		want string          // the last line
	}{
		{"by a short one", []time.Duration{8 * time.Second}, "INFO goes on after a pause after=13s"},
		{"by short ones", []time.Duration{8 * time.Second, 8 * time.Second}, "INFO goes on after a pause after=18s"},
		{"by a long one", []time.Duration{time.Minute}, "INFO goes on after a pause after=1m5s"},
		{"not at all", nil, "WARN paused for=6s in=6s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, observe := record(slog.LevelInfo)
				observe(paused(6 * time.Second))
				last := 6 * time.Second
				for _, last = range tt.then {
					time.Sleep(5 * time.Second)
					observe(paused(last))
				}
				time.Sleep(last)
				observe(started)
				lines := r.take()
				assert.Equal(t, tt.want, lines[len(lines)-1])
			})
		})
	}
	t.Run("another one long after, without calls between", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, observe := record(slog.LevelInfo)
			observe(paused(5 * time.Second))
			time.Sleep(time.Hour)
			observe(paused(5 * time.Second))
			time.Sleep(5 * time.Second)
			observe(started)
			assert.Equal(t, []string{"WARN paused for=5s in=5s", "WARN paused for=5s in=5s"}, r.take())
		})
	})
}

func TestTheEndOfAPauseToldLateIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)
		event := paused(10 * time.Second)
		time.Sleep(2 * time.Second) // of another observer
		observe(event)
		assert.Equal(t, []string{"WARN paused for=10s in=8s"}, r.take())
	})
}

func TestALongPauseEndsWithALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)
		started := cruise.AttemptStarted{Attempt: 1, Waited: time.Second}
		observe(cruise.ThrottleSeen{}, paused(30*time.Second), cruise.ThrottleSeen{})
		time.Sleep(20 * time.Second)
		observe(started) // of another scope
		observe(paused(20 * time.Second))
		time.Sleep(25 * time.Second)
		observe(started, started)
		observe(paused(9 * time.Second))
		time.Sleep(9 * time.Second)
		observe(started)
		assert.Equal(t, []string{
			"WARN throttled by the server",
			"WARN paused for=30s in=30s",
			"WARN paused for=20s in=20s throttles=1",
			"INFO goes on after a pause after=45s",
			"WARN paused for=9s in=9s",
		}, r.take())
	})
}

// A change of state has its line, however soon it follows another. An unchanged state has one line
// in ten seconds.
func TestNoChangeOfStateIsHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)
		for range 5 {
			observe(
				cruise.ThrottleSeen{},
				cruise.RateChanged{From: 20, To: 10, Why: cruise.CauseThrottle},
				paused(100*time.Millisecond),
				cruise.GaveUp{Err: &cruise.Error{Reason: cruise.ErrDeadline}},
			)
			time.Sleep(200 * time.Millisecond)
			observe(cruise.RateChanged{From: 10, To: 21, Why: cruise.CauseSuccess})
			time.Sleep(800 * time.Millisecond)
		}
		lines := strings.Join(r.take(), "\n")
		for what, want := range map[string]int{
			"throttled by the server": 5, "rate cut": 5, "paused": 5, "rate recovered": 5, "gave up": 1,
		} {
			assert.Equal(t, want, strings.Count(lines, " "+what), "%s in\n%s", what, lines)
		}
	})
}

func TestSharedStore(t *testing.T) {
	r, observe := record(slog.LevelInfo)
	observe(cruise.StoreDegraded{Err: errors.New("connection refused")}, cruise.StoreRecovered{After: 3 * time.Second})
	assert.Equal(t, []string{
		"WARN shared store unreachable error=connection refused",
		"INFO shared store back after=3s",
	}, r.take())
}

func TestGivingUpIsSampledByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelInfo)
		last := errors.New("503 Service Unavailable")
		budget := cruise.GaveUp{Err: &cruise.Error{Reason: cruise.ErrBudgetExhausted, Attempts: 2, Elapsed: 1234567 * time.Microsecond, Last: last}}
		canceled := func() cruise.GaveUp {
			return cruise.GaveUp{Err: &cruise.Error{Reason: fmt.Errorf("%w: shutdown", context.Canceled), RetryAfter: time.Minute}}
		}
		observe(budget, budget, budget, canceled(), canceled())
		time.Sleep(cruiseslog.DefaultInterval)
		observe(budget, cruise.GaveUp{Err: &cruise.Error{}})
		assert.Equal(t, []string{
			"WARN gave up reason=cruise: retry budget of this client exhausted attempts=2 elapsed=1.235s error=503 Service Unavailable",
			"WARN gave up reason=context canceled: shutdown attempts=0 elapsed=0s retry_after=1m0s",
			"WARN gave up reason=cruise: retry budget of this client exhausted attempts=2 elapsed=1.235s calls=3 error=503 Service Unavailable",
			"WARN gave up reason=<nil> attempts=0 elapsed=0s",
		}, r.take())
	})
}

// The failures of one scope hide no failures of another. Scopes beyond the first thousand are
// reported as one.
func TestGivingUpIsSampledByScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		o := cruiseslog.NewObserver(slog.New(r), cruiseslog.WithKeys(func(_, key string) string { return key }))
		api := cruise.Must(cruise.New(cruise.WithObserver(o), cruise.WithMaxAttempts(1), cruise.WithoutLimiter()))
		fail := func(tenants int) (gaveUp []string) {
			for range 2 {
				for tenant := range tenants {
					err := api.Scope("TENANT", fmt.Sprint(tenant)).Do(t.Context(), func(context.Context) error { return errors.New("503") })
					require.Error(t, err)
				}
			}
			for _, line := range r.take() {
				if strings.HasPrefix(line, "WARN gave up") {
					gaveUp = append(gaveUp, line)
				}
			}
			return gaveUp
		}
		assert.Equal(t, []string{
			"WARN gave up reason=cruise: attempts exhausted attempts=1 elapsed=0s error=503 limiter=TENANT 0",
			"WARN gave up reason=cruise: attempts exhausted attempts=1 elapsed=0s error=503 limiter=TENANT 1",
		}, fail(2))
		time.Sleep(cruiseslog.DefaultInterval)
		assert.Equal(t, []string{
			"WARN gave up reason=cruise: attempts exhausted attempts=1 elapsed=0s calls=2 error=503 limiter=TENANT 0",
			"WARN gave up reason=cruise: attempts exhausted attempts=1 elapsed=0s calls=2 error=503 limiter=TENANT 1",
		}, fail(2))

		lines := fail(1500)
		assert.Len(t, lines, 1000-2+1)
		assert.Equal(t, "WARN gave up reason=cruise: attempts exhausted attempts=1 elapsed=0s error=503", lines[len(lines)-1])
	})
}

func TestDebugTellsOfEachCallAndWhyItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, observe := record(slog.LevelDebug)
		failed := errors.New("no route to host")
		observe(
			cruise.AttemptStarted{Attempt: 1, Waited: time.Microsecond},
			cruise.AttemptEnded{Attempt: 1, Outcome: cruise.OutcomeTransient, Err: failed, Took: time.Second},
			cruise.RetryScheduled{Attempt: 2, Delay: 100 * time.Millisecond, Reason: cruise.OutcomeTransient, Err: failed},
			cruise.RateChanged{From: 4, To: 2, Why: cruise.CauseThrottle},
			paused(time.Second),
		)
		observe(
			cruise.Waiting{AtLeast: 1300 * time.Millisecond, Paused: time.Second, Ahead: 3},
			cruise.Waiting{AtLeast: 12345 * time.Nanosecond},
		)
		time.Sleep(1500 * time.Millisecond)
		observe(cruise.AttemptStarted{Attempt: 2, Waited: 1200 * time.Millisecond})
		observe(cruise.AttemptStarted{Attempt: 1, Waited: 400 * time.Millisecond})
		assert.Equal(t, []string{
			"DEBUG attempt started attempt=1",
			"DEBUG attempt ended attempt=1 outcome=transient took=1s error=no route to host",
			"DEBUG will retry attempt=2 reason=transient delay=100ms error=no route to host",
			"WARN rate cut from=4 to=2 why=throttle",
			"WARN paused for=1s in=1s",
			"DEBUG waiting at_least=1.3s paused=1s ahead=3 rate=2",
			"DEBUG waiting at_least=12µs rate=2",
			"DEBUG attempt started after a wait attempt=2 waited=1.2s for=a pause rate=2",
			"DEBUG attempt started after a wait attempt=1 waited=400ms for=the rate, and calls that came before rate=2",
		}, r.take())
	})
}

// A whole congestion of many callers, as a Retrier tells it.
func TestWithARetrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{level: slog.LevelInfo}
		api := cruise.Must(cruise.New(
			cruise.WithObserver(cruiseslog.NewObserver(slog.New(r))),
			cruise.WithInitialRate(100),
		))
		start := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				assert.NoError(t, api.Do(t.Context(), func(context.Context) error {
					early := time.Since(start) < time.Second // the first five
					time.Sleep(45 * time.Millisecond)
					if early {
						return cruise.Throttled(errors.New("slow down"), cruise.RetryAfter(time.Second))
					}
					return nil
				}))
			})
		}
		all.Wait()
		assert.Equal(t, []string{
			"WARN throttled by the server retry_after=1s",
			"WARN paused for=1s in=1s",
			"INFO no longer throttled throttles=4",
		}, r.take())
	})
}

// Each scope has its own state, and its lines name the scope.
func TestScopesAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{level: slog.LevelInfo}
		api := cruise.Must(cruise.New(
			cruise.WithObserver(cruiseslog.NewObserver(slog.New(r), cruiseslog.WithKeys(func(_, key string) string { return key }))),
			cruise.WithInitialRate(100),
		))
		do := func(account string, throttles int) {
			assert.NoError(t, api.Scope("ACCOUNT", account).Scope("TABLE", "t").Do(t.Context(), func(context.Context) error {
				if throttles--; throttles >= 0 {
					return cruise.Throttled(errors.New("slow down"), cruise.RetryAfter(time.Second), cruise.InScope("ACCOUNT"))
				}
				return nil
			}))
		}
		do("1", 1)
		do("2", 1)
		do("1", 0)
		assert.Equal(t, []string{
			"WARN throttled by the server retry_after=1s scope=ACCOUNT limiter=ACCOUNT 1",
			"WARN paused for=1s in=1s limiter=ACCOUNT 1",
			"INFO no longer throttled limiter=ACCOUNT 1",
			"WARN throttled by the server retry_after=1s scope=ACCOUNT limiter=ACCOUNT 2",
			"WARN paused for=1s in=1s limiter=ACCOUNT 2",
			"INFO no longer throttled limiter=ACCOUNT 2",
		}, r.take())
	})
}

func TestKeysAreDigestsUnlessAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time goes by before the attempt
		r := &recorder{level: slog.LevelDebug}
		api := cruise.Must(cruise.New(cruise.WithObserver(cruiseslog.NewObserver(slog.New(r), cruiseslog.WithKeys(nil)))))
		require.NoError(t, api.Scope("ACCOUNT", "secret").Do(t.Context(), func(context.Context) error { return nil }))
		lines := r.take()
		require.Len(t, lines, 2)
		assert.Regexp(t, `^DEBUG attempt started attempt=1 limiter=ACCOUNT #[0-9a-f]{8}$`, lines[0])
	})
}

// If there are too many scopes, scopes without trouble are forgotten. If all have trouble, the rest
// is reported as one.
func TestScopesThatAreFollowedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{level: slog.LevelInfo}
		api := cruise.Must(cruise.New(cruise.WithObserver(cruiseslog.NewObserver(slog.New(r))), cruise.WithMaxAttempts(1)))
		throttle := func(n int) {
			_ = api.Scope("ACCOUNT", fmt.Sprint(n)).Do(t.Context(), func(context.Context) error {
				return cruise.Throttled(errors.New("no"), cruise.RetryAfter(time.Minute))
			})
		}
		named := func() (n int) {
			for _, line := range r.take() {
				if strings.Contains(line, "throttled by the server") && strings.Contains(line, "limiter=") {
					n++
				}
			}
			return n
		}
		for n := range 1005 {
			throttle(n)
		}
		assert.Equal(t, 1000, named())
		time.Sleep(2 * time.Minute)
		for n := range 10 { // these are well again
			require.NoError(t, api.Scope("ACCOUNT", fmt.Sprint(n)).Do(t.Context(), func(context.Context) error { return nil }))
		}
		r.take()
		for n := range 10 {
			throttle(2000 + n)
		}
		assert.Equal(t, 10, named())
		time.Sleep(time.Hour) // without calls their limiters have been forgotten
		for n := range 1005 {
			throttle(3000 + n)
		}
		assert.Equal(t, 1000, named())
	})
}

func TestNilLoggerMeansTheDefaultOfTheMoment(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	o := cruiseslog.NewObserver(nil, nil)
	var text bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	o.Observe(t.Context(), cruise.ThrottleSeen{})
	assert.Contains(t, text.String(), "throttled by the server")
}

func TestConcurrentUse(t *testing.T) {
	r, observe := record(slog.LevelDebug)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				observe(cruise.AttemptStarted{Attempt: 1, Waited: time.Second}, cruise.ThrottleSeen{}, cruise.Waiting{AtLeast: time.Second},
					cruise.RateChanged{From: 10, To: rate.Limit(i) + 1, Why: cruise.CauseThrottle}, paused(time.Second),
					cruise.AttemptEnded{Outcome: cruise.OutcomeSuccess}, cruise.GaveUp{Err: &cruise.Error{}})
			}
		})
	}
	all.Wait()
	require.NotEmpty(t, r.take())
}

// A closed API that asks for a second each time is one state, not a line a second.
func TestPausesThatFollowEachOtherAreSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{level: slog.LevelInfo}
		api := cruise.Must(cruise.New(cruise.WithUncountedThrottles(), cruise.WithObserver(cruiseslog.NewObserver(slog.New(r)))))
		begun := time.Now()
		require.NoError(t, api.Do(t.Context(), func(context.Context) error {
			if time.Since(begun) < time.Hour {
				return cruise.Throttled(errors.New("429"), cruise.RetryAfter(time.Second))
			}
			return nil
		}))
		lines := r.take()
		assert.InDelta(t, 360, len(lines), 10)
		assert.Equal(t, []string{
			"WARN throttled by the server retry_after=1s",
			"WARN paused for=1s in=1s",
			"WARN paused for=1s in=1s throttles=10",
		}, lines[:3])
	})
}
