package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/debug"
	"github.com/a7df5faa/cruise/delay"
	"github.com/a7df5faa/cruise/shared"
)

var errSecret = &url.Error{Op: "Get", URL: "https://bob:hunter2@api.example.com/v1/things?api_key=s3cr3t", Err: errors.New("connection reset by peer")}

// story is a page after some minutes of work, in a bubble: two accounts that call
// an API which throttles, a host that asked for a pause, and an API that is idle.
func story(t *testing.T, opts ...debug.Option) *debug.Page {
	page := debug.New(opts...)
	heroku := page.Watch("heroku")
	api := cruise.Must(cruise.New(cruise.WithObserver(heroku), cruise.WithUncountedThrottles()))
	heroku.Add(api)
	billing := page.Watch("billing")
	transport := cruise.Must(cruisehttp.NewTransport(cruisehttp.WithRoundTripper(roundTripper(func(req *http.Request) (*http.Response, error) {
		time.Sleep(50 * time.Millisecond)
		answer := httptest.NewRecorder()
		if req.URL.Host == "busy.example.com" {
			answer.Header().Set("Retry-After", "90")
			answer.WriteHeader(http.StatusTooManyRequests)
		}
		resp := answer.Result()
		resp.Request = req
		return resp, nil
	})), cruisehttp.WithRetrierOptions(cruise.WithObserver(billing), cruise.WithMaxElapsed(time.Minute))))
	billing.Add(transport.Retrier())
	idle := page.Watch("mail")
	idle.Add(cruise.Must(cruise.New(cruise.WithObserver(idle))))

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(cancel)
	limit := rate.NewLimiter(12, 20)
	time.AfterFunc(160*time.Second, func() { limit.SetLimit(5) })
	time.AfterFunc(266*time.Second, func() { limit.SetLimit(2) })
	var calls atomic.Int64
	for worker := range 15 {
		account := api.Scope("ACCOUNT", fmt.Sprintf("customer-%d@example.com", worker%3))
		all.Go(func() {
			for ctx.Err() == nil {
				_ = account.Do(ctx, func(context.Context) error {
					time.Sleep(80 * time.Millisecond)
					switch {
					case !limit.Allow():
						return cruise.Throttled(errors.New("429 Too Many Requests"), cruise.RetryAfter(2*time.Second))
					case calls.Add(1)%100 == 0:
						return errSecret
					}
					return nil
				})
			}
		})
	}
	all.Go(func() {
		time.Sleep(255 * time.Second)
		for _, host := range []string{"pay.example.com", "busy.example.com"} {
			req := cruise.Must(http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", nil))
			if resp, err := transport.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		}
	})
	time.Sleep(270*time.Second + 300*time.Millisecond)
	return page
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func get(page http.Handler, target string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, req)
	return w
}

func TestTheBudgetShownIsTheLeastOfAllScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New()
		api := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithMaxAttempts(3), cruise.WithBackoff(cruise.Backoff{})))
		page.Watch("crawler").Add(api)
		for key, err := range map[string]error{"up": nil, "down": errors.New("down")} {
			_ = api.Scope("HOST", key).Do(t.Context(), func(context.Context) error { return err })
		}
		left := page.Report().APIs[0].Budget
		require.NotNil(t, left)
		assert.Equal(t, 98., *left)
	})
}

func TestALimiterOfSeveralRetriersIsShownOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New()
		watch := page.Watch("reads and writes")
		limiter := cruise.Must(cruise.NewTokenBucket(1, 1))
		for range 2 {
			api := cruise.Must(cruise.New(cruise.WithLimiter(limiter), cruise.WithObserver(watch)))
			watch.Add(api)
			go func() { _ = api.Do(t.Context(), func(context.Context) error { return nil }) }()
		}
		synctest.Wait()
		api := page.Report().APIs[0]
		assert.Equal(t, 1, api.Waiting)
		assert.Len(t, api.Limiters, 1)
		assert.Equal(t, 1., api.History[len(api.History)-1].Limit, "it is the one that all pass")
		time.Sleep(time.Minute)
	})
}

