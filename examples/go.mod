// Programs that show how to use cruise. Run them from the repository's root:
//
//	go run ./examples/quickstart
module github.com/a7df5faa/cruise/examples

go 1.26.0

require (
	github.com/a7df5faa/cruise v0.0.0
	golang.org/x/time v0.16.0
)

replace github.com/a7df5faa/cruise => ../
