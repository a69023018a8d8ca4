package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
)

func TestBatchKeepsOrderAndLosesNothing(t *testing.T) {
	synctest.Test(t, testBatchKeepsOrderAndLosesNothing)
}

func testBatchKeepsOrderAndLosesNothing(t *testing.T) {
	for name, opt := range map[string]cruise.Option{
		"attempts": cruise.WithMaxAttempts(2),
		"budget":   cruise.WithBudget(cruise.Must(cruise.NewBudget(1, 0, 0.0001))),
	} {
		batchKeepsOrderAndLosesNothing(t, name, opt)
	}
}

func batchKeepsOrderAndLosesNothing(t *testing.T, name string, opt cruise.Option) {
	retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify), opt))
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
	require.NoError(t, err, "%s: progress is no attempt that failed", name)
	for i := range items {
		assert.Equal(t, fmt.Sprint("done ", i), *results[i])
		assert.Equal(t, 1, done[i])
	}
}

// store is a DynamoDB that takes 4 items of a batch at most.
type store struct {
	mu    sync.Mutex // guards the field below
	items map[string]bool
}

func (s *store) answer(_ int64, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in struct {
		RequestItems map[string]json.RawMessage
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".BatchWriteItem") {
		var writes []json.RawMessage
		_ = json.Unmarshal(in.RequestItems["orders"], &writes)
		var write struct {
			PutRequest struct {
				Item struct{ ID struct{ N string } }
			}
		}
		for _, raw := range writes[:min(4, len(writes))] {
			_ = json.Unmarshal(raw, &write)
			s.items[write.PutRequest.Item.ID.N] = true
		}
		left := map[string]any{}
		if len(writes) > 4 {
			left["orders"] = writes[4:]
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"UnprocessedItems": left})
		return
	}
	var read struct {
		Keys []map[string]map[string]string
	}
	_ = json.Unmarshal(in.RequestItems["orders"], &read)
	took := min(4, len(read.Keys))
	left := map[string]any{}
	if len(read.Keys) > took {
		left["orders"] = map[string]any{"Keys": read.Keys[took:]}
	}
	slices.Reverse(read.Keys[:took]) // results come in any order
	_ = json.NewEncoder(w).Encode(map[string]any{"Responses": map[string]any{"orders": read.Keys[:took]}, "UnprocessedKeys": left})
}

func id(n int) map[string]ddb.AttributeValue {
	return map[string]ddb.AttributeValue{"ID": &ddb.AttributeValueMemberN{Value: strconv.Itoa(n)}}
}

func number(item map[string]ddb.AttributeValue) string {
	return item["ID"].(*ddb.AttributeValueMemberN).Value
}

