package signal

import (
	"time"

	"github.com/a7df5faa/cruise"
)

// moreProviders returns the profiles of providers with few rules: how to recognise a throttle if
// the status does not show it, and how long to wait if no header tells.
func moreProviders() []Profile {
	return []Profile{
		SEC(), Meta(), AlibabaCloud(), TencentCloud(), Dropbox(), Zendesk(), StackExchange(), Feishu(), Atlassian(),
		Airtable(), MusicBrainz(), APNs(), VK(), Kraken(), KuCoin(), Binance(),
		Xero(), Marketo(), QuickBooks(), NetSuite(), WeChat(), DingTalk(), LINE(), Etherscan(), EthereumNode(),
	}
}

// SEC is EDGAR of the U.S. Securities and Exchange Commission. Above ten requests a second it
// answers 403 with a page, until the rate has been below that for ten minutes.
//
// Source: sec.gov, Internet Security Policy; the page itself.
func SEC() Profile {
	return Profile{
		Name:  "sec",
		Hosts: []string{"sec.gov", "*.sec.gov"},
		Rules: []Rule{{Status: []int{403, 429}, Text: []string{"*request rate threshold exceeded*", "*exceeded the*request rate threshold*"}, Outcome: cruise.OutcomeThrottled, Floor: 10 * time.Minute}},
	}
}

