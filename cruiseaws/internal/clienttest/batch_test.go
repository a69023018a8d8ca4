package clienttest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
)

func TestBatchKeepsOrderAndLosesNothing(t *testing.T) {
	retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify), cruise.WithMaxAttempts(2)))
	items := make([]int, 20)
	for i := range items {
		items[i] = i
	}
	done := map[int]int{}
	results, err := cruiseaws.Batch(t.Context(), retrier, items, 10, func(_ context.Context, batch []int) ([]*string, error) {
		out := make([]*string, len(batch))
		for i, item := range batch {
			if len(batch) > 1 && i%2 == 1 {
				continue // unprocessed
			}
			done[item]++
			out[i] = aws.String(fmt.Sprint("done ", item))
		}
		return out, nil
	})
	require.NoError(t, err, "progress is no attempt that failed")
	for i := range items {
		assert.Equal(t, fmt.Sprint("done ", i), *results[i])
		assert.Equal(t, 1, done[i])
	}
}

func TestBatchGivesUp(t *testing.T) {
	retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify), cruise.WithMaxAttempts(2)))
	results, err := cruiseaws.Batch(t.Context(), retrier, []int{1, 2}, 25, func(_ context.Context, batch []int) ([]*int, error) {
		return append([]*int{}, make([]*int, len(batch))...), nil
	})
	assert.ErrorIs(t, err, cruiseaws.ErrUnprocessed)
	assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
	assert.Equal(t, []*int{nil, nil}, results)

	_, err = cruiseaws.Batch(t.Context(), retrier, []int{1}, 0, func(context.Context, []int) ([]*int, error) { return nil, nil })
	assert.ErrorContains(t, err, "batch size 0")
	_, err = cruiseaws.Batch(t.Context(), retrier, []int{1}, 1, func(context.Context, []int) ([]*int, error) { return nil, nil })
	assert.ErrorContains(t, err, "0 results for a batch of 1")
}

func answered(status int, err error) error {
	return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status, Header: http.Header{}}}, Err: err}
}

func TestClassify(t *testing.T) {
	code := func(code, message string) error { return &smithy.GenericAPIError{Code: code, Message: message} }
	canceled := func(codes ...string) error {
		e := &ddb.TransactionCanceledException{}
		for _, c := range codes {
			e.CancellationReasons = append(e.CancellationReasons, ddb.CancellationReason{Code: aws.String(c)})
		}
		return answered(400, e)
	}
	for name, tc := range map[string]struct {
		err  error
		want cruise.Outcome
	}{
		"emr":                  {answered(400, code("ThrottlingException", "Rate exceeded")), cruise.OutcomeThrottled},
		"ec2":                  {answered(503, code("RequestLimitExceeded", "")), cruise.OutcomeThrottled},
		"s3 slow down":         {answered(503, code("SlowDown", "")), cruise.OutcomeThrottled},
		"s3 unavailable":       {answered(503, code("ServiceUnavailable", "")), cruise.OutcomeTransient},
		"s3 timeout":           {answered(400, code("RequestTimeout", "")), cruise.OutcomeTransient},
		"bare 429":             {answered(429, errors.New("?")), cruise.OutcomeThrottled},
		"lambda":               {answered(429, code("TooManyRequestsException", "")), cruise.OutcomeThrottled},
		"control plane":        {answered(400, code("LimitExceededException", "")), cruise.OutcomeThrottled},
		"iam":                  {answered(409, code("LimitExceeded", "")), cruise.OutcomePermanent},
		"invalid":              {answered(400, code("ValidationException", "")), cruise.OutcomePermanent},
		"denied":               {answered(403, code("AccessDeniedException", "")), cruise.OutcomePermanent},
		"ses rate":             {answered(400, code("Throttling", "Maximum sending rate exceeded.")), cruise.OutcomeThrottled},
		"ses day":              {answered(400, code("Throttling", "Daily message quota exceeded.")), cruise.OutcomeQuotaExhausted},
		"gateway plan":         {answered(429, code("LimitExceededException", "Limit Exceeded")), cruise.OutcomeQuotaExhausted},
		"transaction":          {canceled("None", "ThrottlingError"), cruise.OutcomeThrottled},
		"transaction capacity": {canceled("ProvisionedThroughputExceeded", "TransactionConflict"), cruise.OutcomeThrottled},
		"transaction conflict": {canceled("None", "TransactionConflict"), cruise.OutcomeTransient},
		"transaction check":    {canceled("ThrottlingError", "ConditionalCheckFailed"), cruise.OutcomePermanent},
		"context":              {context.Canceled, cruise.OutcomeUnknown},
		"not of the SDK":       {errors.New("odd"), cruise.OutcomeUnknown},
		"none":                 {nil, cruise.OutcomeSuccess},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want.String(), cruiseaws.Classify(tc.err).Outcome.String())
		})
	}
}