// 30 items are written and read, by a client of DynamoDB that takes 4 of a batch.
func TestBatchOfDynamoDB(t *testing.T) {
	st := &store{items: map[string]bool{}}
	s := serve(t, st.answer)
	cfg := config(s.URL)
	cfg.APIOptions = append(cfg.APIOptions, cruiseaws.WithoutRetries)
	client := dynamodb.NewFromConfig(cfg)
	retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify),
		cruise.WithTuning(cruise.Tuning{PauseBackoff: cruise.Must(cruise.ConstantBackoff(10 * time.Millisecond))})))
	ids := make([]int, 30)
	for i := range ids {
		ids[i] = i
	}

	written, err := cruiseaws.Batch(t.Context(), retrier, ids, 25, func(ctx context.Context, batch []int) ([]*bool, error) {
		var puts []ddb.WriteRequest
		for _, n := range batch {
			puts = append(puts, ddb.WriteRequest{PutRequest: &ddb.PutRequest{Item: id(n)}})
		}
		out, err := client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]ddb.WriteRequest{"orders": puts}})
		if err != nil {
			return nil, err
		}
		left := map[string]bool{}
		for _, w := range out.UnprocessedItems["orders"] {
			left[number(w.PutRequest.Item)] = true
		}
		done := make([]*bool, len(batch))
		for i, n := range batch {
			if !left[strconv.Itoa(n)] {
				done[i] = aws.Bool(true)
			}
		}
		return done, nil
	})
	require.NoError(t, err)
	assert.NotContains(t, written, (*bool)(nil))
	assert.Len(t, st.items, 30, "none lost")

	read, err := cruiseaws.Batch(t.Context(), retrier, ids, 100, func(ctx context.Context, batch []int) ([]*string, error) {
		var keys []map[string]ddb.AttributeValue
		for _, n := range batch {
			keys = append(keys, id(n))
		}
		out, err := client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]ddb.KeysAndAttributes{"orders": {Keys: keys}}})
		if err != nil {
			return nil, err
		}
		found := map[string]*string{}
		for _, item := range out.Responses["orders"] {
			found[number(item)] = aws.String("order " + number(item))
		}
		values := make([]*string, len(batch))
		for i, n := range batch {
			values[i] = found[strconv.Itoa(n)]
		}
		return values, nil
	})
	require.NoError(t, err)
	for i, value := range read {
		assert.Equal(t, fmt.Sprint("order ", i), *value, "in order")
	}
	stats := retrier.Limiter().(*cruise.AdaptiveLimiter).Stats()
	assert.EqualValues(t, 6+1+7, stats.Throttles, "what is left unprocessed is a throttle")
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
	_, err = cruiseaws.Batch[int, int](t.Context(), retrier, []int{1}, 1, nil)
	assert.ErrorContains(t, err, "nil function")
	_, err = cruiseaws.Do[int](t.Context(), retrier, nil)
	assert.ErrorContains(t, err, "nil function")
	_, err = cruiseaws.Batch(t.Context(), retrier, []int{1}, 1, func(context.Context, []int) ([]*int, error) { return nil, nil })
	assert.ErrorContains(t, err, "0 results for a batch of 1")

	// A permanent failure is not retried, even though other items were done before.
	sent := 0
	results, err = cruiseaws.Batch(t.Context(), retrier, []int{1, 2}, 25, func(_ context.Context, batch []int) ([]*int, error) {
		if sent++; sent > 1 {
			return nil, cruise.Permanent(errDenied)
		}
		return []*int{&batch[0], nil}, nil
	})
	assert.ErrorIs(t, err, errDenied)
	assert.Equal(t, 2, sent)
	assert.Equal(t, 1, *results[0])
	assert.Nil(t, results[1])
}

// Calls that share the limiter of an operation fail by errors of all kinds.
func TestRetrierOfAThrottle(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"an error of its own":   {errFull, []string{"transient", "success"}},
		"a throttle":            {cruise.Throttled(errFull), []string{"throttled", "success"}},
		"of no use":             {cruise.Permanent(errDenied), []string{"permanent"}},
		"an answer":             {answered(429, errFull), []string{"throttled", "success"}},
		"an answer, for good":   {answered(403, errDenied), []string{"permanent"}},
		"one the SDK has tried": {&retry.MaxAttemptsError{Attempt: 3, Err: answered(503, errFull)}, []string{"permanent"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &log{}
				throttle := cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithObserver(seen))))
				err := tc.err
				_ = throttle.Retrier(cruiseaws.Operation{Service: "DynamoDB", Name: "BatchWriteItem"}).Do(t.Context(), func(context.Context) error {
					defer func() { err = nil }()
					return err
				})
				assert.Equal(t, tc.want, seen.outcomes())
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		throttle := cruise.Must(cruiseaws.New())
		retrier := throttle.Retrier(cruiseaws.Operation{Service: "DynamoDB", Name: "BatchWriteItem"})
		results, err := cruiseaws.Batch(t.Context(), retrier, []int{1, 2, 3}, 25, func(_ context.Context, batch []int) ([]*int, error) {
			return append([]*int{&batch[0]}, make([]*int, len(batch)-1)...), nil
		})
		require.NoError(t, err)
		assert.NotContains(t, results, (*int)(nil))
	})
}

