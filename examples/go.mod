// Programs that show how to use cruise. Run them from the repository's root:
//
//	go run ./examples/quickstart
//	go run ./examples/errgroup
//	go run ./examples/failsafe
//	go run ./examples/paging
module github.com/a7df5faa/cruise/examples

go 1.26.0

require (
	github.com/a7df5faa/cruise v0.0.0
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/stretchr/testify v1.12.1
	golang.org/x/sync v0.24.0
	golang.org/x/time v0.16.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/a7df5faa/cruise => ../
