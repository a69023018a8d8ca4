package cruiseredis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
	"github.com/a7df5faa/cruise/shared"
)

// recorded returns the script with an additional list, in which it logs each step: the time, the
// arguments and the answer.
func recorded(t *testing.T) string {
	t.Helper()
	before, answer, ok := strings.Cut(cruiseredis.Script, "\nreturn {\n")
	require.True(t, ok, "the script ends in another way")
	return before + `
local answer = {
` + answer + `
local words = {string.format('%.0f', t)}
for _, v in ipairs(ARGV) do words[#words + 1] = v end
for _, v in ipairs(answer) do words[#words + 1] = string.format('%.0f', v) end
redis.call('RPUSH', KEYS[1] .. ' log', table.concat(words, ' '))
return answer
`
}

// history reads a log and checks each step of it: against the model, and against the rules that
// slots must keep in any case.
type history struct {
	state shared.State
	steps int

	epoch int64
	last  int64 // slot of the epoch
	until int64 // end of the pause
	slots int   // given in all
}

// step is one line of the log.
func (h *history) step(line string) error {
	var words []int64
	for _, w := range strings.Fields(line) {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return err
		}
		words = append(words, n)
	}
	if len(words) != 1+27+12 {
		return fmt.Errorf("%d words", len(words))
	}
	at, q := words[0], requestOf(words[1:28])
	got, err := cruiseredis.Parse(words[28:])
	if err != nil {
		return err
	}
	h.steps++

	// The model's answer at that time.
	if want := h.state.Sync(time.Duration(at)*time.Microsecond, q); want != got {
		return fmt.Errorf("step %d: %+v at %d: got %+v, want %+v", h.steps, q, at, got, want)
	}

	// And the rules for slots. Within an epoch no two slots are closer than the rate allows, so
	// that there are never more than rate × time of them, and none is given before the end of a
	// pause.
	if got.Epoch < h.epoch {
		return fmt.Errorf("step %d: epoch %d after %d", h.steps, got.Epoch, h.epoch)
	}
	if got.Epoch > h.epoch {
		h.epoch, h.last = got.Epoch, 0
	}
	if q.Resume {
		h.until = 0
	}
	if end := at + got.Pause.Microseconds(); end < h.until {
		return fmt.Errorf("step %d: the pause got shorter by %d us", h.steps, h.until-end)
	} else if got.Pause > 0 {
		h.until = end
	}
	if got.Slots > 0 {
		first := at + got.Wait.Microseconds()
		gap := 1e12 / float64(got.Rate)
		if after := first - h.last; h.last > 0 && float64(after) < gap-1 {
			return fmt.Errorf("step %d: a slot %d us after the last one: want %.0f", h.steps, after, gap)
		}
		if first < h.until {
			return fmt.Errorf("step %d: slots %d us before the end of the pause", h.steps, h.until-first)
		}
		if least := float64(got.Slots) * gap; float64(got.Span.Microseconds()) < least-1 {
			return fmt.Errorf("step %d: %d slots in %v at %d", h.steps, got.Slots, got.Span, got.Rate)
		}
		h.last = first + (got.Span - got.Span/time.Duration(got.Slots)).Microseconds()
		h.slots += got.Slots
	}
	return nil
}

// requestOf is the inverse of Args.
func requestOf(a []int64) shared.Request {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	q := shared.Request{
		Law:  shared.Law{Min: a[0], Max: a[1], Initial: a[2], Decrease: a[3], Increase: a[4], Burst: a[5], Forgive: a[6], PauseBase: us(a[7])},
		Want: int(a[8]), Least: int(a[9]), Epoch: a[10], Rate: a[11], Ceiling: a[12],
		Throttled: a[13] == 1, Backoff: us(a[14]), Successes: a[15], Failed: a[16],
		Pause: us(a[17]), NewPause: a[18] == 1, Resume: a[19] == 1, Resumes: a[20], Count: a[21], Held: us(a[22]),
	}
	if a[23] >= 0 {
		q.QuotaAge = us(a[23])
		q.Quota = &cruise.Quota{Limit: int(a[24]), Remaining: int(a[25]), Reset: us(a[26])}
	}
	return q
}

// drain checks the log, and empties it.
func (h *history) drain(t *testing.T, c *redis.Client, scope string) {
	t.Helper()
	key := cruiseredis.KeyOf(scope) + " log"
	for {
		lines, err := c.LPopCount(t.Context(), key, 1000).Result()
		if len(lines) == 0 {
			require.True(t, err == nil || err == redis.Nil, "%v", err)
			return
		}
		for _, line := range lines {
			require.NoError(t, h.step(line))
		}
	}
}

