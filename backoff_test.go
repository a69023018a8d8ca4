package cruise

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"
)

const ms = time.Millisecond

var justBelow1 = math.Nextafter(1, 0)

var everyJitter = map[string]BackoffOption{
	"full":             FullJitter(),
	"equal":            EqualJitter(),
	"decorrelated":     DecorrelatedJitter(),
	"none":             NoJitter(),
	"proportional 0":   ProportionalJitter(0),
	"proportional 0.2": ProportionalJitter(0.2),
	"proportional 1":   ProportionalJitter(1),
	"additive 0":       AdditiveJitter(0),
	"additive 500ms":   AdditiveJitter(500 * ms),
}

// The retries at which shifts, powers and products overflow in one or another
// way of computing a delay.
var farRetries = []int{63, 64, 65, 1000, 1 << 20, math.MaxInt32, math.MaxInt - 1, math.MaxInt}

func TestBackoffDelay(t *testing.T) {
	for _, tt := range []struct {
		name              string
		jitter            BackoffOption
		retry             int
		previous          time.Duration
		least, mean, most time.Duration // at u = 0, 0.5 and just below 1
	}{
		{"full, first", FullJitter(), 1, 0, 0, 50 * ms, 100 * ms},
		{"full, fifth", FullJitter(), 5, 0, 0, 800 * ms, 1600 * ms},
		{"full, capped", FullJitter(), 9, 0, 0, 10 * time.Second, 20 * time.Second},
		{"full by default", WithMultiplier(2), 5, 0, 0, 800 * ms, 1600 * ms},

		{"equal, first", EqualJitter(), 1, 0, 50 * ms, 75 * ms, 100 * ms},
		{"equal, fifth", EqualJitter(), 5, 0, 800 * ms, 1200 * ms, 1600 * ms},
		{"equal, capped", EqualJitter(), 9, 0, 10 * time.Second, 15 * time.Second, 20 * time.Second},

		{"decorrelated, first", DecorrelatedJitter(), 1, 0, 100 * ms, 200 * ms, 300 * ms},
		{"decorrelated, retry does not matter", DecorrelatedJitter(), 5, 0, 100 * ms, 200 * ms, 300 * ms},
		{"decorrelated, after 1s", DecorrelatedJitter(), 2, time.Second, 100 * ms, 1550 * ms, 3 * time.Second},
		{"decorrelated, after less than the base", DecorrelatedJitter(), 2, ms, 100 * ms, 200 * ms, 300 * ms},
		{"decorrelated, after a negative delay", DecorrelatedJitter(), 2, math.MinInt64, 100 * ms, 200 * ms, 300 * ms},
		{"decorrelated, capped", DecorrelatedJitter(), 9, 20 * time.Second, 100 * ms, 10050 * ms, 20 * time.Second},
		{"decorrelated, after the longest delay", DecorrelatedJitter(), 9, math.MaxInt64, 100 * ms, 10050 * ms, 20 * time.Second},

		{"none, first", NoJitter(), 1, 0, 100 * ms, 100 * ms, 100 * ms},
		{"none, fifth", NoJitter(), 5, 0, 1600 * ms, 1600 * ms, 1600 * ms},
		{"none, capped", NoJitter(), 9, 0, 20 * time.Second, 20 * time.Second, 20 * time.Second},

		{"proportional, first", ProportionalJitter(0.25), 1, 0, 75 * ms, 100 * ms, 125 * ms},
		{"proportional, fifth", ProportionalJitter(0.25), 5, 0, 1200 * ms, 1600 * ms, 2 * time.Second},
		{"proportional, capped", ProportionalJitter(0.25), 9, 0, 12 * time.Second, 16 * time.Second, 20 * time.Second},
		{"proportional, rounded to the nearest", ProportionalJitter(0.9), 1, 0, 10 * ms, 100 * ms, 190 * ms},
		{"proportional 1, capped", ProportionalJitter(1), 9, 0, 0, 10 * time.Second, 20 * time.Second},

		{"additive, first", AdditiveJitter(time.Second), 1, 0, 100 * ms, 600 * ms, 1100 * ms},
		{"additive, fifth", AdditiveJitter(time.Second), 5, 0, 1600 * ms, 2100 * ms, 2600 * ms},
		{"additive, capped", AdditiveJitter(time.Second), 9, 0, 19 * time.Second, 19500 * ms, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := Must(NewBackoff(tt.jitter))
			retries := []int{tt.retry}
			switch tt.retry {
			case 1: // what is below the first retry counts as the first
				retries = append(retries, 0, -1, math.MinInt)
			case 9: // the cap is reached, and never left again
				retries = append(retries, farRetries...)
			}
			for _, retry := range retries {
				if got := b.at(retry, tt.previous, 0); got != tt.least {
					t.Errorf("retry %d at u = 0: got %v, want %v", retry, got, tt.least)
				}
				if got := b.at(retry, tt.previous, 0.5); got != tt.mean {
					t.Errorf("retry %d at u = 0.5: got %v, want %v", retry, got, tt.mean)
				}
				if got := b.at(retry, tt.previous, justBelow1); got > tt.most || got < tt.most-1 {
					t.Errorf("retry %d at u just below 1: got %v, want %v or 1ns less", retry, got, tt.most)
				}
			}
		})
	}
}

