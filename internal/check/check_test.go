package check

import (
	"errors"
	"math"
	"testing"

	"golang.org/x/time/rate"

	"github.com/stretchr/testify/assert"
)

func TestErrors(t *testing.T) {
	var e Errors
	assert.True(t, e.Check(true, "WithA(%d): want 1", 1))
	assert.NoError(t, errors.Join(e...))
	assert.False(t, e.Check(false, "WithA(%d): want 1", 2))
	assert.False(t, e.Check(false, "WithB(%d): want 1", 3))
	assert.EqualError(t, errors.Join(e...), "cruise: WithA(2): want 1\ncruise: WithB(3): want 1")
}

func TestBounds(t *testing.T) {
	for limit, want := range map[rate.Limit]bool{
		0: false, -1: false, 1e-300: true, rate.Inf: true, rate.Limit(math.Inf(1)): false,
	} {
		assert.Equal(t, want, IsLimit(limit), "%v", limit)
	}
	assert.False(t, IsLimit(rate.Limit(math.NaN())))
	for burst, want := range map[int]bool{0: false, 1: true, math.MaxInt32: true} {
		assert.Equal(t, want, IsBurst(burst), "%v", burst)
	}
	assert.Equal(t, "rate.Inf", LimitText(rate.Inf).String())
	assert.Equal(t, "0.5", LimitText(.5).String())
}
