package queue

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// queueModel is the plainest form of a queue before a token bucket: integers, lists, and no timer.
// Tokens are counted in billionths: a limit of n calls a second gives n of them each nanosecond.
type queueModel struct {
	limit, burst int64
	now          int64 // nanoseconds, as all times here
	have, since  int64 // tokens at a time, from which on they come
	pausedTo     int64
	waiters      [classes][]*modelWaiter
	passedBy     int            // turns that others had before the background
	left         []*modelWaiter // the waiters that went, in order
}

const token = int64(time.Second)

type modelWaiter struct {
	id     int
	n      int64
	class  Class
	cancel context.CancelFunc
	came   int64
	behind bool  // others, when it came
	at     int64 // when it went
	given  int64 // billionths of tokens that limits had given by then
}

func (m *queueModel) tokens(at int64) int64 {
	if m.since >= m.pausedTo {
		return m.saved(at)
	}
	return min(m.burst*token, min(token, m.saved(m.pausedTo))+(at-m.pausedTo)*m.limit)
}

// saved returns the balance as it would be without a pause.
func (m *queueModel) saved(at int64) int64 {
	return min(m.burst*token, m.have+(at-m.since)*m.limit)
}

// head goes next: of the background if nobody else waits, or if others had seven
// turns before it.
func (m *queueModel) head() *modelWaiter {
	others := slices.Concat(m.waiters[Retry], m.waiters[First])
	background := slices.Concat(m.waiters[BackgroundRetry], m.waiters[Background])
	switch {
	case len(background) > 0 && (len(others) == 0 || m.passedBy >= 7):
		return background[0]
	case len(others) > 0:
		return others[0]
	}
	return nil
}

// due is when the head goes if nothing happens.
func (m *queueModel) due() (*modelWaiter, int64) {
	w := m.head()
	if w == nil {
		return nil, 0
	}
	at := max(m.now, m.pausedTo)
	if missing := w.n*token - m.tokens(at); missing > 0 {
		at += (missing + m.limit - 1) / m.limit
	}
	return w, at
}

// run lets all waiters go that are due until a time.
func (m *queueModel) run(until int64) {
	for {
		w, at := m.due()
		if w == nil || at > until {
			m.now = until
			return
		}
		m.now = at
		m.have, m.since = m.tokens(at)-w.n*token, at
		w.at = at
		m.leave(w)
		switch {
		case w.class.background() && (w.behind || at > w.came):
			m.passedBy = 0 // one that goes at once had no turn
		case len(m.waiters[BackgroundRetry])+len(m.waiters[Background]) > 0:
			m.passedBy++
		}
		m.left = append(m.left, w)
	}
}

func (m *queueModel) leave(w *modelWaiter) {
	i := slices.Index(m.waiters[w.class], w)
	m.waiters[w.class] = slices.Delete(m.waiters[w.class], i, i+1)
}

func (m *queueModel) waiting() []*modelWaiter {
	return slices.Concat(m.waiters[:]...)
}

func (m *queueModel) setLimit(limit int64) {
	m.settle()
	m.limit = limit
}

func (m *queueModel) pause(d int64) {
	if d <= 0 || m.now+d <= m.pausedTo {
		return
	}
	if m.pausedTo <= m.now {
		m.settle()
	}
	m.pausedTo = m.now + d
}

func (m *queueModel) resume() { m.pausedTo = min(m.pausedTo, m.now) }

// settle adds the tokens that came until now, as if there were no pause.
func (m *queueModel) settle() {
	if m.pausedTo > m.now {
		m.have = m.saved(m.now)
	} else {
		m.have = m.tokens(m.now)
	}
	m.since = m.now
}

// slack is by how many nanoseconds the bucket's floating point may be off: by a few, of
// which each is 142 where the limit falls from 997 to 7 a second after that.
const slack = 3 * 142