// Meta is the Graph API of Facebook, Instagram, Threads and WhatsApp. Its limits are told by
// codes, with statuses 400 and 403; how long to wait is part of a header.
//
// Source: developers.facebook.com, Graph API, rate limits and error handling; WhatsApp Cloud
// API, error codes.
func Meta() Profile {
	return Profile{
		Name:  "meta",
		Hosts: []string{"graph.facebook.com", "*.graph.facebook.com", "graph.instagram.com", "graph.threads.net", "graph.whatsapp.com"},
		Marks: []string{"X-Fb-Trace-Id", "X-Business-Use-Case-Usage", "X-Ad-Account-Usage", "X-Fb-Ads-Insights-Throttle"},
		Waits: []WaitHeader{
			{Name: "X-Business-Use-Case-Usage", Field: "*.estimated_time_to_regain_access", Unit: Minutes},
		},
		CodeFields: []string{"error.code", "error.error_subcode", "error.is_transient"},
		Rules: []Rule{
			{
				// The app, the user, the page, a custom limit, the business, the ad account, WhatsApp.
				Code: []string{
					"code=4", "code=17", "code=32", "code=341", "code=613", "code=80000", "code=80001", "code=80002", "code=80003",
					"code=80004", "code=80005", "code=80006", "code=80007", "code=80008", "code=80009", "code=80014", "code=130429", "code=131056",
				},
				Outcome: cruise.OutcomeThrottled,
			},
			{Code: []string{"is_transient=true"}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// AlibabaCloud throttles with 400 and a code that begins with Throttling.
//
// Source: alibabacloud.com, OpenAPI, common error codes.
func AlibabaCloud() Profile {
	return Profile{
		Name:  "alibabacloud",
		Hosts: []string{"*.aliyuncs.com"},
		Marks: []string{"X-Acs-Request-Id"},
		Rules: []Rule{
			{Code: []string{"code=Throttling.AllocationQuota*"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Code: []string{"code=Throttling*"}, Outcome: cruise.OutcomeThrottled},
			{Code: []string{"code=ServiceUnavailable*", "code=InternalError*", "code=SystemBusy"}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// TencentCloud answers everything with 200, its errors in the body.
//
// Source: tencentcloud.com, API 3.0, common error codes.
func TencentCloud() Profile {
	return Profile{
		Name:       "tencentcloud",
		Hosts:      []string{"*.tencentcloudapi.com", "*.intl.tencentcloudapi.com"},
		CodeFields: []string{"response.error.code"},
		Embedded:   []Embedded{{}},
		Rules: []Rule{
			{Status: []int{200}, Code: []string{"RequestLimitExceeded", "RequestLimitExceeded.*"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{200}, Code: []string{"InternalError", "InternalError.*", "ServiceUnavailable"}, Field: []string{"response.error.code"}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// Dropbox says by 409 that too many writes to a namespace go on at once; the wait of a 429 may
// be in its body alone.
//
// Source: dropbox.com/developers, error handling and performance guide.
func Dropbox() Profile {
	tag := "too_many_write_operations"
	return Profile{
		Name:       "dropbox",
		Hosts:      []string{"*.dropboxapi.com"},
		Marks:      []string{"X-Dropbox-Request-Id"},
		CodeFields: []string{"error_summary", "error..tag", "error.*..tag"},
		Rules: []Rule{
			{Code: []string{tag, "*/" + tag + "*", tag + "/*", "too_many_requests*"}, Outcome: cruise.OutcomeThrottled},
		},
	}
}

// Zendesk has limits of single endpoints beside that of the account.
//
// Source: developer.zendesk.com, rate limits.
func Zendesk() Profile {
	return Profile{
		Name:   "zendesk",
		Hosts:  []string{"*.zendesk.com"},
		Marks:  []string{"X-Zendesk-Request-Id", "Zendesk-Ratelimit-*"},
		Limits: []LimitHeaders{{Remaining: "Zendesk-Ratelimit-*"}, {Max: "X-Rate-Limit", Remaining: "X-Rate-Limit-Remaining", Window: time.Minute}},
	}
}

// StackExchange throttles with 400. A success may ask for a pause before the next call of the
// same method; all calls heed it.
//
// Source: api.stackexchange.com/docs/throttle.
func StackExchange() Profile {
	return Profile{
		Name:       "stackexchange",
		Hosts:      []string{"api.stackexchange.com"},
		BodyWaits:  []WaitField{{Field: "backoff", Unit: Seconds}},
		TextWaits:  []WaitText{{After: "more requests available in "}},
		CodeFields: []string{"error_name"},
		TextFields: []string{"error_message"},
		Embedded:   []Embedded{{}},
		Rules: []Rule{
			{Code: []string{"error_name=throttle_violation"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{200}, Field: []string{"backoff"}, Outcome: cruise.OutcomeSuccess, Brake: true},
		},
	}
}

// Feishu, abroad Lark, throttles with 400 or 429 and a code.
//
// Source: open.larksuite.com, frequency control.
func Feishu() Profile {
	return Profile{
		Name:   "feishu",
		Hosts:  []string{"open.feishu.cn", "open.larksuite.com"},
		Marks:  []string{"X-Ogw-Ratelimit-*"},
		Limits: []LimitHeaders{{Max: "X-Ogw-Ratelimit-Limit", Remaining: "X-Ogw-Ratelimit-Remaining", Reset: "X-Ogw-Ratelimit-Reset", ResetUnit: Seconds}},
		Rules:  []Rule{{Code: []string{"code=99991400", "code=11232"}, Outcome: cruise.OutcomeThrottled}},
	}
}

// Atlassian is Jira and Confluence in the cloud. A limit of writes to one issue concerns no
// other one.
//
// Source: developer.atlassian.com, Jira Cloud, rate limiting.
func Atlassian() Profile {
	return Profile{
		Name:         "atlassian",
		Hosts:        []string{"*.atlassian.net", "api.atlassian.com"},
		Marks:        []string{"Atl-Traceid"},
		ScopeHeaders: []string{"Ratelimit-Reason"},
	}
}

// Airtable wants 30 s after a 429.
//
// Source: airtable.com/developers, rate limits.
func Airtable() Profile {
	return Profile{
		Name:  "airtable",
		Hosts: []string{"api.airtable.com", "content.airtable.com"},
		Rules: []Rule{{Status: []int{429}, Outcome: cruise.OutcomeThrottled, Floor: 30 * time.Second}},
	}
}

// MusicBrainz throttles with 503.
//
// Source: musicbrainz.org, API, rate limiting.
func MusicBrainz() Profile {
	return Profile{
		Name:  "musicbrainz",
		Hosts: []string{"musicbrainz.org", "*.musicbrainz.org"},
		Rules: []Rule{{Status: []int{503}, Text: []string{"*exceeding the allowable rate limit*"}, Outcome: cruise.OutcomeThrottled}},
	}
}

// APNs is the Apple Push Notification service. Its 429 concerns only one device or one token of the
// provider.
//
// Source: developer.apple.com, Handling notification responses from APNs.
func APNs() Profile {
	return Profile{
		Name:  "apns",
		Hosts: []string{"api.push.apple.com", "api.sandbox.push.apple.com", "api.development.push.apple.com"},
		Marks: []string{"Apns-Id"},
		Rules: []Rule{
			{Status: []int{429}, Code: []string{"reason=TooManyProviderTokenUpdates"}, Outcome: cruise.OutcomePermanent},
			{Status: []int{429}, Code: []string{"reason=TooManyRequests"}, Outcome: cruise.OutcomeTransient, Floor: time.Second},
		},
	}
}

// VK answers everything with 200, its errors in the body.
//
// Source: dev.vk.com, error codes.
func VK() Profile {
	return Profile{
		Name:       "vk",
		Hosts:      []string{"api.vk.com", "api.vk.ru"},
		CodeFields: []string{"error.error_code"},
		Embedded:   []Embedded{{Path: "/method/*"}},
		Rules: []Rule{
			{Status: []int{200}, Code: []string{"error_code=6"}, Outcome: cruise.OutcomeThrottled, Floor: time.Second},
			{Status: []int{200}, Code: []string{"error_code=9"}, Outcome: cruise.OutcomePermanent}, // the same call too often
			{Status: []int{200}, Code: []string{"error_code=29"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Status: []int{200}, Code: []string{"error_code=1", "error_code=10"}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// Kraken answers everything with 200, its errors in the body.
//
// Source: docs.kraken.com, API error messages.
func Kraken() Profile {
	return Profile{
		Name:     "kraken",
		Hosts:    []string{"api.kraken.com", "futures.kraken.com"},
		Embedded: []Embedded{{}},
		Rules: []Rule{
			{Status: []int{200}, Text: []string{"EAPI:Rate limit exceeded*", "EOrder:Rate limit exceeded*", "EService:Throttled*"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{200}, Text: []string{"EGeneral:Temporary lockout*"}, Outcome: cruise.OutcomeThrottled, Floor: 15 * time.Minute},
			{Status: []int{200}, Text: []string{"EService:Unavailable*", "EService:Busy*"}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// KuCoin tells its resets in milliseconds.
//
// Source: kucoin.com/docs, rate limit.
func KuCoin() Profile {
	return Profile{
		Name:   "kucoin",
		Hosts:  []string{"api.kucoin.com", "api-futures.kucoin.com"},
		Marks:  []string{"Gw-Ratelimit-*"},
		Limits: []LimitHeaders{{Max: "Gw-Ratelimit-Limit", Remaining: "Gw-Ratelimit-Remaining", Reset: "Gw-Ratelimit-Reset", ResetUnit: Milliseconds, Unit: "cost"}},
		Rules:  []Rule{{Code: []string{"code=429000", "code=200002"}, Outcome: cruise.OutcomeThrottled}},
	}
}

// Binance bans an address, with 418, that goes on after a 429; 403 is its firewall's.
//
// Source: developers.binance.com, limits.
func Binance() Profile {
	return Profile{
		Name:  "binance",
		Hosts: []string{"api.binance.com", "*.binance.com", "*.binance.us"},
		Marks: []string{"X-Mbx-Used-Weight*", "X-Mbx-Order-Count-*"},
		Rules: []Rule{
			{Code: []string{"code=-1003", "code=-1015"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{418}, Outcome: cruise.OutcomeThrottled, Floor: 2 * time.Minute},
		},
	}
}

// AzureDevOps delays heavy users, and asks them by a Retry-After on a success to wait.
//
// Source: learn.microsoft.com, Azure DevOps, rate and usage limits.
func AzureDevOps() Profile {
	return Profile{
		Name:  "azuredevops",
		Hosts: []string{"dev.azure.com", "*.dev.azure.com", "*.visualstudio.com"},
		Rules: []Rule{{Status: []int{200}, Header: []string{"X-Ratelimit-Delay: *", "Retry-After: *"}, Outcome: cruise.OutcomeSuccess, Brake: true}},
	}
}

// Xero has limits of the minute and of the day, of a tenant and of the app.
//
// Source: developer.xero.com, rate limits.
func Xero() Profile {
	return Profile{
		Name:  "xero",
		Hosts: []string{"api.xero.com"},
		Marks: []string{"X-Rate-Limit-Problem", "X-Minlimit-Remaining", "X-Daylimit-Remaining"},
		Limits: []LimitHeaders{
			{Remaining: "X-Minlimit-Remaining", Window: time.Minute},
			{Remaining: "X-Appminlimit-Remaining", Window: time.Minute},
			{Remaining: "X-Daylimit-Remaining", Window: 24 * time.Hour},
		},
		ScopeHeaders: []string{"X-Rate-Limit-Problem"},
		Rules: []Rule{
			{Status: []int{429, 503}, Header: []string{"X-Rate-Limit-Problem: *day*"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Status: []int{429, 503}, Header: []string{"X-Rate-Limit-Problem: *"}, Outcome: cruise.OutcomeThrottled},
		},
	}
}

// Marketo answers everything with 200, its errors in the body.
//
// Source: experienceleague.adobe.com, Marketo REST API, error codes.
func Marketo() Profile {
	return Profile{
		Name:     "marketo",
		Hosts:    []string{"*.mktorest.com"},
		Embedded: []Embedded{{}},
		Rules: []Rule{
			{Status: []int{200}, Code: []string{"code=606", "code=615"}, Field: []string{"errors.code"}, Outcome: cruise.OutcomeThrottled, Floor: time.Second},
			{Status: []int{200}, Code: []string{"code=607"}, Field: []string{"errors.code"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Status: []int{200}, Code: []string{"code=502", "code=604", "code=608", "code=611", "code=713"}, Field: []string{"errors.code"}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// QuickBooks may throttle with 403.
//
// Source: developer.intuit.com, API limits and error codes.
func QuickBooks() Profile {
	return Profile{
		Name:       "quickbooks",
		Hosts:      []string{"quickbooks.api.intuit.com", "sandbox-quickbooks.api.intuit.com"},
		Marks:      []string{"Intuit_tid"},
		TextFields: []string{"*.error.message", "*.error.detail"},
		Rules:      []Rule{{Status: []int{403, 429}, Text: []string{"*ThrottleExceeded*"}, Outcome: cruise.OutcomeThrottled}},
	}
}

// NetSuite limits concurrency, and the requests of an integration.
//
// Source: docs.oracle.com, NetSuite, SuiteScript errors and concurrency governance.
func NetSuite() Profile {
	return Profile{
		Name:       "netsuite",
		Hosts:      []string{"*.netsuite.com"},
		CodeFields: []string{"o:errordetails.o:errorcode", "error.code", "*.detail.*.code"},
		Rules: []Rule{{
			Code:    []string{"SSS_REQUEST_LIMIT_EXCEEDED", "CONCURRENCY_LIMIT_EXCEEDED", "WS_CONCUR_SESSION_DISALLWD", "WS_REQUEST_BLOCKED", "EXCEEDED_REQUEST_LIMIT"},
			Outcome: cruise.OutcomeThrottled,
		}},
	}
}

// WeChat answers everything with 200, its errors in the body.
//
// Source: developers.weixin.qq.com, global return codes.
func WeChat() Profile {
	return Profile{
		Name:     "wechat",
		Hosts:    []string{"api.weixin.qq.com", "qyapi.weixin.qq.com"},
		Embedded: []Embedded{{}},
		Rules: []Rule{
			{Status: []int{200}, Code: []string{"errcode=45009"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Status: []int{200}, Code: []string{"errcode=45011", "errcode=45033"}, Outcome: cruise.OutcomeThrottled},
			{Status: []int{200}, Code: []string{"errcode=-1"}, Outcome: cruise.OutcomeTransient},
		},
	}
}

// DingTalk throttles with 403, and its older API with 200 and a code.
//
// Source: open.dingtalk.com, call limits and error codes.
func DingTalk() Profile {
	return Profile{
		Name:       "dingtalk",
		Hosts:      []string{"api.dingtalk.com", "oapi.dingtalk.com"},
		CodeFields: []string{"sub_code"},
		Embedded:   []Embedded{{}},
		Rules: []Rule{
			{Code: []string{"code=Forbidden.AccessDenied.QpsLimit*"}, Outcome: cruise.OutcomeThrottled, Floor: time.Second},
			{Status: []int{200}, Code: []string{"errcode=90018", "errcode=90002", "sub_code=90018", "sub_code=90002", "errcode=130101"}, Outcome: cruise.OutcomeThrottled, Floor: time.Second},
		},
	}
}

// LINE is its Messaging API: a 429 is a rate, or the messages of a month.
//
// Source: developers.line.biz, Messaging API, rate limits.
func LINE() Profile {
	return Profile{
		Name:  "line",
		Hosts: []string{"api.line.me", "api-data.line.me"},
		Marks: []string{"X-Line-Request-Id"},
		Rules: []Rule{{Status: []int{429}, Text: []string{"you have reached your monthly limit*"}, Outcome: cruise.OutcomeQuotaExhausted}},
	}
}

// Etherscan, and its kin for other chains, answers everything with 200, its errors in the body.
//
// Source: docs.etherscan.io, rate limits and common error messages.
func Etherscan() Profile {
	return Profile{
		Name:       "etherscan",
		Hosts:      []string{"api.etherscan.io", "api.bscscan.com", "api.polygonscan.com", "api.arbiscan.io"},
		TextFields: []string{"result"},
		Embedded:   []Embedded{{}},
		Rules: []Rule{
			{Status: []int{200}, Text: []string{"max daily*limit reached*"}, Outcome: cruise.OutcomeQuotaExhausted},
			{Status: []int{200}, Text: []string{"max *rate limit reached*"}, Outcome: cruise.OutcomeThrottled, Floor: time.Second},
		},
	}
}

// EthereumNode is the JSON-RPC of Ethereum node providers; a throttle may come with 200.
//
// Source: EIP-1474, code -32005; docs.infura.io and docs.alchemy.com.
func EthereumNode() Profile {
	return Profile{
		Name:      "ethereumnode",
		Hosts:     []string{"*.infura.io", "*.alchemy.com", "*.quiknode.pro"},
		BodyWaits: []WaitField{{Field: "*.rate.backoff_seconds", Unit: Seconds}},
		Embedded:  []Embedded{{Method: "POST"}},
		Rules: []Rule{
			{Status: []int{200, 402, 403, 429}, Code: []string{"code=-32005", "code=-32007", "code=429"}, Field: []string{"error.code"}, Outcome: cruise.OutcomeThrottled},
		},
	}
}
