module github.com/a7df5faa/cruise/cruisegrpc

go 1.26.0

require (
	github.com/a7df5faa/cruise v0.0.0
	github.com/stretchr/testify v1.10.0
	golang.org/x/net v0.48.0
	golang.org/x/time v0.1.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251202230838-ff82c1b0f217
	google.golang.org/grpc v1.79.3
	google.golang.org/protobuf v1.36.10
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sys v0.39.0 // indirect
	golang.org/x/text v0.32.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/a7df5faa/cruise => ../
