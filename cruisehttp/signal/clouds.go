package signal

import (
	"slices"
	"sync"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/signals"
)

// AWS is every service of AWS, and servers that speak its protocols, such as
// S3's. A 429 without a code is a throttle, although the SDKs do not retry it.
//
// DynamoDB, Kinesis, S3, SQS and EventBridge may take part of a batch and answer 200: such a call is
// a success that must not be repeated as a whole, and a throttle all the same.
//
// Source: aws-sdk-go-v2, aws/retry; the services' API references.
func AWS() Profile {
	const cancelled = "TransactionCanceledException"
	return Profile{
		Name:  "aws",
		Hosts: []string{"*.amazonaws.com", "*.amazonaws.com.cn", "*.api.aws"},
		Marks: []string{
			"X-Amzn-Requestid", "X-Amzn-Errortype", "X-Amz-Request-Id", "X-Amz-Id-2", "X-Amz-Apigw-Id", "X-Amz-Retry-After",
		},
		// At most 5 s above the client's own backoff, as the SDKs have it.
		Waits:       []WaitHeader{{Name: "X-Amz-Retry-After", Unit: Milliseconds, Whole: true, Over: 5 * time.Second}},
		BodyWaits:   []WaitField{{Field: "retryafterseconds", Unit: Seconds}},
		CodeHeaders: []string{"X-Amzn-Errortype", "X-Amzn-Query-Error"}, // the latter where the body is CBOR
		CodeFields: []string{
			"code|__type", "*.error.code", "cancellationreasons.code", "records.errorcode", "requestresponses.errorcode", "entries.errorcode", "failed.code",
		},
		TextFields:  []string{"message", "*.error.message"},
		ScopeFields: []string{"throttlingreasons.resource"},
		Embedded: []Embedded{
			{Method: "PUT", Header: "X-Amz-Copy-Source: *"},
			{Method: "POST", Query: "uploadId"},
			{Method: "POST", Query: "delete"},
			{Method: "POST", Header: "X-Amz-Target: *.BatchWriteItem"},
			{Method: "POST", Header: "X-Amz-Target: *.BatchGetItem"},
			{Method: "POST", Header: "X-Amz-Target: *.BatchExecuteStatement"},
			{Method: "POST", Header: "X-Amz-Target: Kinesis_*.PutRecords"},
			{Method: "POST", Header: "X-Amz-Target: Firehose_*.PutRecordBatch"},
			{Method: "POST", Header: "X-Amz-Target: AWSEvents.PutEvents"},
			{Method: "POST", Header: "X-Amz-Target: AmazonSQS.*Batch"},
		},
		Rules: []Rule{
			// A transaction is cancelled for the reasons of its parts. If a part failed by its own
			// fault, the transaction fails again.
			{Code: []string{cancelled}, With: []string{"ConditionalCheckFailed", "ValidationError", "ItemCollectionSizeLimitExceeded", "DuplicateItem"}, Outcome: cruise.OutcomePermanent},
			{Code: []string{cancelled}, Text: []string{"*ConditionalCheckFailed*", "*ValidationError*", "*ItemCollectionSizeLimitExceeded*", "*DuplicateItem*"}, Outcome: cruise.OutcomePermanent},
			{Code: []string{cancelled}, With: []string{"ThrottlingError", "ProvisionedThroughputExceeded"}, Outcome: cruise.OutcomeThrottled},
			{Code: []string{cancelled}, Text: []string{"*ThrottlingError*", "*ProvisionedThroughputExceeded*"}, Outcome: cruise.OutcomeThrottled},
			// SES throttles a second's rate and a day's quota by the same code.
			{Text: []string{"*daily message quota exceeded*", "*daily sending quota exceeded*"}, Outcome: cruise.OutcomeQuotaExhausted},
			// So does Bedrock with a minute's tokens and a day's.
			{Text: []string{"too many tokens per day*"}, Outcome: cruise.OutcomeQuotaExhausted},
			// The quota of a usage plan of API Gateway; its rate is "Too Many Requests".
			{Status: []int{429}, Text: []string{"limit exceeded"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Code: slices.Clone(signals.AWSThrottles), Outcome: cruise.OutcomeThrottled},
			{Status: []int{503}, Text: []string{"slow down"}, Outcome: cruise.OutcomeThrottled}, // S3 to HEAD: the reason phrase
			{Code: []string{"RequestTimeout", "RequestTimeoutException"}, Outcome: cruise.OutcomeTransient},
			{Code: []string{"ServiceQuotaExceededException"}, Outcome: cruise.OutcomePermanent},
			// Taken in part.
			{Status: []int{200}, Field: []string{"unprocesseditems.*", "unprocessedkeys.*"}, Outcome: cruise.OutcomeSuccess, Brake: true},
			{Status: []int{200}, Code: []string{"errorcode=ProvisionedThroughputExceededException", "errorcode=ServiceUnavailableException", "errorcode=ThrottlingException"}, Outcome: cruise.OutcomeSuccess, Brake: true},
			{Status: []int{200}, Field: []string{"failed.code"}, Code: []string{"RequestThrottled", "ThrottlingException", "OverLimit"}, Outcome: cruise.OutcomeSuccess, Brake: true},
			{Status: []int{200}, Field: []string{"responses.error.code"}, Code: []string{"ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"}, Outcome: cruise.OutcomeSuccess, Brake: true},
			{Status: []int{200}, Field: []string{"deleteresult.error.code"}, Code: []string{"SlowDown"}, Outcome: cruise.OutcomeSuccess, Brake: true},
			{Status: []int{200}, Field: []string{"responses.*", "deleteresult.*"}, Outcome: cruise.OutcomeSuccess},
			// S3 sends 200 before it knows how a copy ends.
			{Status: []int{200}, Code: []string{"code=SlowDown"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{200}, Code: []string{"code=InternalError", "code=ServiceUnavailable", "code=RequestTimeout", "code=OperationAborted"}, Outcome: cruise.OutcomeTransient},
			{Status: []int{200}, Field: []string{"error.code"}, Outcome: cruise.OutcomePermanent},
		},
	}
}

// AmazonMWS is Amazon Marketplace Web Service.
func AmazonMWS() Profile {
	return Profile{
		Name:       "amazonmws",
		Hosts:      []string{"mws.amazonservices.*", "mws-eu.amazonservices.*"},
		Marks:      []string{"X-Mws-Quota-Remaining"},
		Limits:     []LimitHeaders{{Max: "X-Mws-Quota-Max", Remaining: "X-Mws-Quota-Remaining", Reset: "X-Mws-Quota-Resetson"}},
		CodeFields: []string{"*.error.code"},
		Rules:      []Rule{{Code: []string{"RequestThrottled", "QuotaExceeded"}, Outcome: cruise.OutcomeThrottled}},
	}
}

// pacific is where the days of Google's quotas begin.
var pacific = sync.OnceValue(func() *time.Location {
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		// No time zones on this machine: in summer an hour late, never early.
		return time.FixedZone("PST", -8*60*60)
	}
	return zone
})

// NextPacificDay is the next midnight in Los Angeles, when daily quotas of
// Google are renewed.
func NextPacificDay(now time.Time) time.Time {
	y, m, d := now.In(pacific()).Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, pacific())
}

