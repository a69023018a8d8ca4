package benchmarks

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/avast/retry-go/v5"
	awsretry "github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/cenkalti/backoff/v7"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	sethvargo "github.com/sethvargo/go-retry"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

// A rate that never makes anyone wait, so that what is measured is the cost of
// asking.
const (
	plenty rate.Limit = 1e9
	burst             = 1 << 30
)

func succeed(context.Context) error { return nil }

// A way makes calls that succeed at once; make returns what makes one.
type way struct {
	by   string
	make func() func(context.Context) error
}

func do(opts ...cruise.Option) func() func(context.Context) error {
	return func() func(context.Context) error {
		r := cruise.Must(cruise.New(opts...))
		return func(ctx context.Context) error { return r.Do(ctx, succeed) }
	}
}

func runs(policies ...func() failsafe.Policy[any]) func() func(context.Context) error {
	return func() func(context.Context) error {
		list := []failsafe.Policy[any]{retrypolicy.NewBuilder[any]().WithBackoff(time.Second, time.Minute).Build()}
		for _, p := range policies {
			list = append(list, p())
		}
		executor := failsafe.With(list...)
		return func(ctx context.Context) error {
			return executor.WithContext(ctx).RunWithExecution(func(x failsafe.Execution[any]) error { return succeed(x.Context()) })
		}
	}
}

// jobs are what people use such a library for.
var jobs = []struct {
	name string
	ways []way
}{
	{"retry", []way{
		{"cruise", do(cruise.WithoutLimiter())},
		{"avast", func() func(context.Context) error {
			r := retry.New()
			return func(ctx context.Context) error { return r.Do(func() error { return succeed(ctx) }) }
		}},
		{"sethvargo", func() func(context.Context) error {
			return func(ctx context.Context) error {
				return sethvargo.Do(ctx, sethvargo.WithMaxRetries(4, sethvargo.NewExponential(time.Second)), succeed)
			}
		}},
		{"cenkalti", func() func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, succeed(ctx) })
				return err
			}
		}},
		{"failsafe", runs()},
	}},
	{"retry+limiter", []way{
		{"cruise", func() func(context.Context) error {
			return do(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(plenty, math.MaxInt32))))()
		}},
		{"xtime+cenkalti", func() func(context.Context) error {
			l := rate.NewLimiter(plenty, burst)
			return func(ctx context.Context) error {
				_, err := backoff.Retry(ctx, func() (struct{}, error) {
					if err := l.Wait(ctx); err != nil {
						return struct{}{}, err
					}
					return struct{}{}, succeed(ctx)
				})
				return err
			}
		}},
		{"failsafe", runs(func() failsafe.Policy[any] {
			return ratelimiter.NewBurstyBuilder[any](math.MaxInt32, time.Second).WithMaxWaitTime(time.Minute).Build()
		})},
	}},
	{"adaptive", []way{
		{"cruise-unpaced", do()},
		{"cruise-paced", do(cruise.WithInitialRate(plenty), cruise.WithTuning(cruise.Tuning{Burst: burst}))},
		{"xtime-wait", func() func(context.Context) error {
			l := rate.NewLimiter(plenty, burst)
			return func(ctx context.Context) error {
				if err := l.Wait(ctx); err != nil {
					return err
				}
				return succeed(ctx)
			}
		}},
		{"aws", func() func(context.Context) error {
			mode := awsretry.NewAdaptiveMode()
			return func(ctx context.Context) error {
				release, err := mode.GetAttemptToken(ctx)
				if err != nil {
					return err
				}
				return release(succeed(ctx))
			}
		}},
		{"failsafe", runs(func() failsafe.Policy[any] {
			return adaptivelimiter.NewBuilder[any]().WithLimits(1<<20, 1<<21, 1<<20).WithMaxWaitTime(-1).Build()
		})},
	}},
}

// BenchmarkCall is a call that succeeds at once, by everyone who does the job.
// Goroutines share what is made once.
func BenchmarkCall(b *testing.B) {
	for _, job := range jobs {
		for _, goroutines := range []int{1, 2, 8, 1000} {
			for _, way := range job.ways {
				b.Run(fmt.Sprintf("job=%s/goroutines=%d/by=%s", job.name, goroutines, way.by), func(b *testing.B) {
					ctx := b.Context()
					call := way.make()
					b.ReportAllocs()
					if goroutines == 1 {
						for b.Loop() {
							if err := call(ctx); err != nil {
								b.Fatal(err)
							}
						}
						return
					}
					inParallel(b, goroutines, func(pb *testing.PB) {
						for pb.Next() {
							if err := call(ctx); err != nil {
								b.Error(err)
								return
							}
						}
					})
				})
			}
		}
	}
}

