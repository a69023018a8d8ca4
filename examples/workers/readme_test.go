package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
)

// fleet is the README's recipe. It works without a Redis, too: then at this worker's share.
func fleet(ctx context.Context, call func(context.Context) error) error {
	// README
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limiter, err := cruiseredis.NewLimiter(client, "example.com") // the same on every machine
	if err != nil {
		return err
	}
	api, err := cruise.New(cruise.WithLimiter(limiter)) // for HTTP: WithScopeLimiter
	// end
	if err != nil {
		return err
	}
	return errors.Join(api.Do(ctx, call), client.Close())
}

func TestReadmeFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	called := false
	require.NoError(t, fleet(ctx, func(context.Context) error {
		called = true
		return nil
	}))
	assert.True(t, called)
}