func TestBackoffGrowth(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	for _, tt := range []struct {
		name    string
		backoff Backoff
		retry   int
		want    time.Duration
	}{
		{"default, 8th", Must(NewBackoff()), 8, 12800 * ms},
		{"default, 9th", Must(NewBackoff()), 9, 20 * time.Second},
		{"multiplier 1.5", Must(NewBackoff(WithMultiplier(1.5))), 3, 225 * ms},
		{"multiplier 1", Must(NewBackoff(WithMultiplier(1))), math.MaxInt, 100 * ms},
		{"multiplier just above 1", Must(NewBackoff(WithMultiplier(math.Nextafter(1, 2)))), 1000, 100 * ms},
		{"largest multiplier, first", Must(NewBackoff(WithMultiplier(math.MaxFloat64))), 1, 100 * ms},
		{"largest multiplier", Must(NewBackoff(WithMultiplier(math.MaxFloat64))), 2, 20 * time.Second},
		{"largest multiplier, overflown", Must(NewBackoff(WithMultiplier(math.MaxFloat64))), 3, 20 * time.Second},
		{"longest maximum, 63rd", Must(NewBackoff(WithBase(1), WithMaxDelay(longest))), 63, 1 << 62},
		{"longest maximum, 64th", Must(NewBackoff(WithBase(1), WithMaxDelay(longest))), 64, longest},
		{"longest maximum, last", Must(NewBackoff(WithBase(1), WithMaxDelay(longest))), math.MaxInt, longest},
		{"base is the maximum", Must(NewBackoff(WithBase(20 * time.Second))), 1, 20 * time.Second},
		{"longest base", Must(NewBackoff(WithBase(longest), WithMaxDelay(longest))), 2, longest},
		{"linear, first", Must(LinearBackoff(time.Second, 5*time.Second)), 1, time.Second},
		{"linear, third", Must(LinearBackoff(time.Second, 5*time.Second)), 3, 3 * time.Second},
		{"linear, capped", Must(LinearBackoff(time.Second, 5*time.Second)), 6, 5 * time.Second},
		{"linear, last", Must(LinearBackoff(longest, longest)), math.MaxInt, longest},
		{"constant", Must(ConstantBackoff(time.Second)), 7, time.Second},
		{"constant, last", Must(ConstantBackoff(time.Second)), math.MaxInt, time.Second},
		{"zero Backoff", Backoff{}, 1, 0},
		{"zero Backoff, last", Backoff{}, math.MaxInt, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.backoff.grown(tt.retry); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestBackoffZero(t *testing.T) {
	var b Backoff
	if d := b.Delay(3, time.Second); d != 0 {
		t.Errorf("waits %v", d)
	}
	if n := b.Retries(); n != 0 {
		t.Errorf("gives up after %d retries", n)
	}
}

func TestBackoffPresets(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		name    string
		backoff Backoff
		retries int
		want    [][2]time.Duration // least, most
	}{
		{"Google", GoogleBackoff(), 5, [][2]time.Duration{
			{1 * second, 2 * second}, {2 * second, 3 * second}, {4 * second, 5 * second}, {8 * second, 9 * second}, {16 * second, 17 * second}}},
		{"AWS", AWSBackoff(), 2, [][2]time.Duration{
			{0, 50 * ms}, {0, 100 * ms}}},
		{"AWS, throttled", Must(NewBackoff(WithBase(time.Second), WithRetries(2))), 2, [][2]time.Duration{
			{0, second}, {0, 2 * second}}},
		{"linear", Must(LinearBackoff(second, 3*second)), 0, [][2]time.Duration{
			{second, second}, {2 * second, 2 * second}, {3 * second, 3 * second}, {3 * second, 3 * second}}},
		{"linear with options", Must(LinearBackoff(second, 3*second, FullJitter(), WithRetries(2))), 2, [][2]time.Duration{
			{0, second}, {0, 2 * second}}},
		{"constant", Must(ConstantBackoff(second)), 0, [][2]time.Duration{
			{second, second}, {second, second}, {second, second}}},
		{"constant with room for jitter", Must(ConstantBackoff(second, WithMaxDelay(2*second), ProportionalJitter(0.5))), 0, [][2]time.Duration{
			{500 * ms, 1500 * ms}, {500 * ms, 1500 * ms}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.backoff.Retries(); got != tt.retries {
				t.Errorf("gives up after %d retries, want %d", got, tt.retries)
			}
			n := len(tt.want)
			if tt.retries > 0 {
				n = 100
			}
			schedule := tt.backoff.Schedule(n)
			if len(schedule) != len(tt.want) {
				t.Fatalf("%d rows, want %d", len(schedule), len(tt.want))
			}
			for i, row := range schedule {
				if got := [2]time.Duration{row.Least, row.Most}; got != tt.want[i] {
					t.Errorf("retry %d: got %v, want %v", row.Retry, got, tt.want[i])
				}
			}
			// A preset is what its options would make of it, so they hold there too.
			if _, err := tt.backoff.with(nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// The cap applies before jitter, as in the SDK, even past the SDK's own retries.
func TestBackoffAWSCap(t *testing.T) {
	for _, b := range []Backoff{AWSBackoff(), Must(NewBackoff(WithBase(time.Second), WithRetries(2)))} {
		for _, retry := range farRetries {
			if least, most := b.bounds(retry); least != 0 || most != 20*time.Second {
				t.Errorf("retry %d: from %v to %v", retry, least, most)
			}
		}
	}
}

// Where all is jitter, it takes nothing to grow.
func TestBackoffOfJitterAlone(t *testing.T) {
	b := Must(NewBackoff(WithBase(time.Second), WithMaxDelay(time.Second), AdditiveJitter(time.Second)))
	for _, retry := range []int{1, 2, 100} {
		if least, most := b.bounds(retry); least != 0 || most != time.Second {
			t.Errorf("retry %d: from %v to %v", retry, least, most)
		}
	}
}

func TestBackoffErrors(t *testing.T) {
	const second = time.Second
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name string
		opts []BackoffOption
		want []string // one a line
	}{
		{"base 0", []BackoffOption{WithBase(0)}, []string{"WithBase(0s): want above 0"}},
		{"base negative", []BackoffOption{WithBase(-second)}, []string{"WithBase(-1s): want above 0"}},
		{"base above the maximum", []BackoffOption{WithBase(30 * second)}, []string{"WithMaxDelay(20s): want at least the base of 30s: raise it, or lower WithBase"}},
		{"maximum 0", []BackoffOption{WithMaxDelay(0)}, []string{"WithMaxDelay(0s): want above 0"}},
		{"maximum negative", []BackoffOption{WithMaxDelay(-1)}, []string{"WithMaxDelay(-1ns): want above 0"}},
		{"maximum below the base", []BackoffOption{WithMaxDelay(ms)}, []string{"WithMaxDelay(1ms): want at least the base of 100ms: raise it, or lower WithBase"}},
		{"multiplier 0", []BackoffOption{WithMultiplier(0)}, []string{"WithMultiplier(0): want 1 or more, and finite"}},
		{"multiplier below 1", []BackoffOption{WithMultiplier(0.99)}, []string{"WithMultiplier(0.99): want 1 or more, and finite"}},
		{"multiplier negative", []BackoffOption{WithMultiplier(-2)}, []string{"WithMultiplier(-2): want 1 or more, and finite"}},
		{"multiplier NaN", []BackoffOption{WithMultiplier(nan)}, []string{"WithMultiplier(NaN): want 1 or more, and finite"}},
		{"multiplier Inf", []BackoffOption{WithMultiplier(inf)}, []string{"WithMultiplier(+Inf): want 1 or more, and finite"}},
		{"share negative", []BackoffOption{ProportionalJitter(-0.1)}, []string{"ProportionalJitter(-0.1): want 0 to 1"}},
		{"share above 1", []BackoffOption{ProportionalJitter(1.1)}, []string{"ProportionalJitter(1.1): want 0 to 1"}},
		{"share NaN", []BackoffOption{ProportionalJitter(nan)}, []string{"ProportionalJitter(NaN): want 0 to 1"}},
		{"share Inf", []BackoffOption{ProportionalJitter(inf)}, []string{"ProportionalJitter(+Inf): want 0 to 1"}},
		{"extra negative", []BackoffOption{AdditiveJitter(-1)}, []string{"AdditiveJitter(-1ns): want 0 or more"}},
		{"extra above the maximum", []BackoffOption{AdditiveJitter(21 * second)}, []string{"AdditiveJitter(21s): want at most the maximum of 20s, see WithMaxDelay"}},
		{"retries 0", []BackoffOption{WithRetries(0)}, []string{"WithRetries(0): want 1 or more; leave it out for no limit"}},
		{"retries negative", []BackoffOption{WithRetries(-1)}, []string{"WithRetries(-1): want 1 or more; leave it out for no limit"}},
		{"nil option", []BackoffOption{WithBase(1), nil}, []string{"option 2 is nil"}},
		{"bad and then good", []BackoffOption{WithBase(0), WithBase(1)}, []string{"WithBase(0s): want above 0"}},
		{
			"everything",
			[]BackoffOption{WithBase(-1), nil, WithMultiplier(nan), ProportionalJitter(2), WithRetries(-7), WithMaxDelay(-1)},
			[]string{
				"WithBase(-1ns): want above 0",
				"option 2 is nil",
				"WithMultiplier(NaN): want 1 or more, and finite",
				"ProportionalJitter(2): want 0 to 1",
				"WithRetries(-7): want 1 or more; leave it out for no limit",
				"WithMaxDelay(-1ns): want above 0",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := NewBackoff(tt.opts...)
			checkError(t, b, err, "cruise: "+strings.Join(tt.want, "\ncruise: "))
		})
	}

	t.Run("linear, step 0", func(t *testing.T) {
		b, err := LinearBackoff(0, second)
		checkError(t, b, err, "cruise: LinearBackoff(0s, 1s): want a step above 0 and at most the maximum")
	})
	t.Run("linear, maximum below the step", func(t *testing.T) {
		b, err := LinearBackoff(second, ms)
		checkError(t, b, err, "cruise: LinearBackoff(1s, 1ms): want a step above 0 and at most the maximum")
	})
	t.Run("linear, bad option", func(t *testing.T) {
		b, err := LinearBackoff(ms, second, WithRetries(0))
		checkError(t, b, err, "cruise: WithRetries(0): want 1 or more; leave it out for no limit")
	})
	t.Run("constant, negative", func(t *testing.T) {
		b, err := ConstantBackoff(-second)
		checkError(t, b, err, "cruise: ConstantBackoff(-1s): want above 0")
	})
}

func checkError(t *testing.T, b Backoff, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got error:\n%v\nwant:\n%s", err, want)
	}
	if b != (Backoff{}) {
		t.Errorf("got %+v along with the error", b)
	}
}

// At the maximum a crowd must not line up: no 1 % of the range may hold much
// more than 1 % of the delays, and the range must be wide.
func TestBackoffSpreadsAtTheMaximum(t *testing.T) {
	const draws = 10_000
	for name, jitter := range everyJitter {
		if name == "none" || strings.HasSuffix(name, " 0") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := Must(NewBackoff(WithMaxDelay(time.Second), jitter))
			var bins [100]int
			least, most := b.bounds(1000)
			if most != time.Second || most-least < 300*ms {
				t.Fatalf("from %v to %v", least, most)
			}
			for i := range draws {
				d := b.at(1000, time.Second, (float64(i)+0.5)/draws)
				bins[min(99, int(100*float64(d-least)/float64(most-least)))]++
			}
			for i, n := range bins {
				if n < draws/100-1 || n > draws/100+1 {
					t.Errorf("%d of %d delays are in part %d of 100", n, draws, i+1)
				}
			}
		})
	}
}

func TestBackoffDelayIsRandom(t *testing.T) {
	b, seen := Must(NewBackoff()), make(map[time.Duration]bool)
	for range 100 {
		d := b.Delay(9, 0)
		if d < 0 || d > 20*time.Second {
			t.Fatal(d)
		}
		seen[d] = true
	}
	if len(seen) < 99 {
		t.Errorf("%d different delays of 100", len(seen))
	}
}

// A chain of decorrelated delays stays in the schedule, and can get to its ends.
func TestBackoffDecorrelatedChain(t *testing.T) {
	b := Must(NewBackoff(DecorrelatedJitter()))
	for range 100 {
		var d time.Duration
		for _, row := range b.Schedule(20) {
			if d = b.Delay(row.Retry, d); d < row.Least || d > row.Most {
				t.Fatalf("retry %d waits %v, outside %v to %v", row.Retry, d, row.Least, row.Most)
			}
		}
	}
	want := []time.Duration{300 * ms, 900 * ms, 2700 * ms, 8100 * ms, 20 * time.Second, 20 * time.Second}
	for i, row := range b.Schedule(len(want)) {
		if row.Least != 100*ms || row.Most != want[i] {
			t.Errorf("retry %d: from %v to %v, want %v to %v", row.Retry, row.Least, row.Most, 100*ms, want[i])
		}
	}
}

func TestBackoffSchedule(t *testing.T) {
	b := Must(NewBackoff(WithRetries(3)))
	for n, want := range map[int]int{math.MinInt: 0, -1: 0, 0: 0, 1: 1, 3: 3, 4: 3, math.MaxInt: 3} {
		if got := len(b.Schedule(n)); got != want {
			t.Errorf("Schedule(%d) has %d rows, want %d", n, got, want)
		}
	}

	if got := len(Must(NewBackoff(WithRetries(1))).Schedule(2)); got != 1 {
		t.Errorf("%d rows for one retry", got)
	}
	if got := len(Must(NewBackoff()).Schedule(math.MaxInt)); got != 10_000 {
		t.Errorf("%d rows where retries have no end", got)
	}

	b = Must(ConstantBackoff(1<<62, EqualJitter()))
	last := b.Schedule(5)[4]
	if last.TotalLeast != math.MaxInt64 || last.TotalMost != math.MaxInt64 {
		t.Errorf("totals overflow: %+v", last)
	}
}

func TestFourDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                          "0s",
		9_999:                      "9.999µs",
		16 * time.Second:           "16s",
		1_234_567 * ms:             "20m35s",
		6_666_666_667:              "6.667s",
		time.Hour + 61*time.Second: "1h1m1s",
		math.MaxInt64:              "2561944h26m40s",
	} {
		if got := fourDigits(d).String(); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestBackoffIsShared(t *testing.T) {
	b := Must(NewBackoff(DecorrelatedJitter()))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var d time.Duration
			for retry := range 1000 {
				d = b.Delay(retry, d)
			}
		})
	}
	wg.Wait()
}

