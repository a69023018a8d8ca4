package cruisegrpc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

// Once its context is known, a stream is not replaced, as grpc.ClientStream promises.
func TestStreamContextEndsRetries(t *testing.T) {
	s := serve(t, &service{gate: first(1, slowDown)})
	client, seen := throttle(t, s)
	stream, err := client.StreamingOutputCall(within(t, 10*time.Second), twoMessages())
	require.NoError(t, err)
	ctx := stream.Context()
	_, err = stream.Recv()
	assert.Equal(t, slowDown.Error(), err.Error())
	assert.Equal(t, []string{"throttled"}, seen.outcomes())
	assert.EqualValues(t, 1, s.seen.Load())
	assert.Error(t, ctx.Err(), "the stream is over")
}

// The context lives as long as the stream.
func TestStreamContextOutlivesTheAttempt(t *testing.T) {
	s := serve(t, &service{})
	client, _ := throttle(t, s)
	stream, err := client.StreamingOutputCall(within(t, 10*time.Second), twoMessages())
	require.NoError(t, err)
	ctx := stream.Context()
	for range 2 {
		_, err = stream.Recv()
		require.NoError(t, err)
		assert.NoError(t, ctx.Err())
		assert.Equal(t, ctx, stream.Context())
	}
}

// Context returns, at any time, the context of the stream that goes on.
func TestStreamContextDuringRetries(t *testing.T) {
	for i := range 20 {
		s := serve(t, &service{gate: func(n int64, _ metadata.MD, _ func(metadata.MD)) error {
			if n <= 3 {
				return slowDown
			}
			return nil
		}})
		client, _ := throttle(t, s)
		stream, err := client.StreamingOutputCall(within(t, 20*time.Second), twoMessages())
		require.NoError(t, err)
		var ctx context.Context
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			ctx = stream.Context()
		})
		_, err = stream.Recv()
		wg.Wait()
		if err == nil {
			assert.NoError(t, ctx.Err(), "a living stream has a cancelled context")
		} else {
			assert.Equal(t, slowDown.Error(), err.Error())
		}
	}
}
