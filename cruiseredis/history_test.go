package cruiseredis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
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

// recorded returns the script with an additional list, in which it logs each run: the time, the
// numbers of the arguments and of the answer, and the memories of the law in both.
func recorded(t *testing.T) string {
	t.Helper()
	before, after, ok := strings.Cut(cruiseredis.Script, "\nreturn reply\n")
	require.True(t, ok && after == "", "the script ends in another way")
	return before + `
local words, laws = {string.format('%.0f', t), #ARGV}, {'', ''}
for i, v in ipairs(ARGV) do if i <= 32 then words[#words + 1] = v else laws[1] = v end end
for _, v in ipairs(reply) do
  if type(v) == 'number' then words[#words + 1] = string.format('%.0f', v) else laws[2] = v end
end
redis.call('RPUSH', KEYS[1] .. ' log', table.concat(words, ' '), laws[1], laws[2])
return reply
`
}

// history reads a log and checks each step of it: against the model, and against the rules that
// slots must keep in any case.
type history struct {
	state    shared.State
	steps    int // runs of the script
	requests int

	epoch int64
	last  int64 // slot of the epoch
	until int64 // end of the pause
	slots int   // given in all
}

// step is one run in the log.
func (h *history) step(line, told, kept string) error {
	var words []int64
	for _, w := range strings.Fields(line) {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return err
		}
		words = append(words, n)
	}
	const request, decision = 24, 8
	commits := words[1] > request
	at, words := words[0], words[2:]
	q, rest := requestOf(words[:request]), words[request:]
	var d shared.Decision
	if commits {
		d, rest = decisionOf(rest[:decision], told), rest[decision:]
	}
	var answer []any
	for _, n := range rest {
		answer = append(answer, n)
	}
	if rest[0] == 1 {
		answer = append(answer, kept)
	}
	got, gotNews, err := cruiseredis.Parse(answer)
	if err != nil {
		return err
	}
	h.steps++

	// The model's answer at that time.
	now := time.Duration(at) * time.Microsecond
	want, news := shared.Reply{}, (*shared.News)(nil)
	if commits {
		want, news = h.state.Commit(now, q, d)
	} else {
		h.requests++
		want, news = h.state.Report(now, q)
		if q.Resume {
			h.until = 0
		}
	}
	if news != nil {
		news.Law = append([]byte{}, news.Law...)
	}
	if want != got || !reflect.DeepEqual(news, gotNews) {
		return fmt.Errorf("step %d: %+v at %d: got %+v, %+v, want %+v, %+v", h.steps, q, at, got, gotNews, want, news)
	}
	if news != nil {
		return nil
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
		Law:  shared.Law{Min: a[0], Max: a[1], Initial: a[2], Burst: a[3]},
		Want: int(a[4]), Least: int(a[5]), Epoch: a[6], Rate: a[7], Ceiling: a[8],
		Throttled: a[9] == 1, Backoff: us(a[10]), Successes: a[11], Failed: a[12], Late: a[13],
		Pause: us(a[14]), NewPause: a[15] == 1, Resume: a[16] == 1, Resumes: a[17], Count: a[18], Held: us(a[19]),
	}
	if a[20] >= 0 {
		q.QuotaAge = us(a[20])
		q.Quota = &cruise.Quota{Limit: int(a[21]), Remaining: int(a[22]), Reset: us(a[23])}
	}
	return q
}

// decisionOf is the inverse of Decided.
func decisionOf(a []int64, law string) shared.Decision {
	return shared.Decision{
		Step: a[0], Rate: a[1], Ceiling: a[2], Why: a[3], Level: a[4], Row: a[5],
		Pause: time.Duration(a[6]) * time.Microsecond, Void: a[7] == 1, Law: []byte(law),
	}
}

// drain checks the log, and empties it.
func (h *history) drain(t *testing.T, c *redis.Client, scope string) {
	t.Helper()
	key := cruiseredis.KeyOf(scope) + " log"
	for {
		lines, err := c.LPopCount(t.Context(), key, 999).Result()
		if len(lines) == 0 {
			require.True(t, err == nil || err == redis.Nil, "%v", err)
			return
		}
		for run := range slices.Chunk(lines, 3) {
			require.NoError(t, h.step(run[0], run[1], run[2]))
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
		require.Equal(t, min(steps, done+batch)/askers*askers, h.requests)
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
		times := []*time.Duration{&q.Backoff, &q.Pause, &q.Held, &q.QuotaAge}
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
		q.Law = shared.Law{Min: q.Law.Min, Max: q.Law.Max, Initial: q.Law.Initial, Burst: q.Law.Burst} // Redis needs no more
		require.Equal(t, q, requestOf(words))
	}
}
