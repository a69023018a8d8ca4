// Package shared has a limiter that workers on many machines share: one rate, one stream of slots
// and one pause.
//
//	limiter, err := shared.New(store, cruise.WithMaxRate(50))
//	…
//	api, err := cruise.New(cruise.WithLimiter(limiter))
//
// A [Store] is where the workers meet. Module cruiseredis has one in Redis; [MemoryStore] is one
// for a single process.
package shared
