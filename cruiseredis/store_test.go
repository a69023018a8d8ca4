package cruiseredis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
	"github.com/a7df5faa/cruise/shared"
)

var law = shared.Law{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: 300 * time.Millisecond}

// conformance tests any kind of Store. newStore makes the store of a new scope.
func conformance(t *testing.T, newStore func(t *testing.T) shared.Store) {
	sync := func(t *testing.T, s shared.Store, q shared.Request) shared.Reply {
		t.Helper()
		q.Law = law
		r, err := s.Sync(t.Context(), q)
		require.NoError(t, err)
		return r
	}
	for name, test := range map[string]func(t *testing.T, s shared.Store){
		"begins at the initial rate, with one worker": func(t *testing.T, s shared.Store) {
			r := sync(t, s, shared.Request{Want: 1, Least: 1})
			assert.Equal(t, shared.Reply{Slots: 1, Span: 100 * time.Millisecond, Epoch: 1, Rate: 10e6, Why: cruise.CauseSuccess, Workers: 1, Count: 1}, r)
		},
		"slots follow each other": func(t *testing.T, s shared.Store) {
			first := sync(t, s, shared.Request{Want: 3, Least: 1})
			assert.Equal(t, 3, first.Slots)
			next := sync(t, s, shared.Request{Want: 1, Least: 1})
			assert.Equal(t, 1, next.Slots)
			assert.InDelta(t, .3, next.Wait.Seconds(), .1+hiccup().Seconds())
			sync(t, s, shared.Request{Want: 100, Least: 100})
			none := sync(t, s, shared.Request{Want: 1, Least: 1})
			assert.Zero(t, none.Slots)
		},
		"pauses only extend": func(t *testing.T, s shared.Store) {
			sync(t, s, shared.Request{Pause: time.Minute, NewPause: true})
			r := sync(t, s, shared.Request{Pause: time.Second, NewPause: true, Want: 1, Least: 1})
			assert.InDelta(t, 60, r.Pause.Seconds(), 1+hiccup().Seconds())
			assert.Zero(t, r.Slots)
		},
		"a pause is lifted for good": func(t *testing.T, s shared.Store) {
			sync(t, s, shared.Request{Pause: time.Minute, NewPause: true})
			assert.Zero(t, sync(t, s, shared.Request{Resume: true}).Pause)
			r := sync(t, s, shared.Request{Pause: time.Minute})
			assert.Zero(t, r.Pause, "reported by a worker that did not know the pause")
			assert.EqualValues(t, 1, r.Resumes)
			assert.NotZero(t, sync(t, s, shared.Request{Pause: time.Minute, Resumes: 1}).Pause)
		},
		"one cut for one congestion": func(t *testing.T, s shared.Store) {
			sync(t, s, shared.Request{Successes: 10})
			r := sync(t, s, shared.Request{Epoch: 1, Throttled: true, Backoff: time.Hour})
			assert.EqualValues(t, 2, r.Epoch)
			assert.Less(t, r.Rate, int64(10e6))
			assert.Positive(t, r.Pause)
			assert.Less(t, r.Pause, 2*time.Second)
			again := sync(t, s, shared.Request{Epoch: 1, Throttled: true})
			assert.EqualValues(t, 2, again.Epoch)
			assert.Equal(t, r.Rate, again.Rate)
		},
		"takes over a worker's state": func(t *testing.T, s shared.Store) {
			r := sync(t, s, shared.Request{Epoch: 9, Rate: 40e6, Ceiling: 50e6, Resumes: 3, Pause: time.Minute})
			assert.EqualValues(t, 9, r.Epoch)
			assert.EqualValues(t, 40e6, r.Rate)
			assert.EqualValues(t, 50e6, r.Ceiling)
			assert.EqualValues(t, 3, r.Resumes)
			assert.NotZero(t, r.Pause)
		},
		"counts workers": func(t *testing.T, s shared.Store) {
			r := sync(t, s, shared.Request{})
			assert.Equal(t, 1, sync(t, s, shared.Request{Count: r.Count}).Workers)
			assert.Equal(t, 2, sync(t, s, shared.Request{}).Workers)
		},
		"ends with its context": func(t *testing.T, s shared.Store) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := s.Sync(ctx, shared.Request{Law: law})
			assert.ErrorIs(t, err, context.Canceled)
		},
		"atomic": func(t *testing.T, s shared.Store) {
			sync(t, s, shared.Request{})
			got := make(chan int, 50)
			for range cap(got) {
				go func() {
					r, _ := s.Sync(context.Background(), shared.Request{Law: law, Want: 1, Least: 1})
					got <- r.Slots
				}()
			}
			slots := 0
			for range cap(got) {
				slots += <-got
			}
			assert.GreaterOrEqual(t, slots, 10)
			assert.LessOrEqual(t, slots, 30+atOnce(10), "10 a second, a second ahead")
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, newStore(t)) })
	}
}