// A batch sent again draws on the budget as any retry does. Once that is spent, each that
// got an item done is followed by another first attempt, and one that did not by none.
func TestBatchDrawsOnTheBudget(t *testing.T) {
	for name, left := range map[string]error{"transient": cruise.Transient(errFull), "a throttle": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := cruise.Must(cruise.NewBudget(4, .001, 0))
				retrier := cruise.Must(cruise.New(cruise.WithMaxAttempts(3), cruise.WithBudget(budget)))
				var had []float64
				done := 8
				results, err := cruiseaws.Batch(t.Context(), retrier, make([]int, 10), 10, func(_ context.Context, batch []int) ([]*int, error) {
					had = append(had, budget.Left())
					out := make([]*int, len(batch))
					if done--; done >= 0 {
						out[0] = &batch[0]
					}
					return out, left
				})
				assert.ErrorIs(t, err, cruise.ErrBudgetExhausted)
				assert.Equal(t, []float64{4, 3, 2, 2, 1, 0, 0, 0, 0}, had)
				assert.Len(t, slices.DeleteFunc(results, func(r *int) bool { return r == nil }), 8)
			})
		})
	}
}

var errDenied, errFull = errors.New("access denied"), errors.New("answer full")

// Unprocessed items are a throttle, unless an error with the results gives another reason.
func TestBatchOfWhichAPartIsDone(t *testing.T) {
	for name, tc := range map[string]struct {
		most      int // items of an answer
		err       error
		want      error
		sent      []int // items of each batch
		done      int
		throttles uint64
	}{
		"no error":                       {most: 52, sent: []int{100, 48}, done: 100, throttles: 1},
		"a throttle":                     {most: 52, err: cruise.Throttled(errFull), sent: []int{100, 48}, done: 100, throttles: 1},
		"a full answer":                  {most: 52, err: cruise.Transient(errFull), sent: []int{100, 48}, done: 100},
		"full answers, many":             {most: 10, err: cruise.Transient(errFull), sent: []int{100, 90, 80, 70, 60, 50, 40, 30, 20, 10}, done: 100},
		"a failure for good":             {most: 52, err: cruise.Permanent(errDenied), want: errDenied, sent: []int{100}, done: 52},
		"nothing done":                   {most: 0, err: cruise.Transient(errFull), want: cruise.ErrAttemptsExhausted, sent: []int{100, 100, 100, 100, 100}},
		"all done, so there is no rest":  {most: 100, err: cruise.Transient(errFull), want: errFull, sent: []int{100}, done: 100},
		"all done, so there is no error": {most: 100, sent: []int{100}, done: 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify)))
				limiter := retrier.Limiter().(*cruise.AdaptiveLimiter)
				var sent []int
				results, err := cruiseaws.Batch(t.Context(), retrier, make([]int, 100), 100, func(_ context.Context, batch []int) ([]*int, error) {
					sent = append(sent, len(batch))
					out := make([]*int, len(batch))
					for i := range min(tc.most, len(batch)) {
						out[i] = &batch[i]
					}
					if tc.most < len(batch) || tc.most == 100 {
						return out, tc.err
					}
					return out, nil
				})
				assert.ErrorIs(t, err, tc.want)
				assert.Equal(t, tc.sent, sent)
				done := 0
				for _, r := range results {
					if r != nil {
						done++
					}
				}
				assert.Equal(t, tc.done, done)
				assert.Equal(t, tc.throttles, limiter.Stats().Throttles)
			})
		})
	}
}

