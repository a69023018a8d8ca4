package cruisegrpc

import (
	"container/list"
	"sync"

	"github.com/a7df5faa/cruise"
)

// retriers keeps one Retrier for each scope, and forgets the one that was not
// used for longest when there would be too many.
type retriers struct {
	opts  []cruise.Option
	most  int
	spare *cruise.Retrier // proves that the options are good

	mu      sync.Mutex // guards the fields below
	byScope map[string]*list.Element
	used    list.List // of *scoped, latest first
}

type scoped struct {
	scope   string
	retrier *cruise.Retrier
}

func newRetriers(most int, opts []cruise.Option) (*retriers, error) {
	spare, err := cruise.New(opts...)
	if err != nil {
		return nil, err
	}
	return &retriers{opts: opts, most: most, spare: spare, byScope: map[string]*list.Element{}}, nil
}

func (r *retriers) get(scope string) *cruise.Retrier {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.byScope[scope]; e != nil {
		r.used.MoveToFront(e)
		return e.Value.(*scoped).retrier
	}
	made := r.spare
	if r.spare = nil; made == nil {
		made = cruise.Must(cruise.New(r.opts...)) // they were good before
	}
	if r.used.Len() >= r.most {
		oldest := r.used.Remove(r.used.Back()).(*scoped)
		delete(r.byScope, oldest.scope)
	}
	r.byScope[scope] = r.used.PushFront(&scoped{scope, made})
	return made
}
