package signal

import (
	"time"

	"github.com/a7df5faa/cruise"
)

// Stripe distinguishes its rate limit from a lock on the same object, and says by
// Stripe-Should-Retry whether to retry. It documents no Retry-After.
//
// Source: docs.stripe.com/rate-limits; stripe-go.
func Stripe() Profile {
	return Profile{
		Name:         "stripe",
		Hosts:        []string{"api.stripe.com", "files.stripe.com"},
		Marks:        []string{"Stripe-Should-Retry", "Stripe-Rate-Limited-Reason", "Stripe-Version"},
		ScopeHeaders: []string{"Stripe-Rate-Limited-Reason"},
		Rules: []Rule{
			{Status: []int{429}, Code: []string{"lock_timeout"}, Header: []string{"!Stripe-Rate-Limited-Reason"}, Outcome: cruise.OutcomeTransient},
			{Status: []int{409}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// Slack limits each method per workspace and app, by the minute. A throttle without a wait lasts a
// minute.
//
// Source: docs.slack.dev, rate limits; slack-go.
func Slack() Profile {
	return Profile{
		Name:       "slack",
		Hosts:      []string{"slack.com", "*.slack.com"},
		Marks:      []string{"X-Slack-Req-Id"},
		CodeFields: []string{"error"},
		Embedded:   []Embedded{{Path: "/api/*"}},
		Rules: []Rule{
			{Status: []int{200}, Header: []string{"!Retry-After"}, Code: []string{"error=ratelimited", "error=rate_limited"}, Outcome: cruise.OutcomeThrottled, Floor: time.Minute},
			{Status: []int{200}, Code: []string{"error=ratelimited", "error=rate_limited"}, Outcome: cruise.OutcomeThrottled, Floor: time.Second},
			{Status: []int{429}, Header: []string{"!Retry-After"}, Outcome: cruise.OutcomeThrottled, Floor: time.Minute},
			{Status: []int{429}, Outcome: cruise.OutcomeThrottled, Floor: time.Second},
		},
	}
}

// Shopify is REST and GraphQL. Both are leaky buckets. A REST bucket empties in 20 s with any plan.
// The bucket of GraphQL counts the cost of queries, and a throttled query is answered with 200.
//
// Source: shopify.dev, API limits.
func Shopify() Profile {
	return Profile{
		Name:       "shopify",
		Hosts:      []string{"*.myshopify.com", "*.shopify.com"},
		Marks:      []string{"X-Shopify-Shop-Api-Call-Limit", "X-Shopify-Api-Version", "X-Shopify-Stage"},
		Limits:     []LimitHeaders{{Used: "X-Shopify-Shop-Api-Call-Limit", Window: 20 * time.Second, Bucket: true}},
		CodeFields: []string{"errors.extensions.code"},
		TextFields: []string{"errors"},
		Refills: []Refill{{
			Cost:      "extensions.cost.requestedquerycost",
			Now:       "extensions.cost.throttlestatus.currentlyavailable",
			Max:       "extensions.cost.throttlestatus.maximumavailable",
			PerSecond: "extensions.cost.throttlestatus.restorerate",
		}},
		Embedded: []Embedded{{Method: "POST", Path: "*/graphql.json"}, {Method: "POST", Path: "*/graphql"}},
		Rules: []Rule{
			// The variants that one shop may make in a day: other calls go on.
			{Status: []int{429}, Text: []string{"*daily variant creation limit*"}, Outcome: cruise.OutcomePermanent},
			{Status: []int{200}, Code: []string{"MAX_COST_EXCEEDED"}, Outcome: cruise.OutcomePermanent},
			{Status: []int{200}, Code: []string{"THROTTLED"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{200}, Text: []string{"throttled"}, Outcome: cruise.OutcomeThrottled},
		},
	}
}

// Discord limits buckets of routes and each bot as a whole. The Scope is the name of the bucket, or
// "global".
//
// Source: discord-api-docs, rate limits.
func Discord() Profile {
	return Profile{
		Name:         "discord",
		Hosts:        []string{"discord.com", "*.discord.com", "discordapp.com", "*.discordapp.com"},
		BodyWaits:    []WaitField{{Field: "retry_after", Unit: Seconds}},
		ScopeHeaders: []string{"X-Ratelimit-Bucket", "X-Ratelimit-Scope"},
		CodeFields:   []string{"global"},
		Limits: []LimitHeaders{{Max: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining",
			Reset: "X-Ratelimit-Reset", ResetAfter: "X-Ratelimit-Reset-After", Name: "X-Ratelimit-Bucket"}},
		Rules: []Rule{
			{Status: []int{429}, Header: []string{"X-Ratelimit-Global: true"}, Outcome: cruise.OutcomeThrottled, Scope: "global"},
			{Status: []int{429}, Header: []string{"X-Ratelimit-Scope: global"}, Outcome: cruise.OutcomeThrottled, Scope: "global"},
			{Status: []int{429}, Code: []string{"global=true"}, Outcome: cruise.OutcomeThrottled, Scope: "global"},
		},
	}
}

// openAIRules separate throttles from two errors that waiting cannot cure: an account without
// money, and a request that is larger than a whole minute's tokens.
func openAIRules() []Rule {
	return []Rule{
		{Status: []int{413, 429}, Text: []string{"request too large for *"}, Outcome: cruise.OutcomePermanent},
		{
			Code: []string{
				"insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
				"project_spend_limit_exceeded", "organization_usage_limit_exceeded", "billing_hard_limit_reached",
			},
			Outcome: cruise.OutcomeQuotaExhausted,
		},
		{Status: []int{402}, Outcome: cruise.OutcomeQuotaExhausted},
		{Code: []string{"rate_limit_exceeded", "rate_limit_error", "slow_down"}, Outcome: cruise.OutcomeThrottled},
		{Status: []int{409}, Outcome: cruise.OutcomeTransient},
	}
}

// OpenAI limits requests and tokens at once; resets are durations such as
// "6m0s".
//
// Source: developers.openai.com, rate limits and error codes; openai-go.
func OpenAI() Profile {
	return Profile{
		Name:       "openai",
		Hosts:      []string{"api.openai.com"},
		Marks:      []string{"Openai-Version", "Openai-Processing-Ms", "Openai-Organization"},
		CodeFields: []string{"error.code", "error.type"},
		TextWaits:  []WaitText{{After: "try again in "}},
		Rules:      openAIRules(),
	}
}

// Groq speaks the API of OpenAI.
//
// Source: console.groq.com, rate limits.
func Groq() Profile {
	p := OpenAI()
	p.Name, p.Hosts, p.Marks = "groq", []string{"api.groq.com"}, []string{"X-Groq-Region"}
	return p
}

// AzureOpenAI speaks the API of OpenAI behind the gateways of Azure.
func AzureOpenAI() Profile {
	p := Azure()
	p.Name, p.Hosts, p.Marks = "azureopenai", []string{"*.openai.azure.com", "*.cognitiveservices.azure.com"}, []string{"Azureml-Model-Session"}
	p.CodeFields = append(p.CodeFields, "error.type")
	p.Rules = append(p.Rules, openAIRules()...)
	return p
}

// Anthropic limits requests and tokens at once; 529 says that the service as a whole is overloaded.
//
// Source: docs.claude.com, rate limits and errors; anthropic-sdk-go.
func Anthropic() Profile {
	return Profile{
		Name:       "anthropic",
		Hosts:      []string{"api.anthropic.com"},
		Marks:      []string{"Anthropic-Ratelimit-*", "Anthropic-Organization-Id"},
		Limits:     []LimitHeaders{{Max: "Anthropic-Ratelimit-*-Limit", Remaining: "Anthropic-Ratelimit-*-Remaining", Reset: "Anthropic-Ratelimit-*-Reset"}},
		CodeFields: []string{"error.type"},
		Rules: []Rule{
			{Status: []int{400, 403, 429}, Text: []string{"*spend limit reached*", "*reached your * usage limits*"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Code: []string{"rate_limit_error", "overloaded_error"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{409}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// Twilio limits concurrency; a request that it refuses with 20429 was never
// processed.
//
// Source: twilio.com/docs/errors/20429.
func Twilio() Profile {
	return Profile{
		Name:       "twilio",
		Hosts:      []string{"*.twilio.com"},
		Marks:      []string{"Twilio-Request-Id", "Twilio-Concurrent-Requests"},
		CodeFields: []string{"code"},
		Rules: []Rule{
			// Verify: the most tries of one verification.
			{Status: []int{429}, Code: []string{"code=60202", "code=60203"}, Outcome: cruise.OutcomePermanent},
			{Code: []string{"20429"}, Outcome: cruise.OutcomeThrottled},
		},
	}
}

// Salesforce counts the calls of an organisation in 24 hours, and refuses with
// 403. Long calls at the same time are limited as well.
func Salesforce() Profile {
	return Profile{
		Name:       "salesforce",
		Hosts:      []string{"*.salesforce.com", "*.force.com"},
		Marks:      []string{"Sforce-Limit-Info"},
		Limits:     []LimitHeaders{{Used: "Sforce-Limit-Info", Window: 24 * time.Hour}},
		CodeFields: []string{"errorcode"},
		Rules: []Rule{
			{Code: []string{"REQUEST_LIMIT_EXCEEDED"}, Text: []string{"*concurrent*"}, Outcome: cruise.OutcomeThrottled},
			{Code: []string{"REQUEST_LIMIT_EXCEEDED"}, Outcome: cruise.OutcomeQuotaExhausted},
		},
	}
}
