module github.com/a7df5faa/cruise/cruiseredis

go 1.26.0

require (
	github.com/a7df5faa/cruise v0.0.0
	github.com/redis/go-redis/v9 v9.19.0
	github.com/stretchr/testify v1.10.0
	golang.org/x/time v0.1.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/a7df5faa/cruise => ../