func TestConformance(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		conformance(t, func(*testing.T) shared.Store { return shared.NewMemoryStore() })
	})
	t.Run("redis", func(t *testing.T) {
		client := startRedis(t).client()
		conformance(t, func(t *testing.T) shared.Store { return cruise.Must(cruiseredis.NewStore(client, scopeOf(t))) })
	})
}

// timed is the script with a clock that the test sets: the time is two keys more.
func timed(t *testing.T) *redis.Script {
	t.Helper()
	at := strings.Replace(cruiseredis.Script, "redis.call('TIME')", "{KEYS[2], KEYS[3]}", 1)
	require.NotEqual(t, cruiseredis.Script, at)
	return redis.NewScript(at)
}

// The script and the state of package shared do the same, digit for digit, for any arguments and
// any clock.
func TestScriptIsTheModel(t *testing.T) {
	client := startRedis(t).client()
	script := timed(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	steps := 0 // of the law
	for run := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, run))
		key := cruiseredis.KeyOf(fmt.Sprint("model ", run))
		var s shared.State
		now := time.Duration(1_800_000_000)*time.Second + time.Duration(rng.Int64N(1e9))*time.Microsecond
		for step := range 250 {
			now += time.Duration(rng.Int64N(1<<(5+rng.IntN(22)))) * time.Microsecond
			switch rng.IntN(100) {
			case 0:
				now -= time.Hour
			case 1:
				now += 10 * 365 * 24 * time.Hour
			case 2: // all is lost
				s = shared.State{}
				require.NoError(t, client.Del(t.Context(), key).Err())
			case 3: // damaged
				s = shared.State{}
				require.NoError(t, client.HSet(t.Context(), key, "rate", []string{"nan", "x", "1e400", "-3", "1.5", ""}[rng.IntN(6)]).Err())
			}
			q := randomRequest(rng, &s)
			if s.Row > 0 && rng.IntN(2) == 0 || rng.IntN(20) == 0 { // an outage, or the time between two
				now += time.Duration(rng.Int64N(1<<rng.IntN(38))) * time.Microsecond
				q.Throttled = s.Row == 1
			}
			if run%6 == 4 { // a closed door that lets one call through
				q.Successes, q.Failed, q.Epoch = min(q.Successes, 1), 0, s.Epoch
			}
			if run%6 == 5 { // now and then many calls are throttled for a while, at any rate
				dt := time.Second + time.Duration(rng.Int64N(int64(2*time.Second)))
				now += dt
				q.Law, q.Epoch, q.Least, q.Failed, q.Quota, q.Pause, q.Resume = law, s.Epoch, min(q.Want, 1), 0, nil, 0, false
				q.Successes = int64(float64(s.Rate)*dt.Seconds()/1e6) + rng.Int64N(2)
				q.Throttled = step%5 == 4 && step%40 < 20 || step%40 >= 20 && step%40 < 30
				if step%80 == 70 { // the end of an outage
					now += 5 * time.Minute
				}
			}
			if run%6 == 4 && step < 5 { // closed before anything succeeded
				q.Throttled, q.Successes, q.Failed, q.Ceiling, q.Quota = step < 4, int64(step/4), 0, 0, nil
				q.Epoch = max(1, s.Epoch)
				now += 2 * time.Second
			}
			if q.Quota != nil {
				switch run % 6 {
				case 0: // nothing left, ever
					q.Quota = &cruise.Quota{}
					now += 2 * time.Second
				case 1: // a window, before any throttle
					q.Quota.Remaining, q.Quota.Reset = 5000-20*step, time.Hour-now%time.Hour
					q.Throttled, q.Ceiling = false, 0
				case 2: // windows of ten seconds
					q.Quota.Remaining, q.Quota.Reset = max(0, 50-step%60), 10*time.Second-now%(10*time.Second)
				case 3: // a window that is used up just before its reset
					const window = 20 * time.Second
					if q.Throttled = step%4 == 3; q.Throttled {
						now += window - now%window - time.Duration(rng.Int64N(int64(2*time.Second)))
					}
					q.Quota.Limit, q.Quota.Remaining, q.Quota.Reset = 100, 80-25*(step%4), window-now%window
					q.Epoch, q.Pause = s.Epoch, 0
				}
			}
			keys := []string{key, fmt.Sprint(int64(now / time.Second)), fmt.Sprint(int64(now % time.Second / time.Microsecond))}
			args := cruiseredis.Args(q)
			for reply, news := s.Report(now, q); ; reply, news = s.Commit(now, q, news.Decide(q)) {
				answer, err := script.Run(t.Context(), client, keys, args...).Slice()
				require.NoError(t, err)
				got, gotNews, err := cruiseredis.Parse(answer)
				require.NoError(t, err)
				require.Equal(t, reply, got, "run %d, step %d: %+v", run, step, q)
				require.Equal(t, fieldsOf(s), client.HGetAll(t.Context(), key).Val(), "run %d, step %d: %+v", run, step, q)
				if news == nil {
					require.Nil(t, gotNews)
					break
				}
				news.Law = append([]byte{}, news.Law...) // a text in Redis is never nil
				require.Equal(t, news, gotNews, "run %d, step %d: %+v", run, step, q)
				if steps++; rng.IntN(20) == 0 {
					break // the worker ends meanwhile
				}
				args = append(cruiseredis.Args(q), cruiseredis.Decided(news.Decide(q))...)
			}
		}
	}
	assert.Greater(t, steps, 1000)
}

