package cruise

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// The time between two clocks is none: a pause lasts as long as it was to.
func TestPauseAcrossBubbles(t *testing.T) {
	b := Must(NewTokenBucket(10, 1))
	synctest.Test(t, func(t *testing.T) {
		b.Pause(time.Hour)
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 40*time.Minute, b.PauseLeft())
	})
	left := b.PauseLeft() // by the clock outside
	assert.LessOrEqual(t, left, 40*time.Minute)
	assert.Greater(t, left, 39*time.Minute)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(10 * time.Minute)
		left := b.PauseLeft()
		assert.LessOrEqual(t, left, 40*time.Minute)
		assert.Greater(t, left, 29*time.Minute)
	})
}

// A limiter may be a package-level variable, used by tests each in a bubble with
// a time of its own, and by others outside.
func TestLimiterAcrossBubbles(t *testing.T) {
	b := Must(NewTokenBucket(10, 1))
	a := Must(NewAdaptiveLimiter(WithInitialRate(10), WithTuning(Tuning{Burst: 1})))
	limit := a.Limit()
	use := func(t *testing.T) {
		for _, l := range []Learner{b, a} {
			start := time.Now()
			require.NoError(t, l.WaitN(t.Context(), 1))
			require.NoError(t, l.WaitN(t.Context(), 1))
			assert.LessOrEqual(t, time.Since(start), 200*ms, "%T", l)
			err := l.WaitN(within(t, 50*ms), 1)
			assert.ErrorIs(t, err, ErrDeadline, "%T", l)
			require.NoError(t, l.WaitN(within(t, 150*ms), 1), "%T", l)
		}
		time.Sleep(time.Minute)
	}
	synctest.Test(t, use)
	synctest.Test(t, use)
	synctest.Test(t, use)
	assert.Equal(t, rate.Limit(10), limit)
	// Out of all bubbles, decades earlier: a token is due within 100 ms.
	for _, l := range []Learner{b, a} {
		assert.NoError(t, l.WaitN(within(t, time.Minute), 1), "%T", l)
		assert.NoError(t, l.WaitN(within(t, time.Minute), 1), "%T", l)
	}
}

// What a limiter learns after its clock went back is no older than what it
// learned before.
func TestLimiterLearnsAcrossBubbles(t *testing.T) {
	a := Must(NewAdaptiveLimiter(WithInitialRate(8)))
	halve := func(t *testing.T) {
		was := a.Limit()
		_, _, err := admit(&a.queue, t.Context(), 1)
		require.NoError(t, err)
		a.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1})
		time.Sleep(time.Second)
		_, sent, err := admit(&a.queue, t.Context(), 1)
		require.NoError(t, err)
		assert.Zero(t, clock.Now().Sub(sent))
		time.Sleep(time.Second)
		a.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, Sent: sent.Time()})
		assert.Less(t, a.Limit(), was)
	}
	synctest.Test(t, halve)
	synctest.Test(t, halve)
}

// The wall clock cannot be moved in a test. So this finds all readers of it: nothing that
// decides about time reads it, only the monotonic clock of internal/clock.
func TestOnlyTheMonotonicClockIsRead(t *testing.T) {
	want := map[string][]string{
		"internal/clock/clock.go": {"Now", "Since", "Until"}, // base, Now and deadlines without a monotonic reading
		"calling.go":              {"Until"},                 // the same, as contexts read them
		"shared/limiter.go":       {"Now"},                   // the end of a pause, as observers are told it
		"adaptive.go":             {"Now"},                   // what an event shows
	}
	var files []string
	for _, pattern := range []string{"*.go", "delay/*.go", "shared/*.go", "internal/check/*.go", "internal/clock/*.go", "internal/law/*.go", "internal/limits/*.go", "internal/pacer/*.go", "internal/queue/*.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	got := map[string][]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && (s.Sel.Name == "Now" || s.Sel.Name == "Since" || s.Sel.Name == "Until") {
					got[name] = append(got[name], s.Sel.Name)
				}
			}
			return true
		})
	}
	assert.Equal(t, want, got)
}
