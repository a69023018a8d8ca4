module github.com/a7df5faa/cruise/simulation

go 1.26.0

require (
	github.com/aws/aws-sdk-go-v2 v1.47.6
	github.com/cenkalti/backoff/v7 v7.0.3
	golang.org/x/time v0.16.0
)

require (
	github.com/a7df5faa/cruise v0.0.0
	github.com/aws/smithy-go v1.28.8 // indirect
)

replace github.com/a7df5faa/cruise => ../
