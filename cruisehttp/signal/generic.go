package signal

import (
	"time"

	"github.com/a7df5faa/cruise"
)

// base holds the rules for every server: the layer below each provider's profile.
var base = generic()

// Generic is the default profile. It recognises the providers of this package
// by their hosts and marks and reads their responses by their rules; all others
// it reads by the rules that need no provider:
//
//   - The status decides, as [cruise.StatusOutcome] has it.
//   - A wait is read from Retry-After and headers that are named after it, and from the usual
//     fields of an error's body, such as retry_after, retry_after_ms and retryAfterSeconds, up to
//     two levels down. Such a name has no other meaning, and a wait never makes a client faster
//     than its own backoff. A wait of 0 in a body is ignored.
//   - Limits are read from the X-RateLimit and RateLimit families, also with a vendor's prefix, as
//     in X-Acme-RateLimit-Remaining. Of several limits the used-up one counts. A bare number
//     without a known unit stops requests for three hours at most.
//   - A 400, 402, 403, 418, 420 or 430 is a throttle if the response also reports a limit of calls
//     that is used up and will be renewed, unless a code says that the request is invalid. If the
//     status had another cause, the answer after the renewal shows it, and is not retried.
//   - A code that can only mean "throttled", such as RATE_LIMITED, ThrottlingException or
//     TooManyRequests, is a throttle with any status. Only fields for codes count: in a sentence
//     the word may stand by chance.
//   - A header that only rate limiters send, such as X-Envoy-RateLimited, is a throttle, too, and
//     so is nginx's page for its limits.
//   - A 429 that names one resource is a failure of that call alone, which may be retried, and
//     slows down no other: a disruption budget of Kubernetes, or one issue of Jira. The status of a
//     health check describes another server, so it is an answer: Vault's and Consul's.
//   - A 429 that waiting cannot cure is permanent: a message that is too large for a gRPC server
//     behind a gateway, a disk that is full, or a request that needs more memory than Elasticsearch
//     ever has for it.
//   - A success on the path of a batch (_bulk, _msearch, $batch) has a throttled part if an item
//     has the status 429. It must not be repeated as a whole, and it slows down all other requests.
//   - An error to a POST with a Replay-Nonce, as ACME sends it, is not retried unchanged.
//
// Texts for people decide only in the profile of a provider that is known to write them.
//
// To add a provider, or your own host for one:
//
//	p := signal.Generic()
//	p.Providers = append([]signal.Profile{mine}, p.Providers...)
func Generic() Profile {
	p := generic()
	p.Providers = []Profile{
		GitHub(), GoogleAds(), Google(), AzureOpenAI(), AzureDevOps(), Azure(), AmazonMWS(), AWS(), Heroku(), Stripe(), Slack(), Shopify(),
		Discord(), OpenAI(), Groq(), Anthropic(), Twilio(), Cloudflare(), GitLab(), DockerHub(), Twitter(), Salesforce(),
	}
	p.Providers = append(p.Providers, moreProviders()...)
	return p
}

