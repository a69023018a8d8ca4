package shared

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/replay"
)

// After a told wait the retry of a refused call goes first. If the server refuses that too, or tells no
// wait, a first attempt goes before it.
func TestFirstAfterAPause(t *testing.T) {
	for _, tt := range []struct {
		name    string
		told    time.Duration
		refused int    // attempts of call A
		want    string // the order of attempts
	}{
		{"told", time.Second, 1, "AAB"},
		{"told twice", time.Second, 2, "AABA"},
		{"not told", 0, 1, "ABA"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(New(NewMemoryStore())))))
				order, refused := "", 0
				a := func(context.Context) error {
					order += "A"
					if refused++; refused <= tt.refused {
						return cruise.Throttled(errors.New("too many"), cruise.RetryAfter(tt.told))
					}
					return nil
				}
				b := func(context.Context) error { order += "B"; return nil }
				var both sync.WaitGroup
				both.Go(func() { assert.NoError(t, r.Do(t.Context(), a)) })
				replay.Sleep(10 * time.Millisecond)
				both.Go(func() { assert.NoError(t, r.Do(t.Context(), b)) })
				both.Wait()
				assert.Equal(t, tt.want, order)
			})
		})
	}
}

// Callers whose calls are always refused hold up no others.
func TestCallersRefusedAlways(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 10 * time.Second} {
		for _, v := range []struct{ callers, attempts int }{{1, 2}, {1, 3}, {1, 5}, {1, math.MaxInt}, {2, 2}, {2, 3}, {2, math.MaxInt}, {3, 5}} {
			t.Run(fmt.Sprintf("%v, %d, %d attempts", after, v.callers, v.attempts), func(t *testing.T) {
				replay.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(New(NewMemoryStore()))), cruise.WithoutBudget(), cruise.WithMaxAttempts(v.attempts)))
					var odd sync.WaitGroup
					for range v.callers {
						odd.Go(func() {
							for ctx.Err() == nil {
								_ = r.Do(ctx, func(context.Context) error {
									return cruise.Throttled(errors.New("this record"), cruise.RetryAfter(after))
								})
								replay.Sleep(10 * time.Second)
							}
						})
					}
					n := 0
					for ctx.Err() == nil {
						if r.Do(ctx, func(context.Context) error { replay.Sleep(150 * time.Millisecond); return nil }) != nil {
							break // it would be too late
						}
						n++
					}
					odd.Wait()
					assert.Greater(t, n, 3400, "of 4,000")
				})
			})
		}
	}
}
