package cruiseaws

import (
	"context"
	"errors"
	"fmt"

	"github.com/a7df5faa/cruise"
)

// ErrUnprocessed says why a batch is sent again: the service answered, but left some items undone.
var ErrUnprocessed = errors.New("cruiseaws: items left unprocessed")

// Do is [cruise.DoValue] for an SDK call with the SDK's retries off, as by [WithoutRetries]. If an
// error shows that they are on, so that retries would multiply, Do does not retry, and its error
// says so. r should have [Classify] as its classifier.
//
// A client with a [Throttle] needs no Do. In a Do, such a client makes each call once and leaves
// retries to r.
func Do[T any](ctx context.Context, r *cruise.Retrier, call func(context.Context) (T, error), opts ...cruise.CallOption) (T, error) {
	if call == nil {
		return cruise.DoValue[T](ctx, r, nil) // which says so
	}
	value, err := cruise.DoValue(ctx, r, func(ctx context.Context) (T, error) {
		value, err := call(ctx)
		if did := retriedBySDK(err); did != "" {
			err = cruise.Permanent(fmt.Errorf("cruiseaws: the SDK %s inside a Retrier: add WithoutRetries to its APIOptions: %w", did, err))
		}
		return value, err
	}, opts...)
	return value, err
}

// Batch sends items in batches of at most size. Items that the service leaves unprocessed are sent
// again, paced, before any later item. It is for BatchWriteItem and BatchGetItem of DynamoDB (size
// 25 and 100), PutRecords of Kinesis (500) and other calls that throttle within a successful
// answer. Unprocessed items are a throttle to the limiter of r.
//
// send returns a result for each item of its batch, in the same order, nil for an unprocessed item.
// If it also returns an error, the results still count, and the error takes the place of the
// throttle for the rest. Batch returns the results in the order of items. After an error, a nil
// result means that the item was not processed, or that this is unknown. Batch gives up when r
// does, except that after an attempt that processed some items it begins anew, with as many
// attempts as r allows. The first of these attempts is no retry to the budget of r. It follows an
// attempt that processed at least one item, so there are no more of them than items.
//
// BatchGetItem leaves keys unprocessed also where its answer would exceed 16 MB, or 1 MB of one
// partition. Taken for throttles, such answers bring the rate down to nothing, although the table
// does not throttle. So choose a size that stays below, such as 30 for items of 400 KB, or have
// send return [cruise.Transient] of an error for an answer that is full.
//
// The client's own Throttle, if it has one, leaves retries to r.
func Batch[I, R any](ctx context.Context, r *cruise.Retrier, items []I, size int, send func(context.Context, []I) ([]*R, error)) ([]*R, error) {
	results := make([]*R, len(items))
	if size < 1 {
		return results, fmt.Errorf("cruiseaws: batch size %d: want 1 or more", size)
	}
	if send == nil {
		return results, errors.New("cruiseaws: nil function to send a batch")
	}
	for from := 0; from < len(items); from += size {
		b := &batch[I, R]{items: items, results: results, send: send}
		for i := from; i < min(from+size, len(items)); i++ {
			b.left = append(b.left, i)
		}
		for len(b.left) > 0 {
			had := len(b.left)
			err := r.Do(ctx, b.once)
			// After progress the rest is a new call, with a new number of attempts.
			spent := errors.Is(err, cruise.ErrAttemptsExhausted) || errors.Is(err, cruise.ErrBudgetExhausted)
			if err != nil && (len(b.left) == had || !spent) {
				return results, err
			}
		}
	}
	return results, nil
}

type batch[I, R any] struct {
	items   []I
	results []*R
	left    []int // indices of items not processed
	send    func(context.Context, []I) ([]*R, error)
}

// once sends the items that are left.
func (b *batch[I, R]) once(ctx context.Context) error {
	now := make([]I, len(b.left))
	for i, at := range b.left {
		now[i] = b.items[at]
	}
	got, err := b.send(ctx, now)
	switch {
	case len(got) == len(now):
	case err != nil:
		return err
	default:
		return cruise.Permanent(fmt.Errorf("cruiseaws: %d results for a batch of %d", len(got), len(now)))
	}
	var left []int
	for i, at := range b.left {
		if b.results[at] = got[i]; got[i] == nil {
			left = append(left, at)
		}
	}
	b.left = left
	switch {
	case err != nil && len(left) == 0: // there is nothing to send again
		return cruise.Permanent(fmt.Errorf("cruiseaws: error beside the results of a whole batch: %w", err))
	case err != nil:
		return err
	case len(left) > 0:
		return cruise.Throttled(fmt.Errorf("%w: %d of %d", ErrUnprocessed, len(left), len(now)))
	}
	return nil
}
