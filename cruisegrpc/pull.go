package cruisegrpc

import (
	"iter"
	"runtime"
)

// pull is [iter.Pull2] for a sequence that goroutines of all kinds resume, one after the other. A
// coroutine must not be resumed by a goroutine that is locked to a thread if an unlocked one made
// it, nor the other way round: the program would die.
func pull[K, V any](seq iter.Seq2[K, V]) (next func() (K, V, bool), stop func()) {
	var (
		resume func() (K, V, bool)
		end    func()
	)
	apart(func() { resume, end = iter.Pull2(seq) })
	next = func() (k K, v V, ok bool) {
		apart(func() { k, v, ok = resume() })
		return k, v, ok
	}
	return next, func() { apart(end) }
}

// apart runs f in a goroutine that is not locked to a thread, and ends as f does.
func apart(f func()) {
	var (
		done     = make(chan struct{})
		returned bool
		panicked any
	)
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		f()
		returned = true
	}()
	<-done
	switch {
	case returned:
	case panicked != nil:
		panic(panicked)
	default:
		runtime.Goexit()
	}
}
