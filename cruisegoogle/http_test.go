package cruisegoogle_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"google.golang.org/api/drive/v3"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegoogle"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
	"github.com/a7df5faa/cruise/internal/calm"
)

func TestMain(m *testing.M) { os.Exit(calm.Run(m)) }

// Answers as the services send them.
const (
	userRate = `{"error":{"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded","message":"User Rate Limit Exceeded"}],` +
		`"code":403,"message":"User Rate Limit Exceeded. Rate of requests for user exceed configured project quota."}}`
	rateLimit = `{"error":{"errors":[{"domain":"usageLimits","reason":"rateLimitExceeded"}],"code":403,"message":"Rate Limit Exceeded"}}`
	daily     = `{"error":{"errors":[{"domain":"usageLimits","reason":"dailyLimitExceeded"}],"code":403,"message":"Daily Limit Exceeded"}}`
	forbidden = `{"error":{"errors":[{"domain":"global","reason":"insufficientFilePermissions"}],"code":403,"message":"The user does not have sufficient permissions"}}`
	exhausted = `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded","details":[` +
		`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED","domain":"googleapis.com","metadata":{"quota_limit":"ReadRequestsPerMinutePerUser"}},` +
		`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.7s"}]}}`
	unavailable = `{"error":{"code":503,"message":"Backend Error","errors":[{"reason":"backendError"}]}}`
)

// api is a service on loopback that answers by the number of the request.
type api struct {
	*httptest.Server
	mu   sync.Mutex // guards the field below
	seen []*http.Request
}

type answer struct {
	status int
	body   string
	header []string // name and value
}

func serve(t testing.TB, answers func(n int, r *http.Request) answer) *api {
	t.Helper()
	a := &api{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		a.mu.Lock()
		a.seen = append(a.seen, r)
		n := len(a.seen)
		a.mu.Unlock()
		s := answers(n, r)
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		for i := 0; i < len(s.header); i += 2 {
			w.Header().Set(s.header[i], s.header[i+1])
		}
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.body)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *api) requests() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

// first fails the first n requests.
func first(n int, failure answer, body string) func(int, *http.Request) answer {
	return func(i int, _ *http.Request) answer {
		if i <= n {
			return failure
		}
		return answer{status: 200, body: body}
	}
}

// files returns a Drive client of a, and a log of the results of its attempts.
func files(t testing.TB, a *api, opts ...cruisehttp.Option) (*drive.FilesService, *log) {
	t.Helper()
	seen := &log{}
	auth := []option.ClientOption{option.WithTokenSource(oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "secret"}))}
	opts = append([]cruisehttp.Option{cruisehttp.WithRetrierOptions(cruise.WithObserver(seen))}, opts...)
	client, err := cruisegoogle.NewHTTPClient(t.Context(), auth, opts...)
	require.NoError(t, err)
	service, err := drive.NewService(t.Context(), option.WithHTTPClient(client), option.WithEndpoint(a.URL+"/drive/v3/"))
	require.NoError(t, err)
	return service.Files, seen
}

// log collects the events of an observer.
type log struct {
	mu  sync.Mutex // guards the field below
	all []string
}

func (l *log) Observe(_ context.Context, e cruise.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := e.(cruise.AttemptEnded); ok {
		l.all = append(l.all, e.Outcome.String())
	}
}

func (l *log) outcomes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

func TestDriveIsRetriedThroughThrottles(t *testing.T) {
	for name, tc := range map[string]struct {
		failure answer
		atLeast time.Duration
		want    []string
	}{
		"403 of a user":           {answer{status: 403, body: userRate}, 0, []string{"throttled", "success"}},
		"403 of a project":        {answer{status: 403, body: rateLimit}, 0, []string{"throttled", "success"}},
		"403 with Retry-After":    {answer{status: 403, body: userRate, header: []string{"Retry-After", "1"}}, time.Second, []string{"throttled", "success"}},
		"429 with RetryInfo":      {answer{status: 429, body: exhausted}, 700 * time.Millisecond, []string{"throttled", "success"}},
		"429 without a body":      {answer{status: 429}, 0, []string{"throttled", "success"}},
		"503 of the backend":      {answer{status: 503, body: unavailable}, 0, []string{"transient", "success"}},
		"503 with Retry-After":    {answer{status: 503, header: []string{"Retry-After", "1"}}, time.Second, []string{"throttled", "success"}},
		"403 of an older service": {answer{status: 403, body: "[" + rateLimit + "]"}, 0, []string{"throttled", "success"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := serve(t, first(1, tc.failure, `{"files":[{"id":"1","name":"plan"}]}`))
			list, seen := files(t, a)
			began := time.Now()
			got, err := list.List().Context(t.Context()).Do()
			require.NoError(t, err)
			assert.Equal(t, "plan", got.Files[0].Name)
			assert.Equal(t, tc.want, seen.outcomes())
			assert.GreaterOrEqual(t, time.Since(began), tc.atLeast)
			for _, r := range a.requests() {
				assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"), "the client's own authentication")
			}
		})
	}
}