// Where answers are full and nothing throttles, the rate stays what it is.
func TestFullAnswersDoNotCutTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify), cruise.WithInitialRate(20)))
		_, err := cruiseaws.Batch(t.Context(), retrier, make([]int, 2000), 100, func(_ context.Context, batch []int) ([]*int, error) {
			time.Sleep(30 * time.Millisecond)
			out := make([]*int, len(batch))
			for i := range min(52, len(batch)) {
				out[i] = &batch[i]
			}
			if len(batch) > 52 {
				return out, cruise.Transient(errFull)
			}
			return out, nil
		})
		require.NoError(t, err)
		assert.GreaterOrEqual(t, retrier.Limiter().(*cruise.AdaptiveLimiter).Limit(), rate.Limit(20))
	})
}

func answered(status int, err error) error {
	return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status, Header: http.Header{}}}, Err: err}
}

// The wait of x-amz-retry-after is bounded to the SDK's own backoff and 5 s more, and counts only
// for errors that are retried.
func TestClassifyReadsTheWait(t *testing.T) {
	slowDown, failed, denied := &smithy.GenericAPIError{Code: "Throttling"}, errors.New("?"), &smithy.GenericAPIError{Code: "AccessDenied"}
	for name, tc := range map[string]struct {
		header string
		status int
		err    error
		want   time.Duration
	}{
		"milliseconds":            {"700", 500, failed, 700 * time.Millisecond},
		"none":                    {"", 500, failed, 0},
		"zero":                    {"0", 500, failed, 0},
		"negative":                {"-5", 500, failed, 0},
		"a fraction":              {"1.5", 500, failed, 0},
		"more than 64 bits":       {"99999999999999999999", 500, failed, 0},
		"as long as can be":       {"5050", 500, failed, 5050 * time.Millisecond},
		"longer":                  {"5051", 500, failed, 5050 * time.Millisecond},
		"the longest":             {"9223372036854775807", 500, failed, 5050 * time.Millisecond},
		"a throttle, as long":     {"6000", 400, slowDown, 6 * time.Second},
		"a throttle, longer":      {"60000", 400, slowDown, 6 * time.Second},
		"what is not retried":     {"700", 403, denied, 0},
		"without a response":      {"", 0, slowDown, 0},
		"a response of no answer": {"", -1, slowDown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.err
			switch {
			case tc.status > 0:
				err = answered(tc.status, tc.err)
				err.(*smithyhttp.ResponseError).Response.Header.Set("X-Amz-Retry-After", tc.header)
			case tc.status < 0:
				err = &smithyhttp.ResponseError{Err: tc.err}
			}
			assert.Equal(t, tc.want, cruiseaws.Classify(err).RetryAfter)
		})
	}
}

