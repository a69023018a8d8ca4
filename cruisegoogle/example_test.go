package cruisegoogle_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"google.golang.org/api/drive/v3"
	"google.golang.org/api/option"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegoogle"
)

func ExampleNewHTTPClient() {
	// A Drive that throttles the first request.
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}]}}`)
			return
		}
		fmt.Fprint(w, `{"files":[{"name":"plan"}]}`)
	}))
	defer server.Close()
	ctx := context.Background()
	auth := []option.ClientOption{option.WithAPIKey("key")} // or WithScopes(drive.DriveReadonlyScope), say

	client, err := cruisegoogle.NewHTTPClient(ctx, auth)
	if err != nil {
		fmt.Println(err)
		return
	}
	service, err := drive.NewService(ctx, option.WithHTTPClient(client), option.WithEndpoint(server.URL)) // yours needs no endpoint
	if err != nil {
		fmt.Println(err)
		return
	}
	list, err := service.Files.List().Context(ctx).Do()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(list.Files[0].Name, "after", requests, "requests")
	// Output: plan after 2 requests
}

// Two customers share a developer token.
func ExampleClassifyAds() {
	developer := cruise.Must(cruise.New(cruise.WithClassifier(cruisegoogle.ClassifyAds)))
	throttled := errors.New("[RateExceededError <rateName=RequestsPerMinute, rateScope=ACCOUNT, retryAfterSeconds=30>]")
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, customer := range []string{"123", "456"} {
		err := developer.Scope(cruisegoogle.ScopeAccount, customer).Do(ctx, func(context.Context) error {
			if customer == "123" {
				return throttled
			}
			return nil
		})
		fmt.Println(customer, errors.Is(err, context.DeadlineExceeded), err == nil)
	}
	// Output:
	// 123 true false
	// 456 false true
}
