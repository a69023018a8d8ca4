// Package signals lists the error codes and messages of servers and their SDKs that more than one
// package needs.
package signals

// AWSThrottles are the error codes that the AWS SDKs take for throttling, with any
// status: DynamoDB, EMR and ECS throttle with 400.
//
// Source: aws-sdk-go-v2, aws/retry, DefaultThrottleErrorCodes.
var AWSThrottles = []string{
	"BandwidthLimitExceeded",
	"EC2ThrottledException",
	"LimitExceededException",
	"PriorRequestNotComplete",
	"ProvisionedThroughputExceededException",
	"RequestLimitExceeded",
	"RequestThrottled",
	"RequestThrottledException",
	"SlowDown",
	"ThrottledException",
	"Throttling",
	"ThrottlingException",
	"TooManyRequestsException",
	"TransactionInProgressException",
}

// Oversized are parts, in lower case, of messages that come with RESOURCE_EXHAUSTED and
// mean the size of a message, not a limit of calls.
var Oversized = []string{
	"message larger than max", // Go, C++ and libraries on top of it, Node
	"message after decompression larger than max",
	"grpc: message too large",
	"received metadata size exceeds",                      // C++
	"message that decompresses to a size larger than",     // Node
	"message with a size larger than",                     // Node
	"grpc message exceeds maximum size",                   // Java
	"message exceeds the maximum configured message size", // .NET
	"is larger than configured max",                       // Connect
	"exceeds sendmaxbytes",                                // Connect
	"http.maxbytesreader limit",                           // Connect
}

// Full are parts, in lower case, of messages that come with RESOURCE_EXHAUSTED and mean room
// for data, which no wait makes.
var Full = []string{
	"etcdserver: mvcc: database space exceeded", // etcd, rpctypes
	"no space left on device",                   // the text of ENOSPC
	"disk quota exceeded",                       // the text of EDQUOT
}
