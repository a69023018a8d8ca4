package cruisegrpc

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPullEndsAsItsSequenceDoes(t *testing.T) {
	counting := func(end func()) func(yield func(int, string) bool) {
		return func(yield func(int, string) bool) {
			if yield(1, "one") {
				end()
			}
		}
	}
	next, stop := pull(counting(func() {}))
	k, v, ok := next()
	assert.Equal(t, []any{1, "one", true}, []any{k, v, ok})
	_, _, ok = next()
	assert.False(t, ok)
	stop()

	next, stop = pull(counting(func() { panic("at the disco") }))
	next()
	assert.PanicsWithValue(t, "at the disco", func() { next() })
	stop()

	next, stop = pull(counting(runtime.Goexit))
	next()
	returned := false
	var wg sync.WaitGroup
	wg.Go(func() {
		next()
		returned = true
	})
	wg.Wait()
	assert.False(t, returned)
	stop()

	left := false
	next, stop = pull(func(yield func(int, string) bool) { left = !yield(1, "one") })
	next()
	stop()
	assert.True(t, left)
}