// NextPacificMonth is the next first of a month in Los Angeles, when monthly
// quotas of Google are renewed.
func NextPacificMonth(now time.Time) time.Time {
	y, m, _ := now.In(pacific()).Date()
	return time.Date(y, m+1, 1, 0, 0, 0, 0, pacific())
}

// noRate are messages of gRPC servers behind a gateway that say RESOURCE_EXHAUSTED but mean
// the size of a message, or room for data.
func noRate() (texts []string) {
	for _, part := range slices.Concat(signals.Oversized, signals.Full) {
		texts = append(texts, "*"+part+"*")
	}
	return texts
}

// quotaNamed are codes for any name of a quota that the patterns match.
func quotaNamed(patterns ...string) (codes []string) {
	for _, field := range [...]string{"quotaid", "quota_id", "quota_limit"} {
		for _, pattern := range patterns {
			codes = append(codes, field+"="+pattern)
		}
	}
	return codes
}

// Google is every API of Google Cloud, Workspace, YouTube, Maps and Gemini. A reason
// in the body tells a rate from a day's quota and from a missing permission: all
// of them come as 403, 429, some older ones as 503, and Maps' first ones as 200.
//
// A day's quota is a day's quota even where the response asks for a retry in
// seconds. Days end at midnight in Los Angeles.
//
// Source: the APIs' guides to errors and quotas; google.rpc error details.
func Google() Profile {
	return Profile{
		Name:  "google",
		Hosts: []string{"*.googleapis.com", "*.google.com", "*.cloudfunctions.net"},
		Marks: []string{"X-Goog-*"},
		BodyWaits: []WaitField{
			{Field: "*.details.retrydelay"},
			{Field: "*.details.retrydelay.seconds", Unit: Seconds},
		},
		TextWaits: []WaitText{
			{After: "retry after "},     // Gmail: a date
			{After: "please retry in "}, // Gemini: RetryInfo without its fraction cut off
		},
		CodeFields: []string{
			"error.status", "error.errors.reason", "error.errors.domain", "error.details.reason",
			"error.details.metadata.quota_limit", "error.details.metadata.quota_unit", "error.details.violations.quotaid",
			"error.details.violations.quota_id", "errors.reason", "*.error.code", "status", "parts.body.error.errors.reason",
		},
		TextFields: []string{"error.message", "error.details.violations.description"},
		ScopeFields: []string{
			"error.details.violations.quotaid", "error.details.violations.quota_id", "error.details.metadata.quota_limit",
			"error.details.metadata.quota_metric",
		},
		Embedded: []Embedded{{Method: "GET", Path: "/maps/api/*"}, {Method: "POST", Path: "/batch"}, {Method: "POST", Path: "/batch/*"}},
		Rules: []Rule{
			// A batch of which a part is throttled.
			{Status: []int{200}, Field: []string{"parts.status"}, Code: []string{"reason=*rateLimitExceeded*"}, Outcome: cruise.OutcomeSuccess, Brake: true},
			// The limit of writes to one object, once a second.
			{Status: []int{429, 503}, Text: []string{"*exceeded the rate limit for object mutation operations*"}, Outcome: cruise.OutcomeTransient},
			{Status: []int{200}, Code: []string{"status=OVER_QUERY_LIMIT"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{200}, Code: []string{"status=OVER_DAILY_LIMIT"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Status: []int{200}, Code: []string{"status=UNKNOWN_ERROR"}, Outcome: cruise.OutcomeTransient},
			{Text: noRate(), Outcome: cruise.OutcomePermanent},
			{
				// Allocations, not rates: machines, addresses, bytes.
				Code: []string{
					"RESOURCE_QUOTA_EXCEEDED", "storageQuotaExceeded", "activeItemCreationLimitExceeded", "accessNotConfigured",
					"insufficientPermissions", "SERVICE_DISABLED", "BILLING_DISABLED",
				},
				Outcome: cruise.OutcomePermanent,
			},
			{
				Code: append(quotaNamed("*PerDay*", "*per-day*", "*per_day*", "*per day*", "*daily*"),
					"quota_unit=1/d*", "reason=dailyLimitExceeded*", "domain=youtube.quota"),
				Outcome: cruise.OutcomeQuotaExhausted,
				Until:   NextPacificDay,
			},
			{
				Code:    append(quotaNamed("*PerMonth*", "*per-month*", "*per_month*", "*per month*", "*monthly*"), "quota_unit=1/mo*"),
				Outcome: cruise.OutcomeQuotaExhausted,
				Until:   NextPacificMonth,
			},
			{Status: []int{403, 429}, Text: []string{"*quota exceeded*per day*", "*daily limit*exceeded*", "exhausted * per day.*"}, Outcome: cruise.OutcomeQuotaExhausted, Until: NextPacificDay},
			{Code: []string{"reason=quotaExceeded", "reason=uploadLimitExceeded"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Status: []int{402}, Outcome: cruise.OutcomeQuotaExhausted},
			{
				Code: []string{
					"reason=*rateLimitExceeded*", "reason=concurrentLimitExceeded*", "reason=servingLimitExceeded*",
					"reason=RATE_LIMIT_EXCEEDED", "status=RESOURCE_EXHAUSTED",
				},
				Outcome: cruise.OutcomeThrottled,
			},
			{Code: []string{"reason=backendError", "reason=internalError"}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// GoogleAds is the Google Ads API and its predecessor AdWords. Limits are kept
// per account and per developer token: the Scope is ACCOUNT or DEVELOPER, and
// the latter stops all accounts where [WithScope] is used for both.
//
// Source: developers.google.com, QuotaErrorEnum, QuotaErrorDetails and the
// AdWords RateExceededError.
func GoogleAds() Profile {
	p := Google()
	p.Name = "googleads"
	p.Hosts = []string{"googleads.googleapis.com", "adwords.google.com"}
	p.Marks = nil
	p.BodyWaits = append(p.BodyWaits,
		WaitField{Field: "*.quotaerrordetails.retrydelay"},
		WaitField{Field: "retryafterseconds", Unit: Seconds},
		WaitField{Field: "*.retryafterseconds", Unit: Seconds},
	)
	p.TextWaits = append(p.TextWaits, WaitText{After: "retryAfterSeconds=", Unit: Seconds})
	p.CodeFields = append(p.CodeFields, "quotaerror", "*.quotaerror", "errorstring", "*.errorstring", "*.apierror.type", "apierror.type", "type", "error", "reason", "*.reason")
	p.TextFields = append(p.TextFields, "*.message", "*.faultstring")
	p.ScopeFields = append([]string{"ratescope", "*.ratescope"}, p.ScopeFields...)
	p.Rules = append([]Rule{
		{Code: []string{"quotaerror=ACCESS_PROHIBITED"}, Outcome: cruise.OutcomePermanent},
		{Code: []string{"quotaerror=PAYMENTS_PROFILE_ACTIVATION_RATE_LIMIT_EXCEEDED"}, Outcome: cruise.OutcomeQuotaExhausted, Wait: 7 * 24 * time.Hour},
		{Code: []string{"quotaerror=RESOURCE_EXHAUSTED", "quotaerror=EXCESSIVE_LONG_TERM_QUERY_RESOURCE_CONSUMPTION"}, Outcome: cruise.OutcomeQuotaExhausted},
		{Code: []string{"quotaerror=RESOURCE_TEMPORARILY_EXHAUSTED", "quotaerror=EXCESSIVE_SHORT_TERM_QUERY_RESOURCE_CONSUMPTION"}, Outcome: cruise.OutcomeThrottled},
		{Code: []string{"RateExceededError*", "RATE_EXCEEDED"}, Outcome: cruise.OutcomeThrottled},
		{Text: []string{"*RateExceededError*"}, Outcome: cruise.OutcomeThrottled},
	}, p.Rules...)
	return p
}

// Azure is Azure Resource Manager, Storage, Cosmos DB, API Management and Microsoft Graph. Resource
// Manager has many limits, and each response reports the ones that it touched. A batch of Graph
// that is throttled in part is a success that must not be repeated as a whole, and also a throttle.
//
// Source: learn.microsoft.com, request limits and throttling; azcore.
func Azure() Profile {
	return Profile{
		Name: "azure",
		Hosts: []string{
			"management.azure.com", "*.core.windows.net", "*.documents.azure.com", "*.azure-api.net", "*.vault.azure.net",
			"graph.microsoft.com", "*.azure.com",
			// The national clouds.
			"*.usgovcloudapi.net", "*.azure.us", "graph.microsoft.us", "dod-graph.microsoft.us",
			"*.chinacloudapi.cn", "*.azure.cn", "*.microsoftazure.de", "graph.microsoft.de",
		},
		Marks:       []string{"X-Ms-Ratelimit-Remaining-*", "X-Ms-Request-Id", "X-Ms-Correlation-Request-Id", "X-Ms-Substatus"},
		Limits:      []LimitHeaders{{Remaining: "X-Ms-Ratelimit-Remaining-*"}},
		CodeHeaders: []string{"X-Ms-Error-Code"},
		CodeFields:  []string{"code", "error.code", "error.details.code"},
		TextWaits: []WaitText{
			{After: "replenished in "},
			{After: "try again in "},
			{After: "retry after "},
		},
		Rules: []Rule{
			// Another client works on the resource: not a question of rate.
			{Code: []string{"RetryableErrorDueToAnotherOperation"}, Outcome: cruise.OutcomeTransient},
			{Status: []int{449}, Outcome: cruise.OutcomeTransient},
			{Code: []string{"ServerBusy"}, Outcome: cruise.OutcomeThrottled},
			{Code: []string{"OperationTimedOut"}, Outcome: cruise.OutcomeTransient},
			// API Management refuses a used-up quota with 403 and a rate with 429.
			{Status: []int{403, 429}, Text: []string{"*out of call volume quota*", "*out of bandwidth quota*"}, Outcome: cruise.OutcomeQuotaExhausted},
		},
	}
}