// inParallel runs body in that many goroutines. RunParallel knows multiples of
// GOMAXPROCS only.
func inParallel(b *testing.B, goroutines int, body func(*testing.PB)) {
	if procs := runtime.GOMAXPROCS(0); procs > goroutines {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(goroutines))
	}
	procs := runtime.GOMAXPROCS(0)
	b.SetParallelism((goroutines + procs - 1) / procs)
	b.RunParallel(body)
}

const crowd = 100_000

// BenchmarkQueue has 100,000 callers come at once to a limiter of a million a
// second, which would have let them all go after 100 ms.
func BenchmarkQueue(b *testing.B) {
	const limit rate.Limit = 1e6
	for _, way := range []struct {
		by   string
		make func() cruise.Limiter
	}{
		{"cruise", func() cruise.Limiter { return cruise.Must(cruise.NewTokenBucket(limit, 1)) }},
		{"xtime", func() cruise.Limiter { return rate.NewLimiter(limit, 1) }},
	} {
		b.Run("by="+way.by, func(b *testing.B) {
			for b.Loop() {
				l := way.make()
				var all sync.WaitGroup
				for range crowd {
					all.Go(func() {
						if err := l.WaitN(b.Context(), 1); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/crowd, "ns/waiter")
		})
	}
}

// BenchmarkCancel has 100,000 callers wait for a limiter, cancels them all at
// once, and measures how long it takes until the last of them has returned, and
// how long the next caller then waits: its own turn is 20 ms after the pause
// that kept the others.
func BenchmarkCancel(b *testing.B) {
	const turn = 20 * time.Millisecond
	for b.Loop() {
		b.StopTimer()
		l := cruise.Must(cruise.NewTokenBucket(rate.Every(turn), 1))
		if err := l.WaitN(b.Context(), 1); err != nil { // the only token
			b.Fatal(err)
		}
		l.Pause(time.Hour)
		ctx, cancel := context.WithCancel(b.Context())
		var all sync.WaitGroup
		for range crowd {
			all.Go(func() { _ = l.WaitN(ctx, 1) })
		}
		for l.Waiting() < crowd {
			time.Sleep(time.Millisecond)
		}
		b.StartTimer()
		cancel()
		all.Wait()
		b.StopTimer()
		l.Resume()
		began := time.Now()
		if err := l.WaitN(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-next-turn")
		b.StartTimer()
	}
}

// BenchmarkMemory is what stays allocated: for each thing made, and for each
// caller that waits, its goroutine included.
func BenchmarkMemory(b *testing.B) {
	for _, way := range []struct {
		what, by string
		make     func() any
	}{
		{"retrier", "cruise", func() any { return cruise.Must(cruise.New()) }},
		{"retrier", "aws", func() any { return awsretry.NewAdaptiveMode() }},
		{"retrier", "failsafe", func() any {
			return failsafe.With[any](retrypolicy.NewWithDefaults[any](), adaptivelimiter.NewWithDefaults[any]())
		}},
	} {
		b.Run("of="+way.what+"/by="+way.by, func(b *testing.B) {
			const many = 1000
			kept := make([]any, many)
			for b.Loop() {
				before := inUse()
				for i := range kept {
					kept[i] = way.make()
				}
				b.ReportMetric(float64(inUse()-before)/many, "B/each")
				clear(kept)
			}
		})
	}
	b.Run("of=scope/by=cruise", func(b *testing.B) {
		const many = 10_000
		for b.Loop() {
			r := cruise.Must(cruise.New())
			before := inUse()
			for i := range many {
				if err := r.Scope("ACCOUNT", fmt.Sprint(i)).Do(b.Context(), succeed); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(inUse()-before)/many, "B/each")
			runtime.KeepAlive(r)
		}
	})
	for _, way := range []struct {
		by   string
		make func() cruise.Limiter
	}{
		{"cruise", func() cruise.Limiter { return cruise.Must(cruise.NewTokenBucket(1e-3, 1)) }},
		{"xtime", func() cruise.Limiter { return rate.NewLimiter(1e-3, 1) }},
	} {
		b.Run("of=waiter/by="+way.by, func(b *testing.B) {
			const many = 10_000
			for b.Loop() {
				l := way.make()
				if err := l.WaitN(b.Context(), 1); err != nil { // the only token
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				before := inUse()
				var all sync.WaitGroup
				for range many {
					all.Go(func() { _ = l.WaitN(ctx, 1) })
				}
				time.Sleep(100 * time.Millisecond) // until they all wait
				b.ReportMetric(float64(inUse()-before)/many, "B/each")
				cancel()
				all.Wait()
			}
		})
	}
}

// inUse is the memory in use, of heap and stacks.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
