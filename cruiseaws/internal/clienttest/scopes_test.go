package clienttest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
)

// Of the services whose inputs name a table, DynamoDB alone limits each of them.
func TestScopes(t *testing.T) {
	for name, tc := range map[string]struct{ service, table string }{
		"DynamoDB":                    {"DynamoDB", "orders"},
		"streams, limited together":   {"DynamoDB Streams", ""},
		"another service with tables": {"Glue", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, first(0, 0, "", `{}`))
			var got []cruiseaws.Operation
			cfg, _ := throttled(t, s, cruiseaws.WithScope(func(o cruiseaws.Operation) string {
				got = append(got, o)
				return ""
			}))
			cfg.APIOptions = append(cfg.APIOptions, as(tc.service))
			_ = get(t.Context(), cfg)
			require.Len(t, got, 1)
			o := got[0]
			assert.Equal(t, cruiseaws.Operation{Region: "eu-central-1", Service: tc.service, Name: "DescribeTable", Table: tc.table}, o)
			assert.Equal(t, "eu-central-1/"+tc.service+"/DescribeTable", cruiseaws.ScopeByOperation(o))
			assert.Equal(t, "eu-central-1/"+tc.service, cruiseaws.ScopeByService(o))
		})
	}
}

// as gives operations the name of another service, with the same inputs.
func as(service string) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("Service", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			return next.HandleInitialize(awsmiddleware.SetServiceID(ctx, service), in)
		}), middleware.After)
	}
}

// put writes to a table, within 4 seconds.
func put(t *testing.T, c *dynamodb.Client, table string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(table),
		Item: map[string]ddb.AttributeValue{"id": &ddb.AttributeValueMemberS{Value: "1"}}})
	return err
}

func query(t *testing.T, c *dynamodb.Client, index string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	in := &dynamodb.QueryInput{TableName: aws.String("orders"), KeyConditionExpression: aws.String("id = :id"),
		ExpressionAttributeValues: map[string]ddb.AttributeValue{":id": &ddb.AttributeValueMemberS{Value: "1"}}}
	if index != "" {
		in.IndexName = aws.String(index)
	}
	_, err := c.Query(ctx, in)
	return err
}

// A throttle pauses the table or index that DynamoDB blames, and no other.
func TestTablesAndIndices(t *testing.T) {
	blame := func(reason string) string {
		return `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"exceeded",` +
			`"ThrottlingReasons":[{"reason":"` + reason + `","resource":"arn:aws:dynamodb:eu-central-1:123456789012:table/orders"}]}`
	}
	for name, tc := range map[string]struct {
		body   string
		first  func(*dynamodb.Client) error // is throttled
		paused func(*dynamodb.Client) error
		free   func(*dynamodb.Client) error
	}{
		"a table": {
			body:   blame("TableWriteProvisionedThroughputExceeded"),
			first:  func(c *dynamodb.Client) error { return put(t, c, "orders") },
			paused: func(c *dynamodb.Client) error { return put(t, c, "orders") },
			free:   func(c *dynamodb.Client) error { return put(t, c, "customers") },
		},
		"an index": {
			body:   blame("IndexReadProvisionedThroughputExceeded"),
			first:  func(c *dynamodb.Client) error { return query(t, c, "by-date") },
			paused: func(c *dynamodb.Client) error { return query(t, c, "by-date") },
			free:   func(c *dynamodb.Client) error { return query(t, c, "by-name") },
		},
		"the table of an index": {
			body:   blame("TableReadKeyRangeThroughputExceeded"),
			first:  func(c *dynamodb.Client) error { return query(t, c, "by-date") },
			paused: func(c *dynamodb.Client) error { return query(t, c, "") },
			free:   func(c *dynamodb.Client) error { return put(t, c, "orders") },
		},
		"an index that the call doesn't name": {
			body:   blame("IndexWriteProvisionedThroughputExceeded"),
			first:  func(c *dynamodb.Client) error { return put(t, c, "orders") },
			paused: func(c *dynamodb.Client) error { return put(t, c, "orders") },
			free:   func(c *dynamodb.Client) error { return put(t, c, "customers") },
		},
		"an operation": {
			body: emrThrottled,
			first: func(c *dynamodb.Client) error {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				_, err := c.ListTables(ctx, &dynamodb.ListTablesInput{})
				return err
			},
			paused: func(c *dynamodb.Client) error {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				_, err := c.ListTables(ctx, &dynamodb.ListTablesInput{})
				return err
			},
			free: func(c *dynamodb.Client) error { return put(t, c, "orders") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := first(1, 400, tc.body, `{}`)
			s := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Amz-Retry-After", "6000")
				answer(n, w, r)
			})
			cfg, _ := throttled(t, s)
			client := dynamodb.NewFromConfig(cfg)
			assert.ErrorIs(t, tc.first(client), context.DeadlineExceeded, "the pause is longer")
			assert.ErrorIs(t, tc.paused(client), context.DeadlineExceeded)
			assert.EqualValues(t, 1, s.seen.Load())
			assert.NoError(t, tc.free(client))
		})
	}
}

// A paused table is not evicted when there are too many scopes.
func TestPausedScopesAreKept(t *testing.T) {
	s := serve(t, first(0, 0, "", `{}`))
	throttle := cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithMaxScopes(1))))
	cfg := config(s.URL)
	throttle.Configure(&cfg)
	client := dynamodb.NewFromConfig(cfg)
	orders := cruiseaws.Operation{Region: "eu-central-1", Service: "DynamoDB", Name: "PutItem", Table: "orders"}
	throttle.Retrier(orders).Limiter().(*cruise.AdaptiveLimiter).Pause(time.Minute)
	for i := range 10 {
		require.NoError(t, put(t, client, fmt.Sprint("table", i)))
	}
	assert.ErrorIs(t, put(t, client, "orders"), context.DeadlineExceeded)
}

// A limit of one's own holds for all operations together, and theirs within it.
func TestLimitAroundAll(t *testing.T) {
	s := serve(t, first(0, 0, "", `{}`))
	around := cruise.Must(cruise.NewTokenBucket(rate.Every(time.Hour), 2))
	cfg, _ := throttled(t, s, cruiseaws.WithRetrierOptions(cruise.WithLimiter(around)))
	client := dynamodb.NewFromConfig(cfg)
	require.NoError(t, put(t, client, "orders"))
	require.NoError(t, query(t, client, ""))
	assert.ErrorIs(t, put(t, client, "customers"), context.DeadlineExceeded)
}
