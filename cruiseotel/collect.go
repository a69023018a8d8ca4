package cruiseotel

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/observing"
)

// A gauge holds the values reported for all limiters of one name.
type gauge struct {
	limit   rate.Limit // the lowest; rate.Inf if there is none
	pause   time.Duration
	waiting int
}

func (g *gauge) add(s gauge) {
	g.limit = min(g.limit, s.limit)
	g.pause = max(g.pause, s.pause)
	g.waiting += s.waiting
}

// collect reports the gauges of this moment. It is called from the SDK's goroutines, where
// a panic of the program's own code, such as that of [WithKeys], would end the program.
func (o *Observer) collect(ctx context.Context, to metric.Observer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cruiseotel: panic while metrics are collected: %v", p)
		}
	}()
	o.begun.Do(func() { o.zeros(ctx) })
	o.mu.Lock()
	retriers := slices.Clone(o.retriers)
	o.mu.Unlock()
	found := map[string]*gauge{}
	var order []string // the first to be seen first, so that places are given in order
	seen := observing.Seen{}
	scopes, alone, least := 0, 0, math.Inf(1)
	for i, retrier := range retriers {
		left := math.Inf(1)
		if b := retrier.Budget(); b != nil {
			left = b.Left()
		}
		for s := range retrier.Scopes() {
			left = min(left, s.BudgetLeft) // budgets are not shared with a limiter
			if seen.Before(s.Limiter, i) {
				continue
			}
			if len(s.Path) > 0 {
				scopes++
			}
			if s.Degraded {
				alone++
			}
			name := o.pathName(s.Path)
			g := found[name]
			if g == nil {
				g = &gauge{limit: rate.Inf}
				found[name] = g
				order = append(order, name)
			}
			g.add(gauge{limitOf(s), s.PauseLeft, s.Waiting})
		}
		least = min(least, left)
	}
	now := time.Now()
	shown := map[string]*gauge{}
	for _, name := range order {
		g := found[name]
		as := o.gaugeScopes.of(name, g.pause > 0 || g.waiting > 0, now)
		if shown[as] == nil {
			shown[as] = &gauge{limit: rate.Inf}
		}
		shown[as].add(*g)
	}
	for name, g := range shown {
		with := metric.WithAttributeSet(attribute.NewSet(o.api, attribute.String("cruise.scope", name)))
		if g.limit != rate.Inf {
			to.ObserveFloat64(o.limit, float64(g.limit), with)
		}
		to.ObserveFloat64(o.pause, g.pause.Seconds(), with)
		to.ObserveInt64(o.queue, int64(g.waiting), with)
	}
	to.ObserveInt64(o.scopes, int64(scopes), o.apiOnly)
	to.ObserveInt64(o.alone, int64(alone), o.apiOnly)
	if !math.IsInf(least, 1) {
		to.ObserveFloat64(o.budget, least, o.apiOnly)
	}
	return nil
}

// limitOf returns the limit of s, rate.Inf if the limiter has none.
func limitOf(s cruise.Stats) rate.Limit {
	if s.Limit == 0 {
		return rate.Inf
	}
	return s.Limit
}
