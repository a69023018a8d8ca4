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

// Store keeps the shared state of the workers of one scope in one key of Redis. A sync is one call of
// one script, so it is atomic, and takes one round trip. If a step of the law is due, the worker takes
// it, with one round trip more.
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

// Sync carries out a request in Redis, and any step of the law that is due. If Redis does not know
// the script, Sync sends the request once more, with the script.
func (s *Store) Sync(ctx context.Context, q shared.Request) (shared.Reply, error) {
	args := args(q)
	reply, news, err := s.run(ctx, args)
	for err == nil && news != nil {
		reply, news, err = s.run(ctx, append(args, decided(news.Decide(q))...))
	}
	return reply, err
}

// run calls the script.
func (s *Store) run(ctx context.Context, args []any) (shared.Reply, *shared.News, error) {
	got, err := s.eval(ctx, "evalsha", s.hash, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		got, err = s.eval(ctx, "eval", s.text, args)
	}
	if err != nil {
		if ctx.Err() != nil {
			s.connect()
		}
		return shared.Reply{}, nil, fmt.Errorf("cruiseredis: %w", err)
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

func (s *Store) eval(ctx context.Context, name, what string, args []any) ([]any, error) {
	cmd := redis.NewCmd(ctx, append([]any{name, what, len(s.keys), s.keys[0]}, args...)...)
	cmd.SetFirstKeyPos(3)
	if err := s.client.Process(ctx, once{cmd}); err != nil {
		return nil, err
	}
	return cmd.Slice()
}

// args returns the numbers of a request, in the order of the script.
func args(q shared.Request) []any {
	quota, age := cruise.Quota{}, int64(-1)
	if q.Quota != nil {
		quota, age = *q.Quota, micros(q.QuotaAge)
	}
	return []any{
		q.Law.Min, q.Law.Max, q.Law.Initial, q.Law.Burst,
		q.Want, q.Least, q.Epoch, q.Rate, q.Ceiling, number(q.Throttled), micros(q.Backoff), q.Successes, q.Failed, q.Late,
		micros(q.Pause), number(q.NewPause), number(q.Resume), q.Resumes, q.Count, micros(q.Held),
		age, quota.Limit, quota.Remaining, micros(quota.Reset),
	}
}

// decided returns the numbers of a decision, in the order of the script, and the memory of the law.
func decided(d shared.Decision) []any {
	return []any{d.Step, d.Rate, d.Ceiling, d.Why, d.Level, d.Row, micros(d.Pause), number(d.Void), d.Law}
}

// causes are in the order of the script, which is that of Why in a shared.State.
var causes = [...]cruise.Cause{cruise.CauseSuccess, cruise.CauseThrottle, cruise.CauseQuota}

// parse returns the reply or the news in the script's answer.
func parse(got []any) (shared.Reply, *shared.News, error) {
	n, law := numbers(got), ""
	if len(got) > 0 {
		law, _ = got[len(got)-1].(string)
	}
	switch {
	case len(got) == 13 && len(n) == 13 && n[0] == 0:
		if n[12] < 0 || n[12] >= int64(len(causes)) {
			return shared.Reply{}, nil, fmt.Errorf("cruiseredis: cause %d: want 0 to %d", n[12], len(causes)-1)
		}
		return shared.Reply{
			Slots: int(n[1]), Wait: duration(n[2]), Span: duration(n[3]),
			Epoch: n[4], Rate: n[5], Ceiling: n[6], Level: n[7], Pause: duration(n[8]),
			Resumes: n[9], Workers: int(n[10]), Count: n[11], Why: causes[n[12]],
		}, nil, nil
	case len(got) == 21 && len(n) == 20 && n[0] == 1:
		news := &shared.News{
			Step: n[1], Law: []byte(law), Rate: n[2], Ceiling: n[3], Level: n[4], Most: n[5], Turn: duration(n[6]),
			Elapsed: duration(n[7]), Used: duration(n[8]), Out: n[9], Oks: n[10], Errs: n[11], Late: n[12],
			Throttled: n[13] > 0, Backoff: duration(n[14]), Asked: duration(n[15]),
		}
		if n[17] >= 0 {
			news.Quota = &cruise.Quota{Limit: int(n[16]), Remaining: int(n[17]), Reset: duration(n[18])}
			news.QuotaAge = duration(n[19])
		}
		return shared.Reply{}, news, nil
	}
	return shared.Reply{}, nil, fmt.Errorf("cruiseredis: answer %v: want 13 numbers, or 20 and a text", got)
}

// numbers returns the whole numbers that an answer begins with.
func numbers(got []any) (n []int64) {
	for _, v := range got {
		i, ok := v.(int64)
		if !ok {
			break
		}
		n = append(n, i)
	}
	return n
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
