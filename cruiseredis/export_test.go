package cruiseredis

import (
	"github.com/redis/go-redis/v9"

	"github.com/a7df5faa/cruise/shared"
)

// Internals for the tests.
var (
	Script  = script
	KeyOf   = keyOf
	Args    = args
	Parse   = parse
	Decided = decided
	Pin     = pin
)

// Raw makes a store of any client, as it is.
func Raw(client Processor, scope string) shared.Store { return RawScript(client, scope, script) }

// Processor is the part of a client that a store needs.
type Processor = processor

// RawScript is Raw with a script of the test's.
func RawScript(client Processor, scope, text string) shared.Store {
	return &Store{client: client, text: text, hash: redis.NewScript(text).Hash(), keys: []string{keyOf(scope)}}
}