func TestThePageTellsThePresentState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := story(t)
		w := get(page, "/debug/cruise?format=json")
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		var r debug.Report
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
		require.Len(t, r.APIs, 3)

		heroku := r.APIs[0]
		assert.Equal(t, "heroku", heroku.Name)
		worst := "heroku" // unless by chance it was throttled some time ago
		if heroku.State == debug.StateWaiting {
			worst = "billing"
		} else {
			assert.Contains(t, []debug.State{debug.StateThrottled, debug.StatePaused}, heroku.State)
		}
		assert.InDelta(t, 5, heroku.Rate, 1.5)
		assert.Equal(t, heroku.Attempts, heroku.Outcomes["success"]+heroku.Outcomes["throttled"]+heroku.Outcomes["transient"]+uint64(inFlight(heroku)))
		assert.Greater(t, heroku.Throttle, uint64(0))
		assert.NotNil(t, heroku.Last)
		assert.Positive(t, heroku.Waiting)
		require.NotNil(t, heroku.Budget)
		assert.Less(t, *heroku.Budget, 101.)
		require.Len(t, heroku.Limiters, 4, "its own, and three accounts")
		assert.InDelta(t, 135, len(heroku.History), 15)
		require.NotEmpty(t, heroku.Changes)
		assert.Regexp(t, `^ACCOUNT #[0-9a-f]{8} (paused|rate cut)$`, heroku.Changes[0].What)
		require.NotEmpty(t, heroku.Errors)
		assert.NotEmpty(t, heroku.Next)

		billing := r.APIs[1]
		assert.Equal(t, debug.StatePaused, billing.State)
		assert.InDelta(t, 90-15, billing.Pause, 1)
		assert.Contains(t, billing.Summary, "Paused for 1 min")
		require.Len(t, billing.Limiters, 2)
		assert.Equal(t, debug.StatePaused, billing.Limiters[0].State, "the worst comes first")

		assert.Equal(t, debug.StateIdle, r.APIs[2].State)
		assert.Nil(t, r.APIs[2].Since)

		for _, text := range []string{w.Body.String(), get(page, "/debug/cruise").Body.String()} {
			for _, secret := range []string{"customer-", "example.com\"", "busy.example", "hunter2", "s3cr3t"} {
				assert.NotContains(t, text, secret)
			}
			assert.Contains(t, text, "connection reset by peer")
		}
		html := get(page, "/debug/cruise", "Accept", "text/html,application/json")
		assert.Equal(t, "text/html; charset=utf-8", html.Header().Get("Content-Type"))
		assert.Contains(t, html.Body.String(), "<title>"+worst+": ")
		assert.Contains(t, html.Body.String(), "billing is paused")
		for _, bad := range []string{"http://", "https://", "NaN", "Inf", "ZgotmplZ", "<no value>", "%!", " style="} {
			assert.NotContains(t, strings.ReplaceAll(html.Body.String(), "https://…@api.example.com", ""), bad)
		}
	})
}

// inFlight returns the number of attempts that were let go and have not ended.
func inFlight(a debug.API) int {
	ended := uint64(0)
	for _, n := range a.Outcomes {
		ended += n
	}
	return int(a.Attempts - ended)
}

// away is a store that cannot be reached.
type away struct{}

func (away) Sync(context.Context, shared.Request) (shared.Reply, error) {
	return shared.Reply{}, errors.New("connection refused")
}

func TestASharedLimiterWithoutItsStoreIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New()
		watch := page.Watch("api")
		api := cruise.Must(cruise.New(cruise.WithObserver(watch), cruise.WithLimiter(cruise.Must(shared.New(away{})))))
		watch.Add(api)
		require.NoError(t, api.Do(t.Context(), func(context.Context) error { return nil }))
		assert.Contains(t, page.Report().APIs[0].Summary, "The store of a shared limit cannot be reached: this process goes on alone.")
		assert.Contains(t, get(page, "/").Body.String(), "without its store")
	})
}

func TestASharedLimiterThatIsClosedWithoutItsStoreIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New()
		watch := page.Watch("api")
		api := cruise.Must(cruise.New(cruise.WithObserver(watch), cruise.WithMaxElapsed(time.Minute),
			cruise.WithLimiter(cruise.Must(shared.New(away{}, shared.WithFallback(shared.FallbackClosed))))))
		watch.Add(api)
		require.ErrorIs(t, api.Do(t.Context(), func(context.Context) error { return nil }), cruise.ErrMaxElapsed)
		a := page.Report().APIs[0]
		assert.Contains(t, a.Summary, "The store of a shared limit cannot be reached: until it can, nobody goes.")
		assert.Equal(t, "Lets no call through until its store can be reached.", a.Next)
	})
}

