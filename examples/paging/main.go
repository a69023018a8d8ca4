// Paging shows [cruise.Retrier.Attempts], a loop for code that does not fit in a function: a list
// is read page by page, and each page decides how to go on.
//
//	go run ./examples/paging
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/a7df5faa/cruise"
)

// A shelf hands out its books, three a page. Every fourth call is throttled, and
// the last page reports that the quota is nearly used up.
type shelf struct {
	books []string
	calls int
}

func (s *shelf) list(ctx context.Context, from int) (page []string, next int, err error) {
	if s.calls++; s.calls%4 == 0 {
		return nil, 0, cruise.Throttled(errors.New("429 Too Many Requests"), cruise.RetryAfter(100*time.Millisecond))
	}
	to := min(from+3, len(s.books))
	if to == len(s.books) {
		cruise.Report(ctx, cruise.Quota{Limit: 100, Remaining: 1, Reset: time.Minute})
	}
	return s.books[from:to], to, nil
}

// all reads every page. The error of the loop ends it. The error of an attempt goes to Done, which
// decides whether another one follows.
func all(ctx context.Context, retrier *cruise.Retrier, s *shelf) (books []string, err error) {
	for from := 0; from < len(s.books); {
		for attempt, err := range retrier.Attempts(ctx) {
			if err != nil {
				return books, fmt.Errorf("page at %d: %w", from, err)
			}
			page, next, err := s.list(attempt.Context(), from)
			attempt.Done(err)
			if err != nil {
				fmt.Printf("page at %2d, attempt %d: %v\n", from, attempt.Number(), err)
				continue
			}
			fmt.Printf("page at %2d, attempt %d: %v\n", from, attempt.Number(), page)
			books, from = append(books, page...), next
		}
	}
	return books, nil
}

func main() {
	s := &shelf{}
	for i := range 20 {
		s.books = append(s.books, fmt.Sprintf("book %d", i+1))
	}
	books, err := all(context.Background(), cruise.Must(cruise.New()), s)
	if err != nil || len(books) != len(s.books) {
		fmt.Fprintf(os.Stderr, "read %d of %d books: %v\n", len(books), len(s.books), err)
		os.Exit(1)
	}
}