// Many workers sync at once, with any arguments. The answers of Redis equal the answers of one
// state to the same syncs, one after the other, in an order in which no sync is answered before it
// is sent. And in that history, slots keep to the rate.
//
// CRUISE_HISTORY=1000000 makes it that many steps.
func TestHistory(t *testing.T) {
	steps := 20_000
	if text := os.Getenv("CRUISE_HISTORY"); text != "" {
		var err error
		steps, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	t.Parallel()
	s := startRedis(t)
	c := s.client()
	script, scope := recorded(t), scopeOf(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const askers, batch = 16, 20_000
	h := &history{}
	var lastEpoch, lastResumes int64 // the last that a worker got in the batch before
	for done := 0; done < steps; done += batch {
		var wg sync.WaitGroup
		var mu sync.Mutex // guards the highest
		epochs, resumes := lastEpoch, lastResumes
		for i := range askers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(done+i)))
				store := cruiseredis.RawScript(c, scope, script)
				known := shared.State{Epoch: lastEpoch, Resumes: lastResumes}
				for range min(batch, steps-done) / askers {
					q := randomRequest(rng, &known)
					q.Epoch = min(q.Epoch, known.Epoch) // else epochs grow by being claimed
					q.Resumes = max(q.Resumes, 0)
					if rng.IntN(10) == 0 {
						q.Pause = time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
					} else {
						q.Pause = 0 // so that there are slots too
					}
					q.Backoff = min(q.Backoff, 10*time.Millisecond)
					r, err := store.Sync(context.Background(), q)
					if !assert.NoError(t, err) {
						return
					}
					assert.GreaterOrEqual(t, r.Epoch, known.Epoch, "it was answered by the past")
					assert.GreaterOrEqual(t, r.Resumes, known.Resumes, "it was answered by the past")
					known.Epoch, known.Resumes, known.Count = r.Epoch, r.Resumes, r.Count
				}
				mu.Lock()
				defer mu.Unlock()
				epochs, resumes = max(epochs, known.Epoch), max(resumes, known.Resumes)
			})
		}
		wg.Wait()
		lastEpoch, lastResumes = epochs, resumes
		h.drain(t, c, scope)
		require.Equal(t, min(steps, done+batch)/askers*askers, h.steps)
	}
	t.Logf("%d steps, %d slots, %d epochs", h.steps, h.slots, h.epoch)
	assert.Positive(t, h.slots)
	assert.Greater(t, h.epoch, int64(1))
}

// The same with workers under way, whose answers get lost now and then: their syncs are such a
// history too, and they send no more calls than they got slots.
func TestHistoryOfWorkers(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	p := startProxy(t, s.addr)
	c := s.client()
	script, scope := recorded(t), scopeOf(t)
	var workers []*shared.Limiter
	for range 8 {
		client := redis.NewClient(&redis.Options{Addr: p.addr()})
		t.Cleanup(func() { client.Close() })
		workers = append(workers, cruise.Must(shared.New(
			cruiseredis.RawScript(cruise.Must(cruiseredis.Pin(client)), scope, script), cruise.WithInitialRate(200), patient, shared.WithFallback(shared.FallbackClosed))))
	}
	tr := drive(t, workers, 3)
	h := &history{}
	for i := 0; i < 30 || h.epoch < 2 && i < 300; i++ { // longer on a machine that is slow
		time.Sleep(200 * time.Millisecond)
		h.drain(t, c, scope)
		switch i % 5 {
		case 1:
			p.reset() // answers that are under way are lost
		case 2:
			workers[i%8].Pause(50 * time.Millisecond)
		case 4: // when all are back
			workers[i%8].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1})
		}
	}
	tr.stop()
	time.Sleep(2 * patience) // for the last syncs
	h.drain(t, c, scope)
	t.Logf("%d steps, %d slots, %d calls, %d epochs", h.steps, h.slots, len(tr.sent), h.epoch)
	assert.LessOrEqual(t, len(tr.sent), h.slots)
	assert.Greater(t, len(tr.sent), 20)
	assert.Greater(t, h.epoch, int64(1))
}

// The inverse of Args is one, or the test above compares nothing.
func TestRequestOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		q := randomRequest(rng, &shared.State{Epoch: 5, Resumes: 7, Count: 9})
		times := []*time.Duration{&q.Backoff, &q.Pause, &q.Held, &q.Law.PauseBase, &q.QuotaAge}
		if q.Quota != nil {
			times = append(times, &q.Quota.Reset)
		}
		for _, d := range times {
			*d = d.Truncate(time.Microsecond)
		}
		var words []int64
		for _, a := range cruiseredis.Args(q) {
			words = append(words, reflect.ValueOf(a).Int())
		}
		require.Equal(t, q, requestOf(words))
	}
}