// The page says that a rate will grow only of limiters that learn.
func TestNextIsTrueOfEachKindOfLimiter(t *testing.T) {
	const learns, fixed = true, false
	for _, tt := range []struct {
		name    string
		limiter cruise.Limiter
		learns  bool
		next    string
	}{
		{"adaptive", cruise.Must(cruise.NewAdaptiveLimiter()), learns, "Speeds up gently until the API says stop."},
		{"adaptive, with a rate", cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithInitialRate(5))), learns, "Lets up to 5.00/s through, and looks for more when calls have to wait."},
		{"bucket", cruise.Must(cruise.NewTokenBucket(5, 1)), fixed, "Lets up to 5.00/s through."},
		{"x/time", rate.NewLimiter(5, 1), fixed, "Lets up to 5.00/s through."},
		{"bucket without a limit", cruise.Must(cruise.NewTokenBucket(rate.Inf, 1)), fixed, "Lets all calls through at once."},
		{"window", cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 9, Per: time.Minute})), fixed, "Keeps to a window or a delay of its own."},
		{"delays", cruise.Must(delay.New(delay.HerokuGradual())), fixed, "Keeps to a window or a delay of its own."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			page := debug.New()
			page.Watch("api").Add(cruise.Must(cruise.New(cruise.WithLimiter(tt.limiter))))
			a := page.Report().APIs[0]
			assert.Equal(t, tt.next, a.Next)
			assert.Equal(t, tt.learns, a.Limiters[0].Learns)
		})
	}
}

// A count that does not exist is not shown as 0.
func TestALimiterThatDoesNotCountIsNotCalledIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New()
		watch := page.Watch("api")
		limiter := cruise.Must(cruise.NewTokenBucket(20, 1))
		api := cruise.Must(cruise.New(cruise.WithLimiter(limiter), cruise.WithObserver(watch)))
		watch.Add(api)
		for range 100 {
			require.NoError(t, api.Do(t.Context(), func(context.Context) error { return nil }))
		}
		a := page.Report().APIs[0]
		assert.Equal(t, debug.StateFlowing, a.State)
		assert.Empty(t, a.Limiters[0].State)
		assert.Contains(t, get(page, "/").Body.String(), "<th scope=\"row\">all calls</th><td>–</td><td>20.0/s</td><td>–</td><td>0</td><td>–</td><td>–</td>")
		limiter.Pause(time.Minute)
		assert.Equal(t, debug.StatePaused, page.Report().APIs[0].Limiters[0].State)
	})
}

// A limiter begins with its first call, so all of its calls count, though no sample was taken
// since. Of a limiter that is shown late the page does not know when its calls went.
func TestALimiterThatHasJustBegunIsNotCalledIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New(debug.WithKeys(nil))
		watch := page.Watch("api")
		api := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithObserver(watch)))
		call := func(key string, times int) {
			for range times {
				require.NoError(t, api.Scope("ACCOUNT", key).Do(t.Context(), func(context.Context) error { return nil }))
			}
		}
		look := func() debug.Limiter { return page.Report().APIs[0].Limiters[0] } // the one that was used last
		call("late", 100)
		watch.Add(api)
		assert.Zero(t, look().Rate, "of the last seconds, for all that is known")
		time.Sleep(4 * time.Second)
		call("late", 1) // which makes the watch look
		call("new", 20)
		time.Sleep(time.Second)
		got := look()
		assert.Equal(t, "ACCOUNT new", got.Name)
		assert.Equal(t, debug.StateFlowing, got.State)
		assert.Equal(t, 20., got.Rate)
		time.Sleep(11 * time.Second)
		page.Report()
		time.Sleep(11 * time.Second)
		assert.Equal(t, debug.StateIdle, look().State)
	})
}

func TestTheStateIsThatOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New()
		watch := page.Watch("api")
		limiter := cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithInitialRate(2), cruise.WithObserver(watch)))
		api := cruise.Must(cruise.New(cruise.WithLimiter(limiter), cruise.WithObserver(watch)))
		watch.Add(api)
		watch.Add(nil)
		now := func() debug.API { return page.Report().APIs[0] }
		call := func(err error) { _ = api.Do(t.Context(), func(context.Context) error { return err }) }

		assert.Equal(t, "Idle: no attempt in the last 10 seconds.", now().Summary)
		assert.Contains(t, get(page, "/").Body.String(), ">Last 1 minute<", "there is no more yet")
		for range 10 {
			call(nil)
		}
		assert.Equal(t, "Flowing: no throttle in the last minute, and nobody waits.", now().Summary)

		ctx, cancel := context.WithCancel(t.Context())
		for range 4 {
			go func() { _ = api.Do(ctx, func(context.Context) error { return nil }) }()
		}
		synctest.Wait()
		a := now()
		assert.Equal(t, "Held back by the limit, not by throttles now. 4 calls wait.", a.Summary)
		assert.Regexp(t, `are through in about 2 s at 2.0\d/s`, a.Next)

		limiter.Pause(65 * time.Second)
		a = now()
		assert.Equal(t, "Paused for 1 min 5 s more, as the API asked or was throttling. 4 calls wait.", a.Summary)
		assert.Regexp(t, `^Calls again in 1 min 5 s, at 2.0\d/s.$`, a.Next)
		assert.Equal(t, "paused", a.Changes[0].What)
		cancel()
		limiter.Resume()
		synctest.Wait()
		assert.Equal(t, []string{"resumed", "1 min 5 s early"}, []string{now().Changes[0].What, now().Changes[0].Text})

		time.Sleep(20 * time.Second)
		call(cruise.Permanent(cruise.Throttled(errors.New("no")))) // the outermost wrapper counts
		assert.Nil(t, now().Since)
		began := time.Now()
		_ = api.Do(t.Context(), func(context.Context) error {
			if time.Since(began) < 2*time.Second {
				return cruise.Throttled(errors.New("slow down"), cruise.RetryAfter(time.Second))
			}
			return nil
		})
		a = now()
		assert.Equal(t, debug.StateThrottled, a.State)
		assert.Regexp(t, `^Throttled by the API: \d throttles? in the last 5 minutes, the last \d s ago.$`, a.Summary)
		time.Sleep(30 * time.Second)
		assert.WithinDuration(t, began, *now().Since, time.Second)
		time.Sleep(31 * time.Second)
		a = now()
		assert.Nil(t, a.Since)
		assert.NotNil(t, a.Last)
		require.NoError(t, limiter.SetLimit(rate.Inf))
		a = now()
		assert.Equal(t, "Speeds up gently until the API says stop.", a.Next)
		assert.Equal(t, "rate set", a.Changes[0].What)
		assert.Nil(t, a.Limiters[0].Limit)

		assert.Contains(t, get(page, "/").Body.String(), ">Last 2 minutes<")
		page.Remove(watch)
		assert.Empty(t, page.Report().APIs)
		assert.Contains(t, get(page, "/").Body.String(), "Nothing is watched")
	})
}

// A crowd of scopes, errors and events takes no more memory than a few.
func TestKeptEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New(debug.WithMaxScopes(3), debug.WithKeys(debug.PlainKeys), nil)
		watch := page.Watch("api")
		api := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithMaxAttempts(1), cruise.WithObserver(watch)))
		watch.Add(api)
		for i := range 400 {
			_ = api.Scope("S", fmt.Sprint(i%50)).Do(t.Context(), func(context.Context) error {
				if i%50 == 7 {
					return cruise.Throttled(errors.New("no"), cruise.RetryAfter(time.Hour))
				}
				return fmt.Errorf("error %d", i)
			})
			time.Sleep(3 * time.Second)
		}
		a := page.Report().APIs[0]
		assert.Len(t, a.Limiters, 3)
		assert.Equal(t, "S 7", a.Limiters[0].Name)
		assert.Equal(t, 47, a.Unshown)
		assert.Len(t, a.Errors, 10)
		assert.LessOrEqual(t, len(a.History), 150)
		assert.LessOrEqual(t, len(a.Changes), 10)
		assert.Contains(t, get(page, "/").Body.String(), "and 47 more")
	})
}

// The summary counts waiting calls and the longest pause over all limiters, also over limiters that
// are not shown.
func TestTotalsCountLimitersThatAreNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New(debug.WithMaxScopes(1))
		watch := page.Watch("api")
		api := cruise.Must(cruise.New(cruise.WithoutLimiter()))
		watch.Add(api)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		for _, pause := range []time.Duration{20 * time.Second, 30 * time.Second, 10 * time.Second} {
			account := api.Scope("ACCOUNT", pause.String())
			account.Limiter().(*cruise.AdaptiveLimiter).Pause(pause)
			for range 2 {
				go func() { _ = account.Do(ctx, func(context.Context) error { return nil }) }()
			}
			synctest.Wait()
		}
		a := page.Report().APIs[0]
		require.Len(t, a.Limiters, 1)
		assert.Equal(t, 2, a.Unshown)
		assert.Equal(t, 6, a.Waiting)
		assert.Equal(t, 30., a.Pause)
		assert.Equal(t, "Paused for 30 s more, as the API asked or was throttling. 6 calls wait.", a.Summary)
	})
}

// The summary says how many scopes are paused: one paused customer is no reason to wake the person
// on call.
func TestAPauseOfSomeIsNotSaidToBeOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New(debug.WithMaxScopes(1))
		watch := page.Watch("api")
		api := cruise.Must(cruise.New())
		watch.Add(api)
		for _, key := range []string{"1", "2", "3"} {
			require.NoError(t, api.Scope("ACCOUNT", key).Do(t.Context(), func(context.Context) error { return nil }))
		}
		pause := func(r *cruise.Retrier) { r.Limiter().(*cruise.AdaptiveLimiter).Pause(30 * time.Second) }
		pause(api.Scope("ACCOUNT", "2"))
		assert.Equal(t, "Paused for 30 s more, in 1 of 4 limiters, as the API asked or was throttling.", page.Report().APIs[0].Summary)
		pause(api)
		assert.Equal(t, "Paused for 30 s more, as the API asked or was throttling.", page.Report().APIs[0].Summary, "all calls pass that one")
	})
}