func TestBackoffDelayAllocatesNothing(t *testing.T) {
	b := Must(NewBackoff())
	if n := testing.AllocsPerRun(100, func() { b.Delay(5, time.Second) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMust(t *testing.T) {
	if got := Must(1, nil); got != 1 {
		t.Errorf("got %d", got)
	}
	err := errors.New("no")
	defer func() {
		if got := recover(); got != err {
			t.Errorf("panic of %v, want %v", got, err)
		}
	}()
	Must(1, err)
}

// FuzzBackoffDelay checks the arithmetic against what the options promise, for
// every jitter.
func FuzzBackoffDelay(f *testing.F) {
	f.Add(int64(1), int64(math.MaxInt64), int64(math.MaxInt64-1), 1.0, 0.0, int64(1<<62-1), 2, int64(1<<61+1), 1.0)
	for _, retry := range append([]int{math.MinInt, 0, 1, 5}, farRetries...) {
		f.Add(int64(100*ms), int64(20*time.Second), int64(0), 2.0, 0.5, int64(time.Second), retry, int64(time.Second), 0.5)
		f.Add(int64(1), int64(math.MaxInt64), int64(1), 1.5, 1.0, int64(math.MaxInt64), retry, int64(math.MaxInt64), 1.0)
	}
	f.Fuzz(func(t *testing.T, base, most, step int64, multiplier, share float64, extra int64, retry int, previous int64, u float64) {
		if !(u >= 0) {
			u = 0
		}
		u = min(u, justBelow1)
		for _, jitter := range []BackoffOption{
			FullJitter(), EqualJitter(), DecorrelatedJitter(), NoJitter(), ProportionalJitter(share), AdditiveJitter(time.Duration(extra)),
		} {
			for _, newBackoff := range []func() (Backoff, error){
				func() (Backoff, error) {
					return NewBackoff(WithBase(time.Duration(base)), WithMaxDelay(time.Duration(most)), WithMultiplier(multiplier), jitter)
				},
				func() (Backoff, error) {
					return LinearBackoff(time.Duration(step), time.Duration(most), jitter)
				},
			} {
				b, err := newBackoff()
				if err != nil {
					continue
				}
				checkDelay(t, b, retry, time.Duration(previous), u)
			}
		}
	})
}

func checkDelay(t *testing.T, b Backoff, retry int, previous time.Duration, u float64) {
	t.Helper()
	d := b.at(retry, previous, u)
	if d < 0 || d > b.max {
		t.Fatalf("%+v: retry %d after %v at %v waits %v", b, retry, previous, u, d)
	}
	if lower := b.at(retry, previous, u/2); lower > d {
		t.Fatalf("%+v: retry %d waits %v at %v, but %v at %v", b, retry, d, u, lower, u/2)
	}
	least, most := b.bounds(retry)
	if least < 0 || least > most || most > b.max {
		t.Fatalf("%+v: retry %d waits from %v to %v", b, retry, least, most)
	}
	// Decorrelated jitter is bound to the schedule only if the previous delay was.
	if _, longest := b.bounds(max(1, retry) - 1); b.jitter.kind == decorrelatedJitter && (retry > 1 && previous > longest || retry <= 1 && previous > b.base) {
		least, most = b.base, b.max
	}
	if d < least || d > most {
		t.Fatalf("%+v: retry %d after %v at %v waits %v, outside %v to %v", b, retry, previous, u, d, least, most)
	}
	if nextLeast, nextMost := b.bounds(retry + min(1, math.MaxInt-max(retry, 0))); nextLeast < least || nextMost < most && b.jitter.kind != decorrelatedJitter {
		t.Fatalf("%+v: retry %d waits from %v to %v, but the next from %v to %v", b, retry, least, most, nextLeast, nextMost)
	}
	var totalLeast, totalMost time.Duration
	var chain time.Duration
	for _, row := range b.Schedule(min(retry, 70)) {
		chain = b.at(row.Retry, chain, u)
		if chain < row.Least || chain > row.Most {
			t.Fatalf("%+v: retry %d waits %v, outside %v to %v", b, row.Retry, chain, row.Least, row.Most)
		}
		if row.TotalLeast < totalLeast || row.TotalMost < totalMost || row.TotalLeast > row.TotalMost {
			t.Fatalf("%+v: totals of %+v follow %v and %v", b, row, totalLeast, totalMost)
		}
		totalLeast, totalMost = row.TotalLeast, row.TotalMost
	}
}

// FuzzBackoffOptions checks that options are accepted exactly if they are in
// range, and that every error names the option it is about.
func FuzzBackoffOptions(f *testing.F) {
	f.Add(int64(100*ms), int64(20*time.Second), 2.0, 0.5, int64(time.Second), 3)
	f.Add(int64(0), int64(-1), 0.0, -1.0, int64(-1), 0)
	f.Add(int64(2), int64(1), math.NaN(), math.NaN(), int64(2), -1)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), math.Inf(1), math.Inf(-1), int64(math.MinInt64), math.MinInt)
	f.Fuzz(func(t *testing.T, base, most int64, multiplier, share float64, extra int64, retries int) {
		for kind, jitter := range map[jitterKind]BackoffOption{
			proportionalJitter: ProportionalJitter(share), additiveJitter: AdditiveJitter(time.Duration(extra)),
		} {
			b, err := NewBackoff(WithBase(time.Duration(base)), WithMaxDelay(time.Duration(most)), WithMultiplier(multiplier), jitter, WithRetries(retries))
			badShare := kind == proportionalJitter && (math.IsNaN(share) || share < 0 || share > 1)
			badExtra := kind == additiveJitter && (extra < 0 || most > 0 && base > 0 && extra > most)
			for name, bad := range map[string]bool{
				"WithBase(":           base <= 0,
				"WithMaxDelay(":       most <= 0 || most < base,
				"WithMultiplier(":     math.IsNaN(multiplier) || math.IsInf(multiplier, 0) || multiplier < 1,
				"ProportionalJitter(": badShare,
				"AdditiveJitter(":     badExtra,
				"WithRetries(":        retries < 1,
			} {
				if named := err != nil && strings.Contains(err.Error(), "cruise: "+name); named != bad {
					t.Errorf("%s…) is bad: %v, is in the error: %v: %v", name, bad, named, err)
				}
			}
			if err != nil && b != (Backoff{}) {
				t.Errorf("got %+v along with %v", b, err)
			}
			if err == nil && b.Retries() != retries {
				t.Errorf("gives up after %d retries, want %d", b.Retries(), retries)
			}
		}
	})
}

func BenchmarkBackoffDelay(b *testing.B) {
	for _, bb := range []struct {
		name   string
		jitter BackoffOption
	}{
		{"full", FullJitter()},
		{"decorrelated", DecorrelatedJitter()},
		{"proportional", ProportionalJitter(0.2)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			backoff := Must(NewBackoff(bb.jitter))
			b.ReportAllocs()
			for b.Loop() {
				backoff.Delay(5, time.Second)
			}
		})
	}
	b.Run("last retry", func(b *testing.B) {
		backoff := Must(NewBackoff())
		b.ReportAllocs()
		for b.Loop() {
			backoff.Delay(math.MaxInt, time.Second)
		}
	})
}
