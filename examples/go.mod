module github.com/a7df5faa/cruise/examples

go 1.26.0

require (
	github.com/a7df5faa/cruise v0.0.0
	github.com/a7df5faa/cruise/cruiseaws v0.0.0
	github.com/a7df5faa/cruise/cruisegrpc v0.0.0
	github.com/aws/aws-sdk-go-v2 v1.47.6
	github.com/aws/aws-sdk-go-v2/service/emr v1.71.0
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/stretchr/testify v1.12.1
	golang.org/x/sync v0.24.0
	golang.org/x/time v0.16.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/aws/aws-sdk-go-v2/internal/configsources v1.5.9 // indirect
	github.com/aws/aws-sdk-go-v2/internal/endpoints/v2 v2.8.9 // indirect
	github.com/aws/smithy-go v1.28.8 // indirect
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/a7df5faa/cruise => ../
	github.com/a7df5faa/cruise/cruiseaws => ../cruiseaws
	github.com/a7df5faa/cruise/cruisegrpc => ../cruisegrpc
)