// The forecast is about the limiter whose pause the summary names.
func TestTheLongestPauseComesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New(debug.WithKeys(nil))
		watch := page.Watch("api")
		api := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithMaxAttempts(1), cruise.WithObserver(watch)))
		watch.Add(api)
		for key, err := range map[string]error{
			"1": cruise.Throttled(errors.New("429"), cruise.RetryAfter(30*time.Second)),
			"2": cruise.QuotaExhausted(errors.New("429"), cruise.RetryAfter(2*time.Hour)), // no throttle
		} {
			require.Error(t, api.Scope("ACCOUNT", key).Do(t.Context(), func(context.Context) error { return err }))
		}
		got := page.Report().APIs[0]
		assert.Contains(t, got.Summary, "Paused for 2 h 0 min more,")
		assert.Equal(t, "Calls again in 2 h 0 min, a few at a time (ACCOUNT 2).", got.Next)
	})
}

func TestErrorsThatRepeatThemselvesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New(debug.WithErrorText(nil))
		watch := page.Watch("api")
		for range 3 {
			for range 100 {
				watch.Observe(t.Context(), cruise.AttemptEnded{Outcome: cruise.OutcomeTransient, Err: errors.New("reset")})
			}
			time.Sleep(2 * time.Second)
		}
		watch.Observe(t.Context(), cruise.AttemptEnded{Outcome: cruise.Outcome(99), Err: errors.New("odd")})
		errs := page.Report().APIs[0].Errors
		require.Len(t, errs, 2)
		assert.Equal(t, "odd", errs[0].Text)
		assert.Equal(t, 300, errs[1].Times)
		assert.Equal(t, 4*time.Second, errs[1].Last.Sub(errs[1].First))
	})
}

// A frequent error whose text never repeats hides no other error.
func TestErrorsOfOneKindLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New()
		watch := page.Watch("api")
		watch.Observe(t.Context(), cruise.AttemptEnded{Outcome: cruise.OutcomePermanent, Err: errors.New("expired")})
		for i := range 20 {
			watch.Observe(t.Context(), cruise.AttemptEnded{Outcome: cruise.OutcomeThrottled, Err: fmt.Errorf("429, until %d", i)})
			watch.Observe(t.Context(), cruise.GaveUp{Err: &cruise.Error{Reason: cruise.ErrAttemptsExhausted, Attempts: 5, Elapsed: time.Duration(i) * time.Second}})
			time.Sleep(time.Second)
		}
		var got []string
		for _, e := range page.Report().APIs[0].Errors {
			got = append(got, e.Text)
		}
		require.Len(t, got, 10)
		assert.Contains(t, got, "429, until 19")
		assert.Contains(t, got, "429, until 16")
		assert.Contains(t, got, "cruise: gave up after 5 attempts in 19s: attempts exhausted")
		assert.Contains(t, got, "expired")
	})
}

// A time of another day is shown with its date, so that a reader does not take last night's
// throttle for the present trouble.
func TestTimesOfAnotherDayHaveTheirDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New()
		watch := page.Watch("api")
		watch.Observe(t.Context(), cruise.AttemptEnded{Outcome: cruise.OutcomePermanent, Err: errors.New("expired")})
		watch.Observe(t.Context(), cruise.Paused{For: time.Minute})
		today, clock := get(page, "/").Body.String(), time.Now().Format("15:04:05")
		assert.Contains(t, today, "<li><b>"+clock+"</b> permanent: expired</li>")
		assert.Contains(t, today, "<li><b>"+clock+"</b> paused: for 1 min 0 s</li>")
		date := time.Now().Format("Jan 2 15:04:05")
		time.Sleep(24 * time.Hour)
		watch.Observe(t.Context(), cruise.AttemptEnded{Outcome: cruise.OutcomePermanent, Err: errors.New("expired")})
		tomorrow := get(page, "/").Body.String()
		assert.Contains(t, tomorrow, "<li><b>"+clock+"</b> permanent: expired <span class=\"quiet\">(2 times since "+date+")</span></li>")
		assert.Contains(t, tomorrow, "<li><b>"+date+"</b> paused: for 1 min 0 s</li>")
	})
}

