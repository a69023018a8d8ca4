package cruiseredis

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/a7df5faa/cruise"
)

//go:embed sync.lua
var script string

// Store keeps what the workers of one scope share in one key of Redis. A step of
// it is one call of one script, so it is atomic, and takes one round trip.
//
// A Store is safe for concurrent use. It is made by [NewStore].
type Store struct {
	client redis.Scripter
	sync   *redis.Script
	keys   []string
}

var _ cruise.Store = (*Store)(nil)

// longScope is up to which length in bytes a scope is part of its key as it is.
const longScope = 64

// NewStore returns the store of a scope, for [cruise.NewSharedLimiter]; most
// programs need only [NewLimiter]. It does not ask Redis yet.
//
// Any text that is not empty is a scope. Its key is cruise1:{scope}, where 1 is
// the version of what is kept there; a scope of more than 64 bytes is kept as its
// SHA-256.
//
// Syncs must not be repeated by the client, and must end with their context. For
// a [redis.Client] this is seen to, whatever its options: the store uses a copy of
// it, which has the same connections. The options of a [redis.ClusterClient] and
// a [redis.Ring] cannot be changed, so those must have ContextTimeoutEnabled, and
// no MaxRetries; the error says so. Of a client of another make nothing can be
// known: see to both.
func NewStore(client redis.UniversalClient, scope string) (*Store, error) {
	var errs []error
	if scope == "" {
		errs = append(errs, errors.New(`cruiseredis: scope "": want a name, the same on all machines`))
	}
	pinned, err := pin(client)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Store{client: pinned, sync: redis.NewScript(script), keys: []string{keyOf(scope)}}, nil
}

func keyOf(scope string) string {
	if len(scope) > longScope {
		sum := sha256.Sum256([]byte(scope))
		scope = "#" + hex.EncodeToString(sum[:]) // longer than any that is kept as it is
	}
	return "cruise1:{" + scope + "}"
}

// longestRead is for reads without a deadline, which the limiter never makes.
const longestRead = 10 * time.Second

// pin returns a client that neither repeats a command by itself nor waits for an
// answer longer than its context lasts. go-redis does both by default: one sync
// would run up to four times while Redis hangs, and take 10 s.
func pin(client redis.UniversalClient) (redis.Scripter, error) {
	v := reflect.ValueOf(client)
	if client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("cruiseredis: client is nil: want a client of go-redis")
	}
	retries, ends := 0, true
	switch c := client.(type) {
	case *redis.Client:
		own := c.WithTimeout(longestRead)
		own.Options().MaxRetries = 0
		own.Options().ContextTimeoutEnabled = true
		return own, nil
	case *redis.ClusterClient:
		retries, ends = c.Options().MaxRetries, c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		retries, ends = c.Options().MaxRetries, c.Options().ContextTimeoutEnabled
	}
	var errs []error
	if retries > 0 {
		errs = append(errs, fmt.Errorf("cruiseredis: MaxRetries %d of the %T: want -1, so that no sync is done twice", retries, client))
	}
	if !ends {
		errs = append(errs, fmt.Errorf("cruiseredis: ContextTimeoutEnabled false of the %T: want true, so that a sync ends in time", client))
	}
	return client, errors.Join(errs...)
}

// Sync carries out a request in Redis. Only if Redis does not know the script it
// is sent once more, with the script.
func (s *Store) Sync(ctx context.Context, q cruise.StoreRequest) (cruise.StoreReply, error) {
	args := args(q)
	got, err := s.sync.EvalSha(ctx, s.client, s.keys, args...).Int64Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		got, err = s.sync.Eval(ctx, s.client, s.keys, args...).Int64Slice()
	}
	if err != nil {
		return cruise.StoreReply{}, fmt.Errorf("cruiseredis: %s: %w", s.keys[0], err)
	}
	return parse(s.keys[0], got)
}

// args are the numbers of a request, in the order of the script.
func args(q cruise.StoreRequest) []any {
	quota, age := cruise.Quota{}, int64(-1)
	if q.Quota != nil {
		quota, age = *q.Quota, micros(q.QuotaAge)
	}
	return []any{
		q.Law.Min, q.Law.Max, q.Law.Initial, q.Law.Decrease, q.Law.Increase, q.Law.Burst, q.Law.Forgive, micros(q.Law.PauseBase),
		q.Want, q.Least, q.Epoch, q.Rate, q.Ceiling, number(q.Throttled), number(q.Elsewhere), micros(q.Backoff), q.Successes,
		micros(q.Pause), number(q.NewPause), number(q.Resume), q.Resumes, q.Count, micros(q.Held),
		age, quota.Limit, quota.Remaining, micros(quota.Reset),
	}
}

// causes are in the order of the script, which is that of Why in a SharedState.
var causes = [...]cruise.Cause{cruise.CauseSuccess, cruise.CauseThrottle, cruise.CauseQuota}

// parse is the answer of the script.
func parse(key string, got []int64) (cruise.StoreReply, error) {
	if len(got) != 12 {
		return cruise.StoreReply{}, fmt.Errorf("cruiseredis: %s: answer of %d numbers: want 12", key, len(got))
	}
	if why := got[11]; why < 0 || why >= int64(len(causes)) {
		return cruise.StoreReply{}, fmt.Errorf("cruiseredis: %s: cause %d: want 0 to %d", key, why, len(causes)-1)
	}
	return cruise.StoreReply{
		Slots: int(got[0]),
		Wait:  duration(got[1]),
		Span:  duration(got[2]),
		Epoch: got[3], Rate: got[4], Ceiling: got[5], Level: got[6],
		Pause:   duration(got[7]),
		Resumes: got[8], Workers: int(got[9]), Count: got[10],
		Why: causes[got[11]],
	}, nil
}

// micros is d in microseconds, rounded up.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if time.Duration(us)*time.Microsecond < d {
		us++
	}
	return us
}

// duration is the inverse of micros, saturated.
func duration(us int64) time.Duration {
	const most = int64(1<<63-1) / 1000
	return time.Duration(min(max(us, -most), most)) * time.Microsecond
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// String names the key.
func (s *Store) String() string { return strings.Join(s.keys, " ") }
