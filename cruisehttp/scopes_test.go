package cruisehttp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

func send(t *testing.T, tr *cruisehttp.Transport, url string, headers ...string) *http.Response {
	t.Helper()
	resp, err := tr.RoundTrip(request(t, "GET", url, nil, headers...))
	require.NoError(t, err)
	text(t, resp)
	return resp
}

func keys(tr *cruisehttp.Transport) (all []string) {
	for key, r := range tr.Retriers() {
		for range r.Scopes() {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}

func TestScopesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &server{start: time.Now(), answers: func(_ int, r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Host, "full") {
				return answer(429, "", "Retry-After: 7200"), nil
			}
			return answer(200, ""), nil
		}}
		tr := transport(t, base, cruisehttp.WithMaxKeys(3), cruisehttp.WithKeepIdle(time.Minute))
		refused := func(host string) bool {
			_, err := tr.RoundTrip(request(t, "GET", "http://"+host, nil))
			return err != nil
		}
		require.True(t, refused("full0"))
		for i := range 10 {
			send(t, tr, fmt.Sprintf("http://host%d/", i))
			assert.LessOrEqual(t, tr.Scopes(), 3)
		}
		assert.NotNil(t, tr.Limiter("full0"), "a paused scope is not forgotten")
		assert.Nil(t, tr.Limiter("host0"))
		assert.NotNil(t, tr.Limiter("host9"))
		before := base.count()
		assert.True(t, refused("full0"))
		assert.Equal(t, before, base.count(), "nothing was sent")

		time.Sleep(2 * time.Minute)
		send(t, tr, "http://host10/")
		assert.Equal(t, 2, tr.Scopes(), "idle ones are forgotten")

		require.True(t, refused("full1"))
		require.True(t, refused("full2"))
		assert.Equal(t, 3, tr.Scopes())
		assert.Equal(t, []string{"full0", "full1", "full2"}, keys(tr))
		send(t, tr, "http://host11/") // in the shared scope
		assert.Equal(t, []string{"*", "full0", "full1", "full2"}, keys(tr))
		assert.Equal(t, 3, tr.Scopes())
		before = base.count()
		for i := range 3 {
			assert.True(t, refused(fmt.Sprintf("full%d", i)))
		}
		assert.Equal(t, before, base.count(), "nothing was sent")

		time.Sleep(3 * time.Hour)
		send(t, tr, "http://host12/")
		assert.Equal(t, 1, tr.Scopes())
	})
}

func TestKeys(t *testing.T) {
	a := request(t, "GET", "http://API.example.com:8080/", nil, "Authorization: Bearer 1")
	b := request(t, "GET", "http://api.example.com:8080/", nil, "Authorization: Bearer 2")
	assert.Equal(t, "api.example.com:8080", cruisehttp.HostKey(a))
	assert.Equal(t, cruisehttp.HostKey(a), cruisehttp.HostKey(b))
	key := cruisehttp.HeaderKey("Authorization")
	assert.NotEqual(t, key(a), key(b))
	assert.Equal(t, key(a), key(a))
	assert.NotContains(t, key(a), "Bearer")
	b.Header.Del("Authorization")
	assert.Equal(t, "api.example.com:8080", key(b))
}

func TestBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := map[string]bool{}
		base := &server{start: time.Now(), answers: func(_ int, r *http.Request) (*http.Response, error) {
			bucket := strings.Split(r.URL.Path, "/")[1]
			if limited[bucket] {
				limited[bucket] = false
				return answer(429, "", "Retry-After: 10", "X-RateLimit-Bucket: "+bucket), nil
			}
			return answer(200, "", "X-RateLimit-Bucket: "+bucket), nil
		}}
		tr := transport(t, base, cruisehttp.WithBuckets("X-RateLimit-Bucket", nil))
		took := func(path string) time.Duration {
			begin := time.Now()
			send(t, tr, "http://api"+path)
			return time.Since(begin)
		}
		for _, path := range []string{"/a/1", "/a/2", "/b/1"} {
			assert.Zero(t, took(path))
		}
		limited["a"] = true
		done := make(chan time.Duration)
		go func() { done <- took("/a/1") }()
		synctest.Wait()
		assert.Zero(t, took("/b/1"), "another bucket")
		assert.Equal(t, 10*time.Second, took("/a/2").Round(time.Second), "the same bucket by another route")
		<-done

		limited["a"] = true
		go func() { done <- took("/a/3") }() // whose bucket is not known yet
		synctest.Wait()
		assert.Equal(t, 10*time.Second, took("/a/1").Round(time.Second), "paused with it")
		<-done
	})
}

func TestOptionsThatAreOutOfBounds(t *testing.T) {
	for want, opt := range map[string]cruisehttp.Option{
		"option 1 is nil":       nil,
		"WithBase(nil)":         cruisehttp.WithBase(nil),
		"WithKey(nil)":          cruisehttp.WithKey(nil),
		"WithBuckets":           cruisehttp.WithBuckets("", nil),
		"WithMaxKeys(0)":        cruisehttp.WithMaxKeys(0),
		"WithKeepIdle(0s)":      cruisehttp.WithKeepIdle(0),
		"profile without":       cruisehttp.WithProfile(cruisehttp.Profile{}),
		"WithLongWait(-1ns)":    cruisehttp.WithLongWait(-1),
		"WithBufferedBodies(0)": cruisehttp.WithBufferedBodies(0),
		"WithHeaderTimeout":     cruisehttp.WithHeaderTimeout(0),
		"WithAttemptTimeout":    cruisehttp.WithAttemptTimeout(-1),
		"WithMaxAttempts(0)":    cruisehttp.WithRetrier(cruise.WithMaxAttempts(0)),
	} {
		_, err := cruisehttp.NewTransport(opt)
		assert.ErrorContains(t, err, want)
	}
}