// Words of servers and users are shown as text, not as HTML.
func TestTheWordsOfOthersAreEscaped(t *testing.T) {
	const evil = `"><script>alert(1)</script>`
	page := debug.New(debug.WithKeys(debug.PlainKeys))
	watch := page.Watch(evil)
	api := cruise.Must(cruise.New(cruise.WithObserver(watch), cruise.WithMaxAttempts(1)))
	watch.Add(api)
	_ = api.Scope(evil, evil).Do(t.Context(), func(context.Context) error { return cruise.Throttled(errors.New(evil)) })
	html := get(page, "/").Body.String()
	assert.GreaterOrEqual(t, strings.Count(html, "&lt;script&gt;alert"), 6)
	assert.NotContains(t, html, "<script>alert")
}

func TestRedacted(t *testing.T) {
	for _, tt := range []struct{ name, err, want string }{
		{"plain", "connection reset by peer", "connection reset by peer"},
		{"query", `Get "https://api.example.com/a?key=1&x=2": EOF`, `Get "https://api.example.com/a?…": EOF`},
		{"credentials with an @", "dial postgres://me:p@ss@db.example.com/x: refused", "dial postgres://…@db.example.com/x: refused"},
		{"credentials", `Get "https://me:pass@api.example.com/a": EOF`, `Get "https://…@api.example.com/a": EOF`},
		{"header", "bad header Authorization: Bearer abc", "bad header Authorization: …"},
		{"header with another scheme", `bad header "Authorization: Token s3cr3t" of x`, `bad header "Authorization: …" of x`},
		{"header of a proxy", "Proxy-Authorization: ApiKey abc: refused", "Proxy-Authorization: … refused"},
		{"header without a scheme", "Authorization: abc, refused", "Authorization: …, refused"},
		{"header with parameters", "AUTHORIZATION: Digest username=\"joe\", response=\"6629\"\nrefused", "AUTHORIZATION: …\nrefused"},
		{"header with parameters, quoted", `bad header "Authorization: AWS4-HMAC-SHA256 Credential=\"a\", Signature=b"`, `bad header "Authorization: …`},
		{"header with padding", "Authorization: Custom dXNlcjpwYXNz== refused", "Authorization: … refused"},
		{"headers", "map[Authorization:[Token s3cr3t] Date:[x]]", "map[Authorization:[… Date:[x]]"},
		{"headers in Go", `http.Header{"Authorization":[]string{"Token s3cr3t"}}`, `http.Header{"Authorization":[]string{"…"}}`},
		{"headers in JSON", `{"authorization":["Token s3cr3t"],"n":1}`, `{"authorization":["…"],"n":1}`},
		{"headers in quoted JSON", `"{\"authorization\":\"Token s3cr3t\",\"n\":1}"`, `"{\"authorization\":\"…",\"n\":1}"`},
		{"cookies", `bad header "Cookie: session=abc; theme=dark" of x`, `bad header "Cookie: …" of x`},
		{"cookies in a header", "map[Set-Cookie:[id=abc; Path=/; Secure] Date:[x]]", "map[Set-Cookie:[…] Date:[x]]"},
		{"cookies in quoted JSON", `"{\"cookie\":\"id=abc; a=b\",\"n\":1}"`, `"{\"cookie\":\"…\",\"n\":1}"`},
		{"cookies with escapes", `{"cookie":"id=a\u0026s3cr3t; a=b","n":1}`, `{"cookie":"…","n":1}`},
		{"no cookie", "http: named cookie not present", "http: named cookie not present"},
		{"named", "api_key=abc, password: 'x'", "api_key=…, password: '…'"},
		{"compound, with _", "client_secret=hunter2, access_token: abc, db_password=x", "client_secret=…, access_token: …, db_password=…"},
		{"compound, in upper case", "API_TOKEN=abc", "API_TOKEN=…"},
		{"compound, in camel case", `accessToken=abc {"refreshToken":"def"}`, `accessToken=… {"refreshToken":"…"}`},
		{"compound, with -", "X-Auth-Token: abc", "X-Auth-Token: …"},
		{"keys by name", "secret_key=abc, private-key: d, secretAccessKey=e", "secret_key=…, private-key: …, secretAccessKey=…"},
		{"named, in quoted JSON", fmt.Sprintf("said %q", `{"client_secret":"s3cr3t","password":"hunter2","n":1}`), `said "{\"client_secret\":\"…\",\"password\":\"…\",\"n\":1}"`},
		{"named, with escapes", `{"password":"abc\u0026s3cr3t","secret":"\u003cs3cr3t","n":1}`, `{"password":"…","secret":"\…","n":1}`},
		{"named, with escapes, in quoted JSON", fmt.Sprintf("said %q", `{"password":"abc\u0026s3cr3t","n":1}`), `said "{\"password\":\"…\",\"n\":1}"`},
		{"named, with a backslash", `password=DOMAIN\s3cr3t refused`, "password=… refused"},
		{"named, in Go", `map[string][]string{"X-Api-Key":[]string{"hunter2"}}`, `map[string][]string{"X-Api-Key":[]string{"…"}}`},
		{"other names", "tokens: 7, secretary=x, key=y", "tokens: 7, secretary=x, key=y"},
		{"token", "token eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", "token …"},
		{"bare token", "for eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9 no", "for … no"},
		{"a long word", "ProvisionedThroughputExceededException", "ProvisionedThroughputExceededException"},
		{"a path", "open /usr/share/applications/v1/things: no", "open /usr/share/applications/v1/things: no"},
		{"a URL", `Get "https://dynamodb.eu-central-1.amazonaws.com/v1/projects/my-project-123/topics": EOF`, `Get "https://dynamodb.eu-central-1.amazonaws.com/v1/projects/my-project-123/topics": EOF`},
		{"a resource", "v1/projects/my-project-123/topics: no", "v1/projects/my-project-123/topics: no"},
		{"a method", "/google.pubsub.v1.Publisher/ListTopicSubscriptions: no", "/google.pubsub.v1.Publisher/ListTopicSubscriptions: no"},
		{"an identifier in a path", "/v1/customers/0123456789abcdef0123456789abcdef/orders", "/v1/customers/…/orders"},
		{"a webhook", `Post "https://hooks.slack.com/services/T01234567/B01234567/abcDEF123abcDEF123abcDEF": EOF`, `Post "https://hooks.slack.com/services/T01234567/B01234567/…": EOF`},
		{"a bot", `Post "https://api.telegram.org/bot123456789:AAF-ABC1234ghIklzyx57W2v1u123ew11abcd/sendMessage": EOF`, `Post "https://api.telegram.org/bot123456789:…/sendMessage": EOF`},
		{"a short token of a bot", "/bot1:Abc_-def/getMe", "/bot1:…/getMe"},
		{"a token in a path", "/v1/eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U", "/v1/….….…"},
		{"a key with slashes", "no key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "no key …"},
		{"a key at the end", "no key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY.", "no key …"},
		{"as long as a key", "/var/lib/applications/version1/things/ab", "/var/lib/applications/version1/things/ab"},
		{"a short password", "pwd=s3cr3t refused, pass: hunter2", "pwd=… refused, pass: …"},
		{"a short session", "session=abc; sid=def, session_id: g", "session=…; sid=…, session_id: …"},
		{"a short signature", "sig=abc&otp=123456", "sig=…&otp=…"},
		{"a short header", "x-auth: abc, auth: def", "x-auth: …, auth: …"},
		{"short, in JSON", `{"pass":"hunter2","otp":"1","n":1}`, `{"pass":"…","otp":"…","n":1}`},
		{"short, in quoted JSON", fmt.Sprintf("said %q", `{"pwd":"s3cr3t","n":1}`), `said "{\"pwd\":\"…\",\"n\":1}"`},
		{"short, other words", "session expired, passed: 3, oauth: no, design=x, outside: y", "session expired, passed: 3, oauth: no, design=x, outside: y"},
		{"a data source", "dial joe:s3cr3t@tcp(127.0.0.1:3306)/db: refused", "dial joe:…@tcp(127.0.0.1:3306)/db: refused"},
		{"a data source, with a slash", "joe:a/b@c@unix(/tmp/x.sock)/db", "joe:…@unix(/tmp/x.sock)/db"},
		{"a data source, without a protocol", "joe:s3cr3t@db.example.com:5432/x", "joe:…@db.example.com:5432/x"},
		{"no data source", `Get "https://example.com:8080/users/@me": EOF`, `Get "https://example.com:8080/users/@me": EOF`},
		{"long", strings.Repeat("ab ", 200), strings.Repeat("ab ", 79) + "ab…"},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, debug.Redacted(errors.New(tt.err))) })
	}
}