// modelRun drives a queue and its model by the same operations.
type modelRun struct {
	t      *testing.T
	model  queueModel
	bucket *bucket
	start  clock.Instant
	wg     sync.WaitGroup
	given  int64 // by limits, up to the model's time
	ids    int

	mu   sync.Mutex // guards the fields below
	went map[int]int64
	gone map[int]bool // with an error
}

func (r *modelRun) arrive(c Class, n int64) {
	if len(r.model.waiting()) >= 100 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &modelWaiter{id: r.ids, n: n, class: c, cancel: cancel, came: r.model.now, behind: r.model.head() != nil}
	r.ids++
	r.model.waiters[c] = append(r.model.waiters[c], w)
	ctx = context.WithValue(ctx, ticketKey{}, Ticket{Class: c, MaxPause: clock.Never})
	r.wg.Go(func() {
		sent, err := r.bucket.admit(ctx, int(n))
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.gone[w.id] = true
		} else {
			r.went[w.id] = int64(sent - r.start)
		}
	})
	synctest.Wait()
}

// sleep lets time pass. If late, the timer fires only at the end of it, as on a
// machine that was suspended or had other things to do.
func (r *modelRun) sleep(d int64, late bool) {
	to := r.model.now + d
	// Nothing happens so close to a departure that slack decides which is first.
	for m := r.model; ; m.now = min(to, m.now) {
		for c := range m.waiters {
			m.waiters[c] = slices.Clone(m.waiters[c])
		}
		if late {
			m.now = max(m.now, to-slack)
		}
		m.run(to - slack)
		if _, at := m.due(); m.head() == nil || at > to+slack {
			break
		}
		to += 4 * slack
	}
	before := len(r.model.left)
	now, given := r.model.now, r.given
	if late {
		r.model.now = to
		if timer := r.bucket.timer; timer != nil {
			timer.Stop()
		}
	}
	r.model.run(to)
	for _, w := range r.model.left[before:] {
		w.given = given + (w.at-now)*r.model.limit
	}
	r.given = given + (to-now)*r.model.limit
	time.Sleep(time.Duration(to) - clock.Now().Sub(r.start))
	if late {
		r.bucket.tick()
	}
	synctest.Wait()
}

// readOld is a caller that read the clock a while before it got the lock. By its reading it could
// go earlier than calls that went since.
func (r *modelRun) readOld(d int64) {
	room := &r.bucket.Queue
	room.Lock()
	defer room.Unlock()
	last := room.Last
	if now := room.Advance(max(r.start, r.start+clock.Instant(r.model.now-d))); now < last {
		r.t.Errorf("time went back by %v", last.Sub(now))
	}
}

// check compares the queue with its model, and checks the invariants of both.
func (r *modelRun) check() bool {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got, want := r.bucket.waitingNow(), len(r.model.waiting()); got != want {
		r.t.Errorf("at %d: %d wait, want %d", r.model.now, got, want)
		return false
	}
	if len(r.went) != len(r.model.left) {
		r.t.Errorf("at %d: %d went, want %d", r.model.now, len(r.went), len(r.model.left))
		return false
	}
	last := [classes]int{-1, -1, -1, -1}
	for i, w := range r.model.left {
		at, ok := r.went[w.id]
		if !ok || max(at-w.at, w.at-at) > slack {
			r.t.Errorf("%d (cost %d, class %d) went %v at %d, want %d", w.id, w.n, w.class, ok, at, w.at)
			return false
		}
		if w.id < last[w.class] {
			r.t.Errorf("%d went after %d of its class", w.id, last[w.class])
			return false
		}
		last[w.class] = w.id
		// No interval that ends now sees more than burst + limit × time.
		for j, cost := i, int64(0); j >= 0; j-- {
			from := r.model.left[j]
			cost += from.n
			if cost*token > r.model.burst*token+w.given-from.given {
				r.t.Errorf("cost %d from %d to %d", cost, from.at, w.at)
				return false
			}
		}
	}
	return true
}