// A field that only another version knows is left alone, and a state that lacks one of this
// version begins anew, with the rate that the worker knows.
func TestStateOfAnotherVersion(t *testing.T) {
	client := startRedis(t).client()
	scope := scopeOf(t)
	store, key := cruise.Must(cruiseredis.NewStore(client, scope)), cruiseredis.KeyOf(scope)
	q := shared.Request{Law: law, Epoch: 7, Rate: 20e6, Failed: 3}
	for _, tt := range []struct {
		name string
		meet func() error
		errs string // that no step has taken
	}{
		{"the first", func() error { return nil }, "3"},
		{"this version", func() error { return nil }, "6"},
		{"a newer one", func() error { return client.HSet(t.Context(), key, "later", 5).Err() }, "9"},
		{"an older one", func() error { return client.HDel(t.Context(), key, "lease").Err() }, "3"},
		{"both since", func() error { return nil }, "6"},
	} {
		require.NoError(t, tt.meet())
		r, err := store.Sync(t.Context(), q)
		require.NoError(t, err)
		assert.Equal(t, []int64{7, 20e6}, []int64{r.Epoch, r.Rate}, tt.name)
		assert.Equal(t, tt.errs, client.HGet(t.Context(), key, "errs").Val(), tt.name)
		q.Count = r.Count
	}
	assert.Equal(t, "5", client.HGet(t.Context(), key, "later").Val())
}

