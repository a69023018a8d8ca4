package cruise

import (
	"context"
	"testing"

	"golang.org/x/time/rate"
)

func BenchmarkDo(b *testing.B) {
	ctx := context.Background()
	ok := func(context.Context) error { return nil }
	b.Run("no limiter", func(b *testing.B) {
		r := Must(New(WithoutLimiter()))
		b.ReportAllocs()
		for b.Loop() {
			_ = r.Do(ctx, ok)
		}
	})
	b.Run("adaptive", func(b *testing.B) {
		r := Must(New())
		b.ReportAllocs()
		for b.Loop() {
			_ = r.Do(ctx, ok)
		}
	})
	b.Run("adaptive paced", func(b *testing.B) {
		r := Must(New(WithInitialRate(1e9), WithBurst(1<<30)))
		b.ReportAllocs()
		for b.Loop() {
			_ = r.Do(ctx, ok)
		}
	})
	b.Run("x/time Wait", func(b *testing.B) {
		l := rate.NewLimiter(1e9, 1<<30)
		b.ReportAllocs()
		for b.Loop() {
			_ = l.Wait(ctx)
		}
	})
	b.Run("token bucket", func(b *testing.B) {
		l := Must(NewTokenBucket(1e9, 1<<30))
		b.ReportAllocs()
		for b.Loop() {
			_ = l.WaitN(ctx, 1)
		}
	})
}
