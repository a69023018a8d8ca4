// Package cruiseredis shares one limit between machines, by way of Redis.
//
//	limiter, err := cruiseredis.NewLimiter(client, "example.com ACCOUNT 4711")
//	if err != nil {
//		return err
//	}
//	api, err := cruise.New(cruise.WithLimiter(limiter))
//
// All workers of a scope, on all machines, find one rate together, take turns at it, and stop
// together when one of them is told to wait. An outage of Redis fails no call: see
// [github.com/a7df5faa/cruise/shared.Limiter], which this is.
//
// A limit for each key of a scope, within the common one:
//
//	cruise.New(cruise.WithLimiter(developer), cruise.WithScopeLimiter(
//		func(scope, key string) (cruise.Limiter, error) {
//			return cruiseredis.NewLimiter(client, scope+" "+key)
//		}))
//
// It works with Redis from version 5 on, Valkey, Redis Cluster and Sentinel, and
// needs EVALSHA, EVAL, TIME, HMGET, HSET and PEXPIRE; a [redis.ClusterClient] needs
// CLUSTER SLOTS too, and a [redis.Ring] PING. One key is kept for each scope, of less than 4 kilobytes, which
// expires 10 minutes after the last call, later if a pause lasts longer, and by up to
// six intervals between calls: 70 minutes after it at the default minimum rate, and
// more after calls that cost more.
package cruiseredis

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/a7df5faa/cruise/shared"
)

// An Option tunes a limiter: every [shared.Option] and every
// [cruise.LimiterOption] is one.
type Option = shared.Option

// NewLimiter returns a limiter that is shared with all others of the scope that use the same Redis:
// see [NewStore] for the scope and the client, and [shared.New] for the options, which should be
// the same everywhere. It does not ask Redis yet, so it works even if that is down. The error names
// every fault of the client, the scope and the options.
func NewLimiter(client redis.UniversalClient, scope string, opts ...Option) (*shared.Limiter, error) {
	store, err := NewStore(client, scope)
	if err != nil {
		_, more := shared.New(shared.NewMemoryStore(), opts...)
		return nil, errors.Join(err, more)
	}
	return shared.New(store, opts...)
}
