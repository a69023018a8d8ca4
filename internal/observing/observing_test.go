package observing

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
)

func TestReasonIndex(t *testing.T) {
	for i, reason := range Reasons {
		assert.Equal(t, i, ReasonIndex(reason))
		assert.Equal(t, i, ReasonIndex(fmt.Errorf("as told: %w", reason)))
	}
	assert.Equal(t, len(Reasons), ReasonIndex(errors.New("another")))
	assert.Equal(t, len(Reasons), ReasonIndex(nil))
}

func TestDigest(t *testing.T) {
	one, two := Digest(), Digest()
	assert.Regexp(t, "^#[0-9a-f]{8}$", one("customer", "42"))
	assert.Equal(t, one("customer", "42"), one("customer", "42"))
	assert.NotEqual(t, one("customer", "42"), one("customer", "43"))
	assert.NotEqual(t, one("customer", "42"), one("shard", "42"))
	assert.NotEqual(t, one("customer", "42"), two("customer", "42"))
}

// several is a limiter that cannot be a key of a map.
type several []cruise.Limiter

func (several) WaitN(context.Context, int) error { return nil }

func TestSeen(t *testing.T) {
	a, b := cruise.Must(cruise.NewAdaptiveLimiter()), cruise.Must(cruise.NewAdaptiveLimiter())
	seen := Seen{}
	assert.False(t, seen.Before(a, 0))
	assert.False(t, seen.Before(a, 0), "another scope of the same Retrier")
	assert.True(t, seen.Before(a, 1))
	assert.False(t, seen.Before(b, 1))
	assert.True(t, seen.Before(b, 0))
	assert.False(t, seen.Before(nil, 2))
	assert.False(t, seen.Before(several{a}, 0))
	assert.False(t, seen.Before(several{a}, 1), "nobody can tell")
}
