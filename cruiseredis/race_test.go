//go:build race

package cruiseredis_test

// fleetSize is fewer where each process takes a second to start.
const fleetSize = 20
