module github.com/a7df5faa/cruise/cruisegrpc

go 1.26.0

require (
	github.com/a7df5faa/cruise v0.0.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/net v0.60.0
	golang.org/x/time v0.16.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/a7df5faa/cruise => ../