// checkQueue runs a script. Each operation has three bytes: its kind, its amount, and the time
// until the next.
func checkQueue(t *testing.T, script []byte) (ok bool) {
	limits := []int64{7, 13, 101, 997}
	script = script[:min(len(script), 3*200)]
	synctest.Test(t, func(t *testing.T) {
		const burst = 5
		r := &modelRun{
			t: t, bucket: newBucket(rate.Limit(limits[0]), burst), start: clock.Now(),
			model: queueModel{limit: limits[0], burst: burst, have: burst * token},
			went:  map[int]int64{}, gone: map[int]bool{},
		}
		r.bucket.catchUp = 0 // a timer that is seconds late, as here, has nothing to make up for
		cancelled := 0
		ok = true
		for i := 0; ok && i+2 < len(script); i += 3 {
			what, much, long := script[i], int64(script[i+1]), int64(script[i+2])
			late := false
			switch what % 16 {
			case 0, 1, 2, 3:
				r.arrive(First, 1+much%burst)
			case 4:
				r.arrive(Retry, 1+much%burst)
			case 10, 11:
				r.arrive(Background, 1+much%burst)
			case 12:
				r.arrive(BackgroundRetry, 1+much%burst)
			case 13:
				r.readOld(much * much * int64(ms))
			case 14:
				late = true
			case 15: // nothing but time
				long = min(255, 2*long)
			case 5, 6:
				if waiting := r.model.waiting(); len(waiting) > 0 {
					w := waiting[int(much)%len(waiting)]
					r.model.leave(w)
					w.cancel()
					cancelled++
				}
			case 7:
				limit := limits[much%int64(len(limits))]
				r.model.setLimit(limit)
				if err := r.bucket.SetLimit(rate.Limit(limit)); err != nil {
					t.Error(err)
				}
			case 8:
				r.model.pause(much * int64(10*ms))
				r.bucket.pauseFor(time.Duration(much) * 10 * ms)
			case 9:
				r.model.resume()
				r.bucket.resume()
			}
			synctest.Wait()
			r.sleep(long*long*long*100+37, late) // to 1.7 s
			ok = r.check()
		}
		for len(r.model.waiting()) > 0 && ok {
			r.sleep(int64(time.Minute), false)
			ok = r.check()
		}
		if !ok {
			for _, w := range r.model.waiting() {
				w.cancel()
			}
			r.bucket.resume()
			_ = r.bucket.SetLimit(rate.Inf)
		}
		r.wg.Wait()
		if ok && (len(r.went) != r.ids-cancelled || len(r.gone) != cancelled) {
			t.Errorf("of %d, %d went and %d left, want %d to leave", r.ids, len(r.went), len(r.gone), cancelled)
			ok = false
		}
		checkEmpty(t, &r.bucket.Queue)
	})
	return ok
}

// CRUISE_MODEL=1000000 checks a million operations instead of a hundred thousand, and
// CRUISE_MODEL_SEED=n begins at the n-th script.
func TestQueueModel(t *testing.T) {
	const each = 100 // operations of a script
	operations, seed := uint64(100_000), uint64(0)
	for name, n := range map[string]*uint64{"CRUISE_MODEL": &operations, "CRUISE_MODEL_SEED": &seed} {
		if text := os.Getenv(name); text != "" {
			var err error
			*n, err = strconv.ParseUint(text, 10, 64)
			require.NoError(t, err)
		}
	}
	for end := seed + operations/each; seed < end; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 3*each)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		if !checkQueue(t, script) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 4, 0, 10, 2, 1, 0, 0, 9, 12, 1, 1, 13, 200, 5, 14, 0, 250, 15, 0, 255})
	f.Add([]byte{0, 4, 0, 0, 0, 0, 4, 2, 100, 8, 50, 20, 7, 3, 0, 9, 0, 200})
	f.Add([]byte{0, 4, 0, 0, 4, 0, 0, 0, 0, 5, 0, 10, 7, 1, 10, 8, 255, 255, 9, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) { checkQueue(t, script) })
}
