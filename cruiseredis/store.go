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
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/shared"
)

//go:embed sync.lua
var script string

// Store keeps the shared state of the workers of one scope in one key of Redis. A step of it is one
// call of one script, so it is atomic, and takes one round trip.
//
// A Store is safe for concurrent use. [NewStore] makes one.
type Store struct {
	client processor
	text   string // of the script
	hash   string
	keys   []string

	connecting atomic.Bool
}

var _ shared.Store = (*Store)(nil)

// longScope is the greatest length in bytes of a scope that is part of its key unchanged.
const longScope = 64

// NewStore returns the store of a scope, for [shared.New]; most
// programs need only [NewLimiter]. It does not ask Redis yet.
//
// Any text that is not empty is a scope. Its key is cruise1:{scope}, where 1 is the version of the
// stored state; a scope of more than 64 bytes is replaced by its SHA-256.
//
// Syncs must end with their context. With a [redis.Client] they do, for any of its options: the
// store uses a copy of the client with the same connections. The options of a [redis.ClusterClient]
// and a [redis.Ring] cannot be changed, so they must have ContextTimeoutEnabled; the error says so.
// For any other client, make sure of it yourself, and that the client obeys NoRetry of
// [redis.Cmder].
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
	return &Store{client: pinned, text: script, hash: redis.NewScript(script).Hash(), keys: []string{keyOf(scope)}}, nil
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

// longestConnect bounds the time to make a connection.
const longestConnect = 5 * time.Second

// pin returns a client that waits for an answer only as long as its context lasts. By default
// go-redis waits longer.
func pin(client redis.UniversalClient) (processor, error) {
	v := reflect.ValueOf(client)
	if client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("cruiseredis: client is nil: want a client of go-redis")
	}
	ends := true
	switch c := client.(type) {
	case *redis.Client:
		own := c.WithTimeout(longestRead)
		own.Options().ContextTimeoutEnabled = true
		return own, nil
	case *redis.ClusterClient:
		ends = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		ends = c.Options().ContextTimeoutEnabled
	}
	if !ends {
		return nil, fmt.Errorf("cruiseredis: ContextTimeoutEnabled false of the %T: want true, so that a sync ends in time", client)
	}
	return client, nil
}

// Sync carries out a request in Redis. If Redis does not know the script, Sync sends the request
// once more, with the script.
func (s *Store) Sync(ctx context.Context, q shared.Request) (shared.Reply, error) {
	args := args(q)
	got, err := s.eval(ctx, "evalsha", s.hash, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		got, err = s.eval(ctx, "eval", s.text, args)
	}
	if err != nil {
		if ctx.Err() != nil {
			s.connect()
		}
		return shared.Reply{}, fmt.Errorf("cruiseredis: %w", err)
	}
	return parse(got)
}

// connect makes a connection in the background. A sync may have too little time for it: connecting
// takes several round trips, and go-redis gives it up with the context.
func (s *Store) connect() {
	if !s.connecting.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.connecting.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), longestConnect)
		defer cancel()
		_ = s.client.Process(ctx, once{redis.NewCmd(ctx, "hmget", s.keys[0], "at")})
	}()
}

// processor is the part of a client that a Store needs.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// once is a command that no client repeats by itself when the answer does not come, as
// go-redis does up to three times: it may have been carried out.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func (s *Store) eval(ctx context.Context, name, what string, args []any) ([]int64, error) {
	cmd := redis.NewCmd(ctx, append([]any{name, what, len(s.keys), s.keys[0]}, args...)...)
	cmd.SetFirstKeyPos(3)
	if err := s.client.Process(ctx, once{cmd}); err != nil {
		return nil, err
	}
	return cmd.Int64Slice()
}

// args returns the numbers of a request, in the order of the script.
func args(q shared.Request) []any {
	quota, age := cruise.Quota{}, int64(-1)
	if q.Quota != nil {
		quota, age = *q.Quota, micros(q.QuotaAge)
	}
	return []any{
		q.Law.Min, q.Law.Max, q.Law.Initial, q.Law.Decrease, q.Law.Increase, q.Law.Burst, q.Law.Forgive, micros(q.Law.PauseBase),
		q.Want, q.Least, q.Epoch, q.Rate, q.Ceiling, number(q.Throttled), micros(q.Backoff), q.Successes, q.Failed,
		micros(q.Pause), number(q.NewPause), number(q.Resume), q.Resumes, q.Count, micros(q.Held),
		age, quota.Limit, quota.Remaining, micros(quota.Reset),
	}
}

// causes are in the order of the script, which is that of Why in a shared.State.
var causes = [...]cruise.Cause{cruise.CauseSuccess, cruise.CauseThrottle, cruise.CauseQuota}

// parse returns the reply in the script's answer.
func parse(got []int64) (shared.Reply, error) {
	if len(got) != 12 {
		return shared.Reply{}, fmt.Errorf("cruiseredis: answer of %d numbers: want 12", len(got))
	}
	if why := got[11]; why < 0 || why >= int64(len(causes)) {
		return shared.Reply{}, fmt.Errorf("cruiseredis: cause %d: want 0 to %d", why, len(causes)-1)
	}
	return shared.Reply{
		Slots: int(got[0]),
		Wait:  duration(got[1]),
		Span:  duration(got[2]),
		Epoch: got[3], Rate: got[4], Ceiling: got[5], Level: got[6],
		Pause:   duration(got[7]),
		Resumes: got[8], Workers: int(got[9]), Count: got[10],
		Why: causes[got[11]],
	}, nil
}

// micros returns d in microseconds, rounded up.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if time.Duration(us)*time.Microsecond < d {
		us++
	}
	return us
}

// duration inverts micros, and saturates.
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

// String returns the key.
func (s *Store) String() string { return strings.Join(s.keys, " ") }
