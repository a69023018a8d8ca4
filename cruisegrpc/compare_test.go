package cruisegrpc_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegrpc"
)

// retryPolicy is gRPC's own way to retry, with as many attempts as it allows.
const retryPolicy = `{"methodConfig": [{
	"name": [{"service": "grpc.testing.TestService"}],
	"retryPolicy": {
		"maxAttempts": 5,
		"initialBackoff": "0.1s",
		"maxBackoff": "1s",
		"backoffMultiplier": 2,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]
	}
}]}`

type tally struct {
	ok, failed atomic.Int64
	attempts   int64
	took       time.Duration
}

// storm makes calls from 100 callers at once, for as long as ctx lets it, to a
// server that takes 200 a second.
func storm(t *testing.T, calls int, opts func(*service) []grpc.DialOption) *tally {
	t.Helper()
	const callers = 100
	s := serve(t, &service{gate: limited(200, 20)})
	client := connect(t, s.addr, opts(s)...)
	var (
		sum  tally
		all  sync.WaitGroup
		next atomic.Int64
	)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	for range callers {
		all.Go(func() {
			for next.Add(1) <= int64(calls) {
				if _, err := client.UnaryCall(ctx, &pb.SimpleRequest{}); err != nil {
					sum.failed.Add(1)
				} else {
					sum.ok.Add(1)
				}
			}
		})
	}
	all.Wait()
	sum.took, sum.attempts = time.Since(began), s.seen.Load()
	return &sum
}

func TestAgainstRetryPolicy(t *testing.T) {
	const calls = 600 // three seconds' worth
	theirs := storm(t, calls, func(*service) []grpc.DialOption {
		return []grpc.DialOption{grpc.WithDefaultServiceConfig(retryPolicy)}
	})
	ours := storm(t, calls, func(*service) []grpc.DialOption {
		return cruise.Must(cruisegrpc.New()).DialOptions()
	})
	for name, c := range map[string]*tally{"retryPolicy": theirs, "cruise": ours} {
		t.Logf("%-12s ok %3d  failed %3d  attempts %4d  throttled %4.1f%%  in %v", name, c.ok.Load(), c.failed.Load(),
			c.attempts, 100*float64(c.attempts-c.ok.Load())/float64(c.attempts), c.took.Round(time.Millisecond))
	}
	// Real seconds on a machine that may be busy: a call may be unlucky five times.
	assert.LessOrEqual(t, ours.failed.Load(), int64(calls/50), "nearly every call gets through")
	assert.Less(t, float64(ours.attempts), 1.5*calls)
	assert.Less(t, ours.attempts, theirs.attempts)
	assert.LessOrEqual(t, ours.failed.Load(), theirs.failed.Load())
	assert.Less(t, ours.took, 30*time.Second)
}
