//go:build !race

package cruiseredis_test

// fleetSize is how many processes a fleet has.
const fleetSize = 100