func TestPermissionsAreNoThrottle(t *testing.T) {
	a := serve(t, first(9, answer{status: 403, body: forbidden}, ""))
	list, seen := files(t, a)
	_, err := list.Get("1").Context(t.Context()).Do()
	e, ok := errors.AsType[*googleapi.Error](err)
	require.True(t, ok, "the client's own error: %v", err)
	assert.Equal(t, "insufficientFilePermissions", e.Errors[0].Reason)
	assert.Equal(t, []string{"permanent"}, seen.outcomes())
}

// After the first answer, calls fail without asking until midnight in Los Angeles.
func TestDailyQuotaIsParked(t *testing.T) {
	if left := time.Until(signal.NextPacificDay(time.Now())); left < 10*time.Second {
		time.Sleep(left) // else the quota is renewed during the test
	}
	a := serve(t, first(9, answer{status: 403, body: daily}, ""))
	list, _ := files(t, a)
	for range 3 {
		_, err := list.List().Context(t.Context()).Do()
		require.ErrorIs(t, err, cruise.ErrQuotaExhausted)
		gaveUp, ok := errors.AsType[*cruise.Error](err)
		require.True(t, ok)
		midnight := signal.NextPacificDay(time.Now())
		assert.WithinDuration(t, midnight, time.Now().Add(gaveUp.RetryAfter), time.Minute)
	}
	assert.Len(t, a.requests(), 1)
}

func TestWritesAreRetriedOnlyWhenThrottled(t *testing.T) {
	a := serve(t, first(1, answer{status: 403, body: userRate}, `{"id":"1"}`))
	list, seen := files(t, a)
	_, err := list.Create(&drive.File{Name: "plan"}).Context(t.Context()).Do()
	require.NoError(t, err)
	assert.Equal(t, []string{"throttled", "success"}, seen.outcomes())

	a = serve(t, first(1, answer{status: 503, body: unavailable}, `{"id":"1"}`))
	list, _ = files(t, a)
	_, err = list.Create(&drive.File{Name: "plan"}).Context(t.Context()).Do()
	require.Error(t, err, "it may have been created")
	assert.Len(t, a.requests(), 1)
}

// The client retries the chunks of a resumable upload by itself, for up to 32 s:
// its retries are paced and not retried in turn.
func TestRetriesOfAnUploadAddUp(t *testing.T) {
	var a *api
	chunks := 0
	a = serve(t, func(_ int, r *http.Request) answer {
		switch {
		case r.URL.Path == "/upload/drive/v3/files":
			return answer{status: 200, header: []string{"Location", a.URL + "/chunks?upload_id=1"}}
		case r.URL.Path == "/chunks":
			if chunks++; chunks <= 7 {
				return answer{status: 429, body: exhausted}
			}
			if strings.HasSuffix(r.Header.Get("Content-Range"), "/*") {
				return answer{status: 200, header: []string{"X-Http-Status-Code-Override", "308"}}
			}
			return answer{status: 200, body: `{"id":"1"}`}
		}
		return answer{status: 404}
	})
	list, seen := files(t, a, cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(5), cruise.WithTuning(cruise.Tuning{PauseBackoff: cruise.Must(cruise.ConstantBackoff(10 * time.Millisecond))})))
	_, err := list.Create(&drive.File{Name: "film"}).Context(t.Context()).
		Media(strings.NewReader(strings.Repeat("x", 300<<10)), googleapi.ChunkSize(256<<10)).Do()
	require.NoError(t, err)
	assert.Len(t, a.requests(), 1+9, "the beginning, 5 attempts and 2 retries of the first chunk, then two chunks")
	assert.Len(t, seen.outcomes(), 10)
}

