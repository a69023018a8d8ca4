package cruiseredis_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/cruiseredis"
	"github.com/a7df5faa/cruise/shared"
)

// An oracle gives the answers of a test, and counts the commands.
type oracle struct {
	evalSha, eval func() (any, error)
	shas, evals   int
}

func (o *oracle) Process(_ context.Context, cmd redis.Cmder) error {
	answer := o.eval
	if cmd.Name() == "evalsha" {
		o.shas++
		answer = o.evalSha
	} else {
		o.evals++
	}
	value, err := answer()
	cmd.(interface{ SetVal(any) }).SetVal(value)
	cmd.SetErr(err)
	return err
}

// refusal is an error that Redis answers with, as go-redis tells it.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

// The script is sent again if Redis says that it does not know it, once, and for
// no other reason: anything else may mean that it has run.
func TestScriptIsSentAgainOnlyIfUnknown(t *testing.T) {
	numbers := []any{int64(0), int64(1), int64(0), int64(1), int64(1), int64(1), int64(0), int64(0), int64(0), int64(0), int64(1), int64(1), int64(0)}
	good := func() (any, error) { return numbers, nil }
	fails := func(err error) func() (any, error) { return func() (any, error) { return nil, err } }
	says := func(answer any) func() (any, error) { return func() (any, error) { return answer, nil } }
	unknown := fails(refusal("NOSCRIPT No matching script. Please use EVAL."))
	for _, tt := range []struct {
		name          string
		evalSha, eval func() (any, error)
		evals         int
		ok            bool
	}{
		{"known", good, nil, 0, true},
		{"unknown", unknown, good, 1, true},
		{"unknown ever again", unknown, unknown, 1, false},
		{"unknown, and EVAL is refused", unknown, fails(refusal("OOM command not allowed when used memory > 'maxmemory'.")), 1, false},
		{"loading", fails(refusal("LOADING Redis is loading the dataset in memory")), nil, 0, false},
		{"no snapshots", fails(refusal("MISCONF Redis is configured to save RDB snapshots")), nil, 0, false},
		{"cluster down", fails(refusal("CLUSTERDOWN The cluster is down")), nil, 0, false},
		{"another slot", fails(refusal("CROSSSLOT Keys in request don't hash to the same slot")), nil, 0, false},
		{"a script that failed", fails(refusal("ERR Error running script: NOSCRIPT is only a word here")), nil, 0, false},
		{"timeout", fails(context.DeadlineExceeded), nil, 0, false},
		{"a lost connection", fails(errors.New("EOF")), nil, 0, false},
		{"nil", fails(redis.Nil), nil, 0, false},
		{"nothing", says(nil), nil, 0, false},
		{"a word", says("OK"), nil, 0, false},
		{"words", says([]any{"one", "two"}), nil, 0, false},
		{"a hole", says([]any{int64(1), nil}), nil, 0, false},
		{"too few numbers", says(numbers[1:]), nil, 0, false},
		{"too many numbers", says(append(numbers[:13:13], int64(1))), nil, 0, false},
		{"a list in a list", says([]any{numbers}), nil, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &oracle{evalSha: tt.evalSha, eval: tt.eval}
			_, err := cruiseredis.Raw(o, "x").Sync(t.Context(), shared.Request{})
			assert.Equal(t, 1, o.shas)
			assert.Equal(t, tt.evals, o.evals)
			if tt.ok {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, "cruiseredis: ")
		})
	}
}