// A state that no sync could have written is replaced by a new one, from the workers' knowledge.
// Otherwise workers would refuse its answers, or wait for ever, and keep it from expiring.
func TestDamagedState(t *testing.T) {
	client := startRedis(t).client()
	for _, tt := range []struct {
		field string
		value int64
		since bool // the last sync
	}{
		{"rate", 0, false},
		{"ceiling", -1, false},
		{"why", -1, false},
		{"why", 3, false},
		{"level", -1, false},
		{"resumes", -1, false},
		{"cap", -1, false},
		{"capBefore", -1, false},
		{"until", shared.MaxPause.Microseconds() + 1, true},
		{"lifted", shared.MaxPause.Microseconds() + 1, true},
		{"tat", 200 * 365 * 24 * time.Hour.Microseconds(), true},
		{"countEnd", 5_000_001, true},
		{"cutAt", 1, true},
		{"quotaAt", 1, true},
		{"steppedAt", 1, true},
		{"lease", 200_001, true},
		{"row", -1, false},
		{"used", -1, false},
	} {
		t.Run(fmt.Sprint(tt.field, " ", tt.value), func(t *testing.T) {
			scope := scopeOf(t)
			store := cruise.Must(cruiseredis.NewStore(client, scope))
			known, err := store.Sync(t.Context(), shared.Request{Law: law, Epoch: 7, Rate: 20e6})
			require.NoError(t, err)
			key := cruiseredis.KeyOf(scope)
			value := tt.value
			if tt.since {
				at, err := client.HGet(t.Context(), key, "at").Int64()
				require.NoError(t, err)
				value += at
			}
			require.NoError(t, client.HSet(t.Context(), key, tt.field, value, "errs", 1000).Err())
			r, err := store.Sync(t.Context(), shared.Request{Law: law, Epoch: known.Epoch, Rate: known.Rate, Count: known.Count, Want: 1, Least: 1})
			require.NoError(t, err)
			assert.Equal(t, "0", client.HGet(t.Context(), key, "errs").Val())
			known.Slots, known.Span, known.Count = 1, 50*time.Millisecond, known.Count+1
			assert.Equal(t, known, r)
		})
	}
}

// fieldsOf is a state as Redis has it.
func fieldsOf(s shared.State) map[string]string {
	fields := map[string]string{}
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name = strings.ToLower(name[:1]) + name[1:]; name == "law" {
			fields[name] = string(s.Law)
		} else {
			fields[name] = strconv.FormatInt(v.Field(i).Int(), 10)
		}
	}
	return fields
}

