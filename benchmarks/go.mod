// Benchmarks against peers: see docs/benchmarks.md.
module github.com/a7df5faa/cruise/benchmarks

go 1.26.0

require (
	github.com/a7df5faa/cruise v0.0.0
	github.com/avast/retry-go/v5 v5.1.1
	github.com/aws/aws-sdk-go-v2 v1.47.6
	golang.org/x/time v0.16.0
)

require github.com/aws/smithy-go v1.28.8 // indirect

replace github.com/a7df5faa/cruise => ../
