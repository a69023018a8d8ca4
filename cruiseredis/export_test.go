package cruiseredis

import (
	"github.com/redis/go-redis/v9"

	"github.com/a7df5faa/cruise"
)

// What the tests need of the inside.
var (
	Script = script
	KeyOf  = keyOf
	Args   = args
	Parse  = parse
	Pin    = pin
)

// Raw makes a store of any client, as it is.
func Raw(client redis.Scripter, scope string) cruise.Store {
	return &Store{client: client, sync: redis.NewScript(script), keys: []string{keyOf(scope)}}
}