func randomRequest(rng *rand.Rand, s *shared.State) shared.Request {
	q := shared.Request{
		Law:     law,
		Want:    rng.IntN(1 << rng.IntN(12)),
		Epoch:   max(0, s.Epoch-int64(rng.IntN(2))+int64(rng.IntN(50)/49)),
		Rate:    1 + rng.Int64N(1<<(1+rng.IntN(39))),
		Ceiling: rng.Int64N(1 << (1 + rng.IntN(39))),
		Resumes: max(0, s.Resumes-int64(rng.IntN(2))),
		Count:   s.Count - int64(rng.IntN(2)),
		Resume:  rng.IntN(100) == 0,
		Held:    time.Duration(rng.Int64N(int64(2 * time.Second))),
	}
	if rng.IntN(5) == 0 {
		q.Law.Max = 1 + rng.Int64N(1e12)
		q.Law.Min = 1 + rng.Int64N(q.Law.Max)
		q.Law.Initial = q.Law.Min
		q.Law.Decrease, q.Law.Increase = 1+rng.Int64N(999_999), 1+rng.Int64N(1e6)
		q.Law.Burst, q.Law.Forgive = 1+rng.Int64N(100), 1+rng.Int64N(20)
	}
	q.Least = min(q.Want, 1+rng.IntN(3))
	if rng.IntN(2) == 0 {
		q.Successes = rng.Int64N(1 << rng.IntN(12))
		if rng.IntN(2) == 0 {
			q.Quota, q.QuotaAge = &cruise.Quota{Limit: rng.IntN(1 << rng.IntN(20)), Remaining: rng.IntN(1 << rng.IntN(20))}, time.Duration(rng.Int64N(1<<rng.IntN(32)))
			if rng.IntN(2) == 0 {
				q.Quota.Reset = time.Duration(rng.Int64N(1 << rng.IntN(45)))
			}
		}
	}
	if rng.IntN(4) == 0 {
		q.Failed = rng.Int64N(1 << rng.IntN(12))
	}
	if rng.IntN(8) == 0 {
		q.Throttled, q.Late, q.Backoff = true, rng.Int64N(3), time.Duration(rng.Int64N(int64(time.Second)))
		if rng.IntN(4) == 0 {
			q.Backoff = 0
		}
	}
	if rng.IntN(15) == 0 {
		q.Pause, q.NewPause = time.Duration(rng.Int64N(1<<(10+rng.IntN(45)))), rng.IntN(2) == 0
	}
	return q
}

func TestKeys(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, tt := range []struct{ name, scope, want string }{
		{"short", "ACCOUNT 4711", "cruise1:{ACCOUNT 4711}"},
		{"longest", long, "cruise1:{" + long + "}"},
		{"braces and zeros", "a}{b\x00", "cruise1:{a}{b\x00}"},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, cruiseredis.KeyOf(tt.scope)) })
	}
	t.Run("too long", func(t *testing.T) {
		key := cruiseredis.KeyOf(long + "x")
		assert.Len(t, key, len("cruise1:{#}")+64)
		assert.NotEqual(t, key, cruiseredis.KeyOf(long+"y"))
		assert.Len(t, cruiseredis.KeyOf(strings.Repeat("x", 1<<20)), len(key))
	})
}

// A key outlives its last pause or slot by ten minutes, and no key is left for ever.
func TestExpiry(t *testing.T) {
	client := startRedis(t).client()
	for _, tt := range []struct {
		name string
		row  int // throttles since the last success
		q    shared.Request
		want time.Duration
	}{
		{"nothing to keep", 0, shared.Request{}, 10 * time.Minute},
		{"a pause", 0, shared.Request{Pause: time.Hour, NewPause: true}, 70 * time.Minute},
		{"the longest pause", 0, shared.Request{Pause: 100 * 365 * 24 * time.Hour, NewPause: true}, shared.MaxPause + 10*time.Minute},
		{"a slow rate", 0, shared.Request{Epoch: 2, Rate: 1000}, 10*time.Minute + 2000*time.Second},
		{"a call at a slow rate", 0, shared.Request{Epoch: 2, Rate: 1000, Want: 1, Least: 1}, 10*time.Minute + 3000*time.Second},
		{"a call at a closed door", 2, shared.Request{Epoch: 2, Rate: 1000, Want: 1, Least: 1}, 10*time.Minute + 6000*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.q.Law = law
			scope := scopeOf(t)
			store := cruise.Must(cruiseredis.NewStore(client, scope))
			_, err := store.Sync(t.Context(), shared.Request{Law: law})
			require.NoError(t, err)
			require.NoError(t, client.HSet(t.Context(), cruiseredis.KeyOf(scope), "row", tt.row).Err())
			_, err = store.Sync(t.Context(), tt.q)
			require.NoError(t, err)
			left := client.PTTL(t.Context(), cruiseredis.KeyOf(scope)).Val()
			assert.InDelta(t, tt.want.Seconds(), left.Seconds(), 1+hiccup().Seconds())
			size := client.MemoryUsage(t.Context(), cruiseredis.KeyOf(scope)).Val()
			assert.Less(t, size, int64(2048))
		})
	}
	assert.EqualValues(t, 6, client.DBSize(t.Context()).Val())
}

