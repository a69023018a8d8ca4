package benchmarks

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/avast/retry-go/v5"
	awsretry "github.com/aws/aws-sdk-go-v2/aws/retry"
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

// BenchmarkRetry is a call that succeeds at once, without any limiter.
func BenchmarkRetry(b *testing.B) {
	ctx := context.Background()
	b.Run("by=cruise", func(b *testing.B) {
		r := cruise.Must(cruise.New(cruise.WithoutLimiter()))
		b.ReportAllocs()
		for b.Loop() {
			if err := r.Do(ctx, succeed); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("by=avast", func(b *testing.B) {
		r := retry.New()
		fn := func() error { return nil }
		b.ReportAllocs()
		for b.Loop() {
			if err := r.Do(fn); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// limited are the ways to make a call that succeeds at once through a limiter
// that need not wait. Each returns a function that makes one call.
var limited = []struct {
	name string
	make func() func(context.Context) error
}{
	{"cruise-unpaced", func() func(context.Context) error {
		r := cruise.Must(cruise.New())
		return func(ctx context.Context) error { return r.Do(ctx, succeed) }
	}},
	{"cruise-paced", func() func(context.Context) error {
		r := cruise.Must(cruise.New(cruise.WithInitialRate(plenty), cruise.WithBurst(burst)))
		return func(ctx context.Context) error { return r.Do(ctx, succeed) }
	}},
	{"xtime-wait", func() func(context.Context) error {
		l := rate.NewLimiter(plenty, burst)
		return func(ctx context.Context) error {
			if err := l.Wait(ctx); err != nil {
				return err
			}
			return succeed(ctx)
		}
	}},
	{"aws-adaptive", func() func(context.Context) error {
		mode := awsretry.NewAdaptiveMode()
		return func(ctx context.Context) error {
			release, err := mode.GetAttemptToken(ctx)
			if err != nil {
				return err
			}
			return release(succeed(ctx))
		}
	}},
}

func BenchmarkLimited(b *testing.B) {
	for _, goroutines := range []int{1, 2, 8} {
		for _, way := range limited {
			b.Run(fmt.Sprintf("goroutines=%d/by=%s", goroutines, way.name), func(b *testing.B) {
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

// BenchmarkCancel has 100,000 callers wait for a limiter, cancels them all at
// once, and measures how long it takes until the last of them has returned, and
// how long the next caller then waits: its own turn is 20 ms after the pause
// that kept the others.
func BenchmarkCancel(b *testing.B) {
	const waiters, turn = 100_000, 20 * time.Millisecond
	for b.Loop() {
		b.StopTimer()
		l := cruise.Must(cruise.NewTokenBucket(rate.Every(turn), 1))
		if err := l.WaitN(b.Context(), 1); err != nil { // the only token
			b.Fatal(err)
		}
		l.Pause(time.Hour)
		ctx, cancel := context.WithCancel(b.Context())
		var all sync.WaitGroup
		for range waiters {
			all.Go(func() { _ = l.WaitN(ctx, 1) })
		}
		for l.Waiting() < waiters {
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
