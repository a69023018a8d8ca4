package cruiseredis_test

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
	"github.com/a7df5faa/cruise/shared"
)

// The primary dies in the middle of a pause that its replica has not heard of: the workers that
// know the pause report it to the replica, and no call goes before its end.
func TestFailoverInAPause(t *testing.T) {
	t.Parallel()
	primary := startRedis(t)
	replica := startRedis(t, "--replicaof", "127.0.0.1 "+primary.port)
	toReplica := replica.client()
	require.Eventually(t, func() bool {
		return toReplica.Do(t.Context(), "ROLE").Val().([]any)[3] == "connected"
	}, time.Minute, 20*time.Millisecond)
	p := startProxy(t, primary.addr)
	scope := scopeOf(t)
	workers := fleet(t, 4, p.addr(), scope, steady(100, patient)...)
	tr := drive(t, workers, 2)
	meet(t, workers, tr)
	require.NoError(t, toReplica.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	workers[0].Pause(4 * time.Second) // which the replica does not hear of
	paused := time.Now()
	time.Sleep(time.Second)
	primary.kill()
	p.to.Store(&replica.addr)
	p.reset()
	workers[1].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1}) // which asks Redis
	time.Sleep(time.Second)
	late := fleet(t, 1, p.addr(), scope, steady(100, patient)...)
	require.NoError(t, late[0].WaitN(t.Context(), 1))
	heeds(t, 4*time.Second, time.Since(paused))
	recovers(t, workers)
	tr.stop()
	assert.Zero(t, tr.count(paused.Add(500*time.Millisecond+slack()), 3500*time.Millisecond-2*slack()))
	assert.LessOrEqual(t, tr.worst(), crowded())
	assert.Empty(t, tr.failed)
}

// On a cluster of three nodes, scopes live on all of them.
func TestCluster(t *testing.T) {
	t.Parallel()
	cli := program(t, "redis-cli")
	var nodes []*server
	args := []string{"--cluster", "create"}
	for range 3 {
		s := startRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		nodes, args = append(nodes, s), append(args, s.addr)
	}
	out, err := exec.Command(cli, append(args, "--cluster-yes")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, s := range nodes {
		c := s.client()
		require.Eventually(t, func() bool {
			info := c.ClusterInfo(t.Context()).Val()
			return len(info) > 16 && info[:16] == "cluster_state:ok"
		}, time.Minute, 20*time.Millisecond)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: args[2:], ContextTimeoutEnabled: true})
	defer client.Close()
	require.NoError(t, client.Ping(t.Context()).Err()) // knows the nodes

	var workers []*shared.Limiter
	var keys []string
	on := map[int]bool{}
	for _, scope := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		l, err := cruiseredis.NewLimiter(client, scope, steady(20, shared.WithStoreTimeout(10*time.Second))...)
		require.NoError(t, err)
		workers, keys = append(workers, l), append(keys, cruiseredis.KeyOf(scope))
		for range 5 {
			require.NoError(t, l.WaitN(t.Context(), 1))
		}
	}
	for i, s := range nodes {
		held, err := s.client().Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		on[i] = len(held) > 0
		for _, key := range held {
			assert.Contains(t, keys, key)
		}
	}
	assert.Equal(t, map[int]bool{0: true, 1: true, 2: true}, on, "scopes are on all nodes")
	for _, l := range workers {
		st := l.Stats()
		assert.False(t, st.Degraded, "%v", st.Err)
		assert.Equal(t, rate.Limit(20), st.Limit)
	}
	t.Run("no sync is done twice", func(t *testing.T) {
		var sent atomic.Int32
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: args[2:], ContextTimeoutEnabled: true, MaxRetries: 3,
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &cutter{c, &sent}, err
			},
		})
		defer client.Close()
		_, err := cruise.Must(cruiseredis.NewStore(client, "i")).Sync(t.Context(), shared.Request{})
		assert.Error(t, err)
		assert.EqualValues(t, 1, sent.Load())
	})
}

// A cutter is a connection that ends when a script was sent, and counts them.
type cutter struct {
	net.Conn
	sent *atomic.Int32
}

func (c *cutter) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, []byte("evalsha")) {
		c.sent.Add(1)
		c.Conn.Close()
	}
	return n, err
}