// A name that resolves to the loopback interface is no way in.
func TestHosts(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6060}
	elsewhere := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6060}
	listed := debug.WithHosts("admin.example.com")
	for _, c := range []struct {
		host  string
		local net.Addr
		opts  []debug.Option
		want  int
	}{
		{"127.0.0.1:6060", loopback, nil, 200},
		{"[::1]:6060", &net.TCPAddr{IP: net.IPv6loopback}, nil, 200},
		{"[::1]", loopback, nil, 200},
		{"LocalHost", loopback, nil, 200},
		{"evil.example:6060", loopback, nil, 403},
		{"localhost.evil.example", loopback, nil, 403},
		{"10.0.0.1", loopback, nil, 403},
		{"", loopback, nil, 403},
		{"admin.example.com", loopback, []debug.Option{listed}, 200},
		{"Admin.Example.com:80", elsewhere, []debug.Option{listed}, 200},
		{"evil.example", elsewhere, []debug.Option{listed}, 403},
		{"localhost:6060", loopback, []debug.Option{listed}, 200},
		{"any.example", elsewhere, nil, 200},
		{"any.example", nil, nil, 200},
	} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Host = c.host
		if c.local != nil {
			req = req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, c.local))
		}
		w := httptest.NewRecorder()
		debug.New(c.opts...).ServeHTTP(w, req)
		assert.Equal(t, c.want, w.Code, "%q at %v", c.host, c.local)
		assert.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Resource-Policy"))
	}
}