// The client resumes an upload when the network's error is temporary.
func TestUploadIsResumed(t *testing.T) {
	var a *api
	a = serve(t, func(_ int, r *http.Request) answer {
		if r.URL.Path == "/upload/drive/v3/files" {
			return answer{status: 200, header: []string{"Location", a.URL + "/chunks?upload_id=1"}}
		}
		if strings.HasSuffix(r.Header.Get("Content-Range"), "/*") {
			return answer{status: 200, header: []string{"X-Http-Status-Code-Override", "308"}}
		}
		return answer{status: 200, body: `{"id":"1"}`}
	})
	base := &timeouts{path: "/chunks", left: 2}
	client, err := cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{option.WithHTTPClient(&http.Client{Transport: base})})
	require.NoError(t, err)
	service, err := drive.NewService(t.Context(), option.WithHTTPClient(client), option.WithEndpoint(a.URL+"/drive/v3/"))
	require.NoError(t, err)
	_, err = service.Files.Create(&drive.File{Name: "film"}).Context(t.Context()).
		Media(strings.NewReader(strings.Repeat("x", 300<<10)), googleapi.ChunkSize(256<<10)).Do()
	require.NoError(t, err)
}

// timeouts is a network on which some requests of a path time out.
type timeouts struct {
	path string
	left int
}

func (n *timeouts) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == n.path && n.left > 0 {
		n.left--
		_ = r.Body.Close()
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestNewHTTPClientKeepsAClient(t *testing.T) {
	a := serve(t, first(0, answer{}, `{"files":[]}`))
	own := &http.Client{Timeout: time.Minute, Transport: header{"X-Own", "yes"}}
	client, err := cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{option.WithHTTPClient(own)})
	require.NoError(t, err)
	assert.Equal(t, time.Minute, client.Timeout)
	service, err := drive.NewService(t.Context(), option.WithHTTPClient(client), option.WithEndpoint(a.URL))
	require.NoError(t, err)
	_, err = service.Files.List().Context(t.Context()).Do()
	require.NoError(t, err)
	assert.Equal(t, "yes", a.requests()[0].Header.Get("X-Own"))

	host := client.Transport.(*cruisegoogle.Transport).Retrier().Scope(cruisehttp.GlobalScope, strings.TrimPrefix(a.URL, "http://"))
	assert.EqualValues(t, 1, host.Limiter().(*cruise.AdaptiveLimiter).Stats().Successes)

	client, err = cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{option.WithHTTPClient(&http.Client{})})
	require.NoError(t, err)
	assert.NotNil(t, client.Transport.(*cruisegoogle.Transport).Transport, "of a client that has none")
}

// The limit of a customer concerns that customer, the limit of the token all customers.
func TestAdsScopes(t *testing.T) {
	blame := func(scope string) string {
		return `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"errors":[{"errorCode":{"quotaError":` +
			`"RESOURCE_TEMPORARILY_EXHAUSTED"},"details":{"quotaErrorDetails":{"rateScope":"` + scope + `","retryDelay":"60s"}}}]}]}}`
	}
	for name, tc := range map[string]struct {
		scope string
		want  error // for other customers
	}{
		"of a customer":  {"ACCOUNT", nil},
		"of a developer": {"DEVELOPER", context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			a := serve(t, first(1, answer{status: 429, body: blame(tc.scope)}, `{}`))
			ads := signal.GoogleAds()
			ads.Hosts = []string{"127.0.0.1"} // not at its own host
			p := signal.Generic()
			p.Providers = []signal.Profile{ads}
			client, err := cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{option.WithHTTPClient(&http.Client{})},
				append(cruisegoogle.AdsScopes(), cruisehttp.WithProfile(p))...)
			require.NoError(t, err)
			search := func(customer string) error {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+"/v22/customers/"+customer+"/googleAds:search", nil)
				require.NoError(t, err)
				req.Header.Set("developer-token", "token")
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				return cmp.Or(resp.Body.Close(), refused(resp))
			}
			assert.Error(t, search("123"), "throttled, for longer than its caller waits")
			assert.ErrorIs(t, search("123"), context.DeadlineExceeded)
			assert.ErrorIs(t, search("456"), tc.want)
		})
	}
}

func refused(resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return errors.New(resp.Status)
}

// noToken is the source of a token that its server refuses with that status.
type noToken struct {
	status int
	err    func(*http.Response) error
	asked  int
}

