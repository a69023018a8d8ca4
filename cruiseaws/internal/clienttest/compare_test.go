package clienttest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/emr"
	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
	"github.com/a7df5faa/cruise/internal/calm"
)

// service in process, for virtual time: it takes limit calls a second, and
// answers after 50 ms.
type virtual struct {
	bucket    *rate.Limiter
	ok, throt atomic.Int64
}

func (v *virtual) Do(r *http.Request) (*http.Response, error) {
	status, body := 200, emrFound
	if v.bucket.Allow() {
		v.ok.Add(1)
	} else {
		v.throt.Add(1)
		status, body = 400, emrThrottled
	}
	time.Sleep(50 * time.Millisecond)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.1"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// polled is the SDK's adaptive mode with a wait of our own for its tokens: its
// own rounds waits down to nothing, and so never ends under virtual time.
type polled struct{ *retry.AdaptiveMode }

func (p polled) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	for {
		release, err := p.AdaptiveMode.GetAttemptToken(ctx)
		if err == nil || ctx.Err() != nil {
			return release, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// adaptive is the SDK at its best: no end of attempts, and no retry quota, which
// its adaptive mode would never refill up to v1.47.
func adaptive(cfg *aws.Config) {
	mode := retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
		o.FailOnNoAttemptTokens = true
		o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) {
			o.MaxAttempts = 0
			o.RateLimiter = ratelimit.None
		})
	})
	cfg.Retryer = func() aws.Retryer { return polled{mode} }
}

func ours(cfg *aws.Config) {
	cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithUncountedThrottles(), cruise.WithoutBudget()))).Configure(cfg)
}

type result struct {
	use           float64       // share of the limit, apart from the first burst
	lost          float64       // share of the server's capacity that is lost
	throttled     float64       // share of attempts
	longest, took time.Duration // wait of a call, whole run
	failed        int64
}

// race runs workers that describe clusters, calls times in all or until the time
// is over.
func race(limit rate.Limit, burst, workers int, calls int64, atMost time.Duration, setup func(*aws.Config)) (r result) {
	server := &virtual{bucket: rate.NewLimiter(limit, burst)}
	cfg := config("http://emr.test")
	cfg.HTTPClient = server
	setup(&cfg)
	client := emr.NewFromConfig(cfg)
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	var (
		all    sync.WaitGroup
		next   atomic.Int64
		failed atomic.Int64
		mu     sync.Mutex
	)
	began := time.Now()
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil && next.Add(1) <= calls {
				from := time.Now()
				err := describe(ctx, client)
				if errors.Is(err, context.DeadlineExceeded) {
					return // the run is over, or would be before a wait
				}
				if err != nil && ctx.Err() == nil {
					failed.Add(1)
				}
				mu.Lock()
				r.longest = max(r.longest, time.Since(from))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	r.took = time.Since(began)
	ok, throt := float64(server.ok.Load()), float64(server.throt.Load())
	given := float64(limit) * r.took.Seconds()
	r.use = (ok - float64(burst)) / given
	r.lost = (given + float64(burst) - server.bucket.Tokens() - ok) / (given + float64(burst))
	r.throttled = throt / (ok + throt)
	r.failed = failed.Load()
	return r
}

// Both run under virtual time, one after the other, against the same server.
func TestAgainstAdaptiveMode(t *testing.T) {
	if calm.Raced {
		t.Skip("the loop in which adaptive mode waits takes minutes under the race detector")
	}
	for name, tc := range map[string]struct {
		run    func(func(*aws.Config)) result
		behind float64 // in use, at most
	}{
		// A client that is throttled all the time leaves nothing in the server's bucket at the end.
		// Any other client leaves up to a burst there, which is a hundredth of these calls; and
		// pauses of the first seconds can fill it once. Each probe from below loses some more.
		"1000 calls by 10 workers at 4/s": {
			run:    func(setup func(*aws.Config)) result { return race(4, 10, 10, 1000, time.Hour, setup) },
			behind: 0.025,
		},
		"50 workers at 100/s for 60 s": {
			run: func(setup func(*aws.Config)) result { return race(100, 10, 50, 1<<60, time.Minute, setup) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var theirs, mine result
			synctest.Test(t, func(*testing.T) { theirs = tc.run(adaptive) })
			synctest.Test(t, func(*testing.T) { mine = tc.run(ours) })
			for who, r := range map[string]result{"adaptive mode": theirs, "cruiseaws": mine} {
				t.Logf("%-13s use %5.1f%%  lost %5.1f%%  throttled %5.1f%%  longest wait %v  took %v  failed %d", who,
					100*r.use, 100*r.lost, 100*r.throttled, r.longest.Round(time.Millisecond), r.took.Round(time.Millisecond), r.failed)
			}
			assert.Greater(t, mine.use, theirs.use-tc.behind)
			assert.Less(t, mine.lost, 0.035)
			assert.Less(t, mine.throttled, theirs.throttled)
			assert.Less(t, mine.longest, theirs.longest)
			assert.Zero(t, mine.failed)
		})
	}
}