func TestKeys(t *testing.T) {
	shown := func(key string, opts ...debug.Option) string {
		page := debug.New(opts...)
		watch := page.Watch("api")
		api := cruise.Must(cruise.New(cruise.WithoutLimiter()))
		watch.Add(api)
		require.NoError(t, api.Scope("S", key).Do(t.Context(), func(context.Context) error { return nil }))
		return page.Report().APIs[0].Limiters[0].Name
	}
	assert.Regexp(t, `^S #[0-9a-f]{8}$`, shown("a customer"))
	assert.NotEqual(t, shown("a customer"), shown("a customer"), "another salt in each program")
	assert.Equal(t, "S a customer", shown("a customer", debug.WithKeys(nil)))
	assert.Equal(t, "S …omer", shown("a customer", debug.WithKeys(debug.ShortKeys)))
	assert.Equal(t, "S …", shown("customer", debug.WithKeys(debug.ShortKeys)))
}

func TestPathsThatAreServed(t *testing.T) {
	page := debug.New()
	w := get(page, "/")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	assert.Equal(t, "application/json", get(page, "/", "Accept", "application/json").Header().Get("Content-Type"))
	for method, code := range map[string]int{"HEAD": 200, "POST": 405, "DELETE": 405, "OPTIONS": 405} {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		assert.Equal(t, code, w.Code, method)
	}
}

// A limit of NaN, from one limiter of the user, must not break the page for all others.
func TestALimitThatIsNoNumber(t *testing.T) {
	page := debug.New()
	page.Watch("api").Add(cruise.Must(cruise.New(cruise.WithLimiter(rate.NewLimiter(rate.Limit(math.NaN()), 1)))))
	for _, path := range []string{"/", "/?format=json"} {
		w := get(page, path)
		assert.Equal(t, http.StatusOK, w.Code, w.Body.String())
	}
}

func TestConcurrentUse(t *testing.T) {
	page := debug.New()
	watch := page.Watch("api")
	api := cruise.Must(cruise.New(cruise.WithObserver(watch), cruise.WithMaxAttempts(2)))
	watch.Add(api)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 200 {
				_ = api.Scope("S", fmt.Sprint(i)).Do(t.Context(), func(context.Context) error {
					if n%50 == 7 {
						return cruise.Throttled(errSecret, cruise.RetryAfter(time.Millisecond))
					}
					return nil
				})
			}
		})
		all.Go(func() {
			for range 20 {
				get(page, "/")
				page.Remove(page.Watch("other"))
			}
		})
	}
	all.Wait()
	assert.Len(t, page.Report().APIs, 1)
}

func BenchmarkObserve(b *testing.B) {
	ctx := context.Background()
	page := debug.New()
	watch := page.Watch("api")
	var started, ended cruise.Event = cruise.AttemptStarted{Attempt: 1}, cruise.AttemptEnded{Attempt: 1, Outcome: cruise.OutcomeSuccess}
	b.ReportAllocs()
	for b.Loop() {
		watch.Observe(ctx, started)
		watch.Observe(ctx, ended)
	}
}

// One call in two seconds pays this price for the history, with as many scopes as a Retrier keeps.
func BenchmarkLookAtTenThousandScopes(b *testing.B) {
	page := debug.New()
	watch := page.Watch("api")
	api := cruise.Must(cruise.New())
	watch.Add(api)
	for i := range 10_000 {
		_ = api.Scope("S", fmt.Sprint(i)).Do(b.Context(), func(context.Context) error { return nil })
	}
	for b.Loop() {
		page.Report()
	}
}

// An API whose every call fails is not called flowing, though it does not throttle.
func TestTheSummaryTellsOfCallsThatAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := debug.New()
		watch := page.Watch("api")
		api := cruise.Must(cruise.New(cruise.WithObserver(watch)))
		watch.Add(api)
		for range 30 {
			assert.Error(t, api.Do(t.Context(), func(context.Context) error { return errors.New("503") }))
		}
		assert.Contains(t, page.Report().APIs[0].Summary, "Calls are given up")
		time.Sleep(11 * time.Second)
		assert.NotContains(t, page.Report().APIs[0].Summary, "Calls are given up")
	})
}