func (n *noToken) fail() error {
	n.asked++
	return n.err(&http.Response{StatusCode: n.status, Status: http.StatusText(n.status)})
}

func (n *noToken) Token() (*oauth2.Token, error) { return nil, n.fail() }

type noAuthToken struct{ *noToken }

func (n noAuthToken) Token(context.Context) (*auth.Token, error) { return nil, n.fail() }

// Credentials that are refused are refused again.
func TestRefusedCredentialsAreNotTriedAgain(t *testing.T) {
	a := serve(t, first(0, answer{}, `{}`))
	legacy := func(resp *http.Response) error {
		return &oauth2.RetrieveError{Response: resp, ErrorCode: "invalid_grant"}
	}
	current := func(resp *http.Response) error { return &auth.Error{Response: resp} }
	for name, tc := range map[string]struct {
		source *noToken
		want   []string
	}{
		"a grant":                {&noToken{status: 400, err: legacy}, []string{"permanent"}},
		"a client":               {&noToken{status: 401, err: legacy}, []string{"permanent"}},
		"a grant, by auth":       {&noToken{status: 400, err: current}, []string{"permanent"}},
		"no answer":              {&noToken{err: func(*http.Response) error { return &oauth2.RetrieveError{ErrorCode: "server_error"} }}, []string{"transient", "transient"}},
		"in passing":             {&noToken{status: 503, err: legacy}, []string{"transient", "transient"}},
		"in passing, by auth":    {&noToken{status: 503, err: current}, []string{"transient", "transient"}},
		"no server of a token's": {&noToken{err: func(*http.Response) error { return errors.New("unreachable") }}, []string{"transient", "transient"}},
	} {
		for _, way := range []option.ClientOption{
			option.WithTokenSource(tc.source),
			option.WithAuthCredentials(auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: noAuthToken{tc.source}})),
		} {
			tc.source.asked = 0
			seen := &log{}
			client, err := cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{way},
				cruisehttp.WithRetrierOptions(cruise.WithObserver(seen), cruise.WithMaxAttempts(2), cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(time.Millisecond)))))
			require.NoError(t, err, name)
			_, err = client.Get(a.URL)
			require.Error(t, err, name)
			assert.Equal(t, tc.want, seen.outcomes(), name)
			assert.Equal(t, len(tc.want), tc.source.asked, name)
		}
	}
	assert.Empty(t, a.requests())
}

// firstNoToken is the source of a token that cannot be had at first.
type firstNoToken struct {
	asked int
	err   error
}

func (f *firstNoToken) Token() (*oauth2.Token, error) {
	if f.asked++; f.asked == 1 {
		return nil, f.err
	}
	return &oauth2.Token{AccessToken: "secret"}, nil
}

// Without a token nothing is sent, and so nothing is done twice.
func TestWritesAreRetriedForWantOfAToken(t *testing.T) {
	down := &http.Response{StatusCode: 503}
	for name, err := range map[string]error{
		"a server that is down":   &oauth2.RetrieveError{Response: down},
		"the same, by auth":       &auth.Error{Response: down},
		"a server that refuses":   &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		"an answer without sense": fmt.Errorf("token: %w", &oauth2.RetrieveError{ErrorCode: "server_error"}),
	} {
		t.Run(name, func(t *testing.T) {
			a := serve(t, first(0, answer{}, `{}`))
			client, err := cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{option.WithTokenSource(&firstNoToken{err: err})},
				cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(time.Millisecond)))))
			require.NoError(t, err)
			resp, err := client.Post(a.URL, "text/plain", strings.NewReader("hello"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Len(t, a.requests(), 1)
		})
	}
}

type header [2]string

func (h header) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h[0], h[1])
	return http.DefaultTransport.RoundTrip(r)
}

func TestNewHTTPClientChecksOptions(t *testing.T) {
	_, err := cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{option.WithoutAuthentication()}, cruisehttp.WithLongWait(-1))
	assert.ErrorContains(t, err, "WithLongWait(-1ns)")
	_, err = cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{option.WithoutAuthentication()}, cruisehttp.WithLongWait(1), nil)
	assert.EqualError(t, err, "cruisegoogle: option 2 is nil")
	_, err = cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{option.WithAuthCredentialsFile(option.ServiceAccount, "no such file")})
	assert.Error(t, err)
}