func generic() Profile {
	return Profile{
		Name:  "generic",
		whole: true,
		Waits: []WaitHeader{
			{Name: "Retry-After-Ms", Unit: Milliseconds},
			{Name: "X-Ms-Retry-After-Ms", Unit: Milliseconds},
			{Name: "Retry-After", Unit: RetryAfter},
			{Name: "X-Retry-After", Unit: RetryAfter},
			{Name: "X-Ratelimit-Retry-After", Unit: RetryAfter},
			{Name: "X-Rate-Limit-Retry-After", Unit: RetryAfter},
			{Name: "X-Rate-Limit-Retry-After-Seconds", Unit: Seconds},
			{Name: "X-Rate-Limit-Retry-After-Milliseconds", Unit: Milliseconds},
			{Name: "Ratelimit-Retry-After", Unit: RetryAfter},
			{Name: "X-Throttle-Wait-Seconds", Unit: Seconds},
		},
		BodyWaits: []WaitField{
			{Field: "responses.headers.retry-after", Unit: RetryAfter}, // of the parts of a batch
			{Field: "parts.headers.retry-after", Unit: RetryAfter},
			// google.rpc.RetryInfo, which gateways of gRPC servers pass on: there 0 is a wait, too.
			{Field: "details.retrydelay"},
			{Field: "error.details.retrydelay"},
			{Field: "parameters.retry_after", Unit: Seconds}, // Telegram, which may mean hours
		},
		Limits: []LimitHeaders{
			{Max: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", Used: "X-Ratelimit-Used",
				Reset: "X-Ratelimit-Reset", ResetAfter: "X-Ratelimit-Reset-After", Name: "X-Ratelimit-Resource"},
			{Max: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining", Used: "X-Rate-Limit-Used",
				Reset: "X-Rate-Limit-Reset", ResetAfter: "X-Rate-Limit-Reset-After"},
			{Max: "Ratelimit-Limit", Remaining: "Ratelimit-Remaining", Used: "Ratelimit-Used",
				Reset: "Ratelimit-Reset", ResetAfter: "Ratelimit-Reset-After"},
			// X-RateLimit-Remaining-Tokens, -Requests, -Minute, -Day ...
			{Max: "X-Ratelimit-Limit-*", Remaining: "X-Ratelimit-Remaining-*", Reset: "X-Ratelimit-Reset-*"},
			{Max: "Ratelimit-Limit-*", Remaining: "Ratelimit-Remaining-*", Reset: "Ratelimit-Reset-*"},
			{Max: "X-Ratelimit-*-Limit", Remaining: "X-Ratelimit-*-Remaining", Reset: "X-Ratelimit-*-Reset"},
		},
		CodeFields: []string{
			"code", "type", "error", "status", "reason", "errorcode", "error_code", "errcode", "error_type", "error_name", "id", "error.code", "error.type", "error.status", "error.reason",
			"errors.code", "errors.type", "errors.reason", "errors.extensions.code", "errors.errorcode", "errors.id", "*.error.code", "details.causes.reason",
			"error.durability", "items.*.status", "responses.status", "parts.status",
		},
		TextFields: []string{
			"message", "error", "error.message", "errors.message", "error_description", "detail", "title",
			"*.error.message", "*.fault.faultstring",
		},
		Embedded: []Embedded{
			{Method: "POST", Path: "*/_bulk"}, {Method: "PUT", Path: "*/_bulk"}, {Path: "*/_msearch"}, {Method: "POST", Path: "*/$batch"},
		},
		Rules: []Rule{
			// Problem types of the IETF draft on RateLimit fields.
			{Code: []string{"type=temporary-reduced-capacity", "type=abnormal-usage-detected"}, Outcome: cruise.OutcomeThrottled},
			{Code: []string{"type=quota-exceeded"}, Status: []int{429}, Outcome: cruise.OutcomeThrottled},
			// Only a rate limiter sends this, with any status.
			{Header: []string{"X-Envoy-Ratelimited: *"}, Outcome: cruise.OutcomeThrottled},
			// The Connect protocol and gateways of gRPC servers have no other status for these
			// errors.
			{Status: []int{429}, Text: noRate(), Outcome: cruise.OutcomePermanent},
			// A 429 that concerns one call.
			{Status: []int{429}, Code: []string{"reason=DisruptionBudget"}, Outcome: cruise.OutcomeTransient},           // Kubernetes, to an eviction
			{Status: []int{429}, Header: []string{"Ratelimit-Reason: *-per-issue-*"}, Outcome: cruise.OutcomeTransient}, // Jira
			{Status: []int{429}, Code: []string{"durability=PERMANENT"}, With: []string{"type=circuit_breaking_exception"}, Outcome: cruise.OutcomePermanent},
			// The health of a server, as statuses: of Vault, and of a service that Consul watches.
			{Status: []int{429, 472, 473, 501, 503}, Path: "*/v1/sys/health", Outcome: cruise.OutcomeSuccess},
			{Status: []int{429, 503}, Path: "*/v1/agent/health/service/*", Outcome: cruise.OutcomeSuccess},
			// Many servers speak the API of OpenAI.
			{Code: []string{"insufficient_quota"}, Status: []int{429}, Outcome: cruise.OutcomeQuotaExhausted},
			// GraphQL servers answer it with 400, as Linear does.
			{Code: throttleCodes, Outcome: cruise.OutcomeThrottled},
			// MediaWiki says it to API clients with 200.
			{Status: []int{200}, Header: []string{"Mediawiki-Api-Error: maxlag"}, Outcome: cruise.OutcomeThrottled, Floor: 5 * time.Second},
			{Status: []int{200}, Header: []string{"Mediawiki-Api-Error: ratelimited"}, Outcome: cruise.OutcomeThrottled},
			// The page, or to HEAD the reason phrase, that nginx itself makes for
			// limit_req and limit_conn: a 503 of a server behind it has its own.
			{Status: []int{503}, Header: []string{"Server: *nginx*"}, Text: []string{"*<center>nginx*", "service temporarily unavailable"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{503}, Header: []string{"Server: openresty*"}, Text: []string{"*<center>openresty*"}, Outcome: cruise.OutcomeThrottled},
			// A batch of which a part is throttled.
			{Status: []int{200}, Code: []string{"status=429"}, Outcome: cruise.OutcomeSuccess, Brake: true},
		},
	}
}

// throttleCodes are codes that can only mean the rate. Codes for limits of another kind, such as
// LimitExceeded, are not among them.
var throttleCodes = []string{
	"RATELIMITED", "RATE_LIMITED", "RATE-LIMITED", "RATE_LIMIT", "RATE_LIMIT_EXCEEDED", "RATE_LIMIT_REACHED", "RATE_LIMIT_ERROR",
	"RateLimitExceeded", "RateLimitReached", "RateLimitError", "RateLimitExceededException",
	"TOO_MANY_REQUESTS", "TooManyRequests", "TooManyRequestsException", "TooManyRequestsError", "TOOMANYREQUESTS",
	"Throttled", "Throttling", "Throttling.*", "ThrottlingException", "ThrottledException", "ThrottleExceeded", "throttle_violation",
	"RequestThrottled", "RequestThrottled.*", "RequestThrottledException", "RequestLimitExceeded", "RequestLimitExceeded.*",
	"SlowDown", "FlowLimitExceeded", "too_many_write_operations*",
}

// Nginx takes every 503 for a throttle. Use it for servers behind nginx that answer 503, its
// default status for limit_req and limit_conn, with their own page, or to HEAD by HTTP/2: such a
// 503 looks like any other.
func Nginx() Profile {
	return Profile{
		Name:  "nginx",
		Rules: []Rule{{Status: []int{503}, Outcome: cruise.OutcomeThrottled}},
	}
}

// GitHub is REST and GraphQL of github.com and of GitHub Enterprise Server.
//
// Its primary limit, with nothing remaining, and its secondary limits both
// answer 403 or 429, and GraphQL answers them with 200. A secondary limit
// without Retry-After wants a minute.
//
// Source: docs.github.com, rate limits for the REST API.
func GitHub() Profile {
	secondary := Rule{
		Status:  []int{200, 403, 429},
		Code:    []string{"documentation_url=*secondary-rate-limits", "documentation_url=*abuse-rate-limits"},
		Outcome: cruise.OutcomeThrottled,
		Floor:   time.Minute,
	}
	byText := secondary
	byText.Code, byText.Text = nil, []string{"*secondary rate limit*", "*abuse detection*"}
	return Profile{
		Name:         "github",
		Hosts:        []string{"api.github.com", "uploads.github.com"},
		Marks:        []string{"X-Github-Request-Id", "X-Github-Media-Type"},
		CodeFields:   []string{"documentation_url", "errors.type", "errors.extensions.code"},
		TextFields:   []string{"message", "errors.message"},
		ScopeHeaders: []string{"X-Ratelimit-Resource"},
		Embedded:     []Embedded{{Method: "POST", Path: "*/graphql"}},
		Rules: []Rule{
			{Status: []int{403, 429}, Spent: true, Outcome: cruise.OutcomeThrottled},
			secondary,
			byText,
			{Status: []int{200}, Code: []string{"type=RATE_LIMIT*", "code=*rate_limit*"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{200}, Text: []string{"*api rate limit*exceeded*"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{403}, Text: []string{"api rate limit exceeded*"}, Outcome: cruise.OutcomeThrottled, Floor: time.Minute},
			{Status: []int{429}, Outcome: cruise.OutcomeThrottled, Floor: time.Minute},
		},
	}
}

// GitLab is gitlab.com and self-managed instances. Its RateLimit-Reset is a Unix time, unlike that
// of the IETF draft; 429s may come without any header.
//
// Source: docs.gitlab.com, rate limits.
func GitLab() Profile {
	return Profile{
		Name:  "gitlab",
		Hosts: []string{"gitlab.com"},
		Marks: []string{"X-Gitlab-Meta", "Gitlab-Lb", "Gitlab-Sv"},
	}
}

// DockerHub counts pulls in windows of six hours.
//
// Source: docs.docker.com, Docker Hub usage and limits.
func DockerHub() Profile {
	return Profile{
		Name:         "dockerhub",
		Hosts:        []string{"registry-1.docker.io", "auth.docker.io", "hub.docker.com", "index.docker.io"},
		Marks:        []string{"Docker-Ratelimit-Source"},
		ScopeHeaders: []string{"Docker-Ratelimit-Source"},
		Rules:        []Rule{{Code: []string{"TOOMANYREQUESTS"}, Outcome: cruise.OutcomeThrottled}},
	}
}

// Heroku is the Heroku Platform API: a pool of calls per account that refills steadily. Every
// response reports only the rest of the pool. The size of the pool differs between accounts, so it
// is not assumed; one call comes back every 0.8 s at the usual 4,500 an hour.
//
// Source: devcenter.heroku.com, Platform API reference, rate limits.
func Heroku() Profile {
	return Profile{
		Name:       "heroku",
		Hosts:      []string{"api.heroku.com"},
		CodeFields: []string{"id"},
		Rules: []Rule{
			{Status: []int{429}, Outcome: cruise.OutcomeThrottled, Floor: time.Hour / 4500},
			{Code: []string{"id=rate_limit"}, Outcome: cruise.OutcomeThrottled, Floor: time.Hour / 4500},
		},
	}
}

// Cloudflare is the API of Cloudflare. It retries conflicts, as its own clients
// do.
//
// Source: developers.cloudflare.com, API rate limits; cloudflare-go.
func Cloudflare() Profile {
	return Profile{
		Name:  "cloudflare",
		Hosts: []string{"api.cloudflare.com"},
		Rules: []Rule{{Status: []int{409}, Outcome: cruise.OutcomeTransient}},
	}
}

// Twitter is the API of X: windows of 15 minutes, and daily limits of the app and the user.
//
// Source: docs.x.com, rate limits.
func Twitter() Profile {
	return Profile{
		Name:  "twitter",
		Hosts: []string{"api.twitter.com", "api.x.com", "upload.twitter.com", "upload.x.com"},
		Limits: []LimitHeaders{
			{Max: "X-*-Limit-24hour-Limit", Remaining: "X-*-Limit-24hour-Remaining", Reset: "X-*-Limit-24hour-Reset", Window: 24 * time.Hour},
			{Max: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining", Reset: "X-Rate-Limit-Reset", Window: 15 * time.Minute},
		},
		Rules: []Rule{{Status: []int{420}, Outcome: cruise.OutcomeThrottled}},
	}
}