// A scope that was busy for a day takes no more memory than the documents say.
func TestSizeOfABusyScope(t *testing.T) {
	client := startRedis(t).client()
	var s shared.State
	now := time.Duration(1_800_000_000) * time.Second
	for range 200_000 {
		now += 500 * time.Millisecond
		s.Sync(now, shared.Request{Law: law, Epoch: s.Epoch, Count: s.Count, Want: 50, Least: 1, Successes: 50})
	}
	require.NoError(t, client.HSet(t.Context(), "busy", fieldsOf(s)).Err())
	size := client.MemoryUsage(t.Context(), "busy", 0).Val() // of all fields, not of a few by chance
	t.Logf("%d bytes, %d of them the law's", size, len(s.Law))
	assert.Less(t, size, int64(4096))
}

func TestOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	cluster := func(ends bool) redis.UniversalClient {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: ends})
		t.Cleanup(func() { c.Close() })
		return c
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for _, tt := range []struct {
		name   string
		client redis.UniversalClient
		scope  string
		opts   []cruiseredis.Option
		want   string
	}{
		{"a client with defaults", client, "x", nil, ""},
		{"a cluster as it should be", cluster(true), "x", nil, ""},
		{"no client", nil, "x", nil, "cruiseredis: client is nil: want a client of go-redis"},
		{"a nil client", (*redis.Client)(nil), "x", nil, "cruiseredis: client is nil: want a client of go-redis"},
		{"no scope", client, "", nil, `cruiseredis: scope "": want a name, the same on all machines`},
		{"a cluster with defaults", cluster(false), "x", nil, "cruiseredis: ContextTimeoutEnabled false of the *redis.ClusterClient: want true, so that a sync ends in time"},
		{"a ring with defaults", ring, "x", nil, "cruiseredis: ContextTimeoutEnabled false of the *redis.Ring: want true, so that a sync ends in time"},
		{"a wrong option", client, "x", []cruiseredis.Option{cruise.WithTuning(cruise.Tuning{Burst: -1})}, "cruise: WithTuning: Burst -1: want 1 to 2147483647"},
		{"all that is wrong", nil, "", []cruiseredis.Option{shared.WithStoreTimeout(0)}, "cruiseredis: scope \"\": want a name, the same on all machines\ncruiseredis: client is nil: want a client of go-redis\ncruise: WithStoreTimeout(0s): want 1ms to 10s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := cruiseredis.NewLimiter(tt.client, tt.scope, tt.opts...)
			if tt.want == "" {
				require.NoError(t, err)
				assert.NotNil(t, l)
				return
			}
			assert.EqualError(t, err, tt.want)
			assert.Nil(t, l)
		})
	}
	assert.False(t, client.Options().ContextTimeoutEnabled, "the caller's client stays as it is")
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	answer := func(numbers ...int64) (a []any) {
		for _, n := range numbers {
			a = append(a, n)
		}
		return a
	}
	_, _, err := cruiseredis.Parse(nil)
	assert.EqualError(t, err, "cruiseredis: answer []: want 13 numbers, or 20 and a text")
	_, _, err = cruiseredis.Parse(append(answer(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), "law", int64(1)))
	assert.ErrorContains(t, err, "want 13 numbers, or 20 and a text")
	r, _, err := cruiseredis.Parse(answer(0, 1, 1<<62, -1<<62, 1, 1, 1, 1, 1, 1, 1, 1, 1))
	require.NoError(t, err)
	assert.Positive(t, r.Wait)
	assert.Negative(t, r.Span)
	_, _, err = cruiseredis.Parse(answer(0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 3))
	assert.EqualError(t, err, "cruiseredis: cause 3: want 0 to 2")
}