// Lambda and API Gateway send the header of HTTP, not that of the SDKs.
func TestRetryAfterOfHTTP(t *testing.T) {
	for name, tc := range map[string]struct {
		after, ms string
		status    int
		code      string
		want      cruise.Verdict
	}{
		"seconds":                     {"3", "", 429, "TooManyRequestsException", cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 3 * time.Second}},
		"a failure":                   {"3", "", 500, "ServiceException", cruise.Verdict{Outcome: cruise.OutcomeTransient, RetryAfter: 3 * time.Second}},
		"milliseconds go before it":   {"3", "700", 429, "TooManyRequestsException", cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 700 * time.Millisecond}},
		"unless they are none":        {"3", "soon", 429, "TooManyRequestsException", cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 3 * time.Second}},
		"no wait at all":              {"soon", "", 429, "TooManyRequestsException", cruise.Verdict{Outcome: cruise.OutcomeThrottled}},
		"as long as a rate is cut":    {"3600", "", 429, "TooManyRequestsException", cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Hour}},
		"longer than a rate is cut":   {"3601", "", 429, "TooManyRequestsException", cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, RetryAfter: 3601 * time.Second}},
		"nothing to be retried after": {"3", "", 400, "InvalidParameterValueException", cruise.Verdict{Outcome: cruise.OutcomePermanent}},
	} {
		t.Run(name, func(t *testing.T) {
			err := answered(tc.status, &smithy.GenericAPIError{Code: tc.code})
			header := err.(*smithyhttp.ResponseError).Response.Header
			header.Set("Retry-After", tc.after)
			header.Set("X-Amz-Retry-After", tc.ms)
			assert.Equal(t, tc.want, cruiseaws.Classify(err))
		})
	}
	long := answered(500, &smithy.GenericAPIError{Code: "ServiceException"})
	long.(*smithyhttp.ResponseError).Response.Header.Set("Retry-After", "301")
	assert.False(t, cruise.Must(cruiseaws.New()).Retryer().IsErrorRetryable(long), "in the SDK's loop nothing else ends so long a wait")
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
		"sts":                  {answered(400, code("IDPCommunicationError", "")), cruise.OutcomeTransient},
		"control plane":        {answered(400, code("LimitExceededException", "")), cruise.OutcomeThrottled},
		"iam":                  {answered(409, code("LimitExceeded", "")), cruise.OutcomePermanent},
		"invalid":              {answered(400, code("ValidationException", "")), cruise.OutcomePermanent},
		"denied":               {answered(403, code("AccessDeniedException", "")), cruise.OutcomePermanent},
		"ses rate":             {answered(400, code("Throttling", "Maximum sending rate exceeded.")), cruise.OutcomeThrottled},
		"ses day":              {answered(400, code("Throttling", "Daily message quota exceeded.")), cruise.OutcomeQuotaExhausted},
		"bedrock minute":       {answered(429, code("ThrottlingException", "Too many tokens, please wait before trying again.")), cruise.OutcomeThrottled},
		"bedrock day":          {answered(429, code("ThrottlingException", "Too many tokens per day, please wait before trying again.")), cruise.OutcomeQuotaExhausted},
		"gateway plan":         {answered(429, code("LimitExceededException", "Limit Exceeded")), cruise.OutcomeQuotaExhausted},
		"gateway plan, a text": {answered(429, code("LimitExceededException", "limit exceeded.")), cruise.OutcomeQuotaExhausted},
		"gateway rate":         {answered(429, code("TooManyRequestsException", "Too Many Requests")), cruise.OutcomeThrottled},
		"a rate limit":         {answered(429, code("TooManyRequestsException", "Rate Limit Exceeded")), cruise.OutcomeThrottled},
		"a limit and its size": {answered(429, code("TooManyRequestsException", "Limit Exceeded: 10 requests per second")), cruise.OutcomeThrottled},
		"transaction":          {canceled("None", "ThrottlingError"), cruise.OutcomeThrottled},
		"transaction capacity": {canceled("ProvisionedThroughputExceeded", "TransactionConflict"), cruise.OutcomeThrottled},
		"transaction conflict": {canceled("None", "TransactionConflict"), cruise.OutcomeTransient},
		"transaction check":    {canceled("ThrottlingError", "ConditionalCheckFailed"), cruise.OutcomePermanent},
		"context":              {context.Canceled, cruise.OutcomeUnknown},
		"the SDK, cancelled":   {&smithy.OperationError{Err: &smithy.CanceledError{Err: context.Canceled}}, cruise.OutcomeUnknown},
		"the SDK, a deadline":  {&smithy.OperationError{Err: &smithy.CanceledError{Err: context.DeadlineExceeded}}, cruise.OutcomeUnknown},
		"a timeout of HTTP":    {&smithyhttp.RequestSendError{Err: context.DeadlineExceeded}, cruise.OutcomeTransient},
		"not of the SDK":       {errors.New("odd"), cruise.OutcomeUnknown},
		"without a response":   {&smithyhttp.ResponseError{Err: errors.New("?")}, cruise.OutcomeTransient},
		"a Retrier's":          {&cruise.Error{Reason: cruise.ErrAttemptsExhausted, Last: answered(429, errors.New("?"))}, cruise.OutcomeUnknown},
		"none":                 {nil, cruise.OutcomeSuccess},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want.String(), cruiseaws.Classify(tc.err).Outcome.String())
		})
	}
}
