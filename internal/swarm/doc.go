// Package swarm has no code, only a test: it draws options, faults and traffic from one seed, runs
// all of it in virtual time, and checks the invariants of every run.
//
//	go test ./internal/swarm                                     500 seeds
//	SWARM_RUNS=1000000 go test -timeout=0 ./internal/swarm       as many as that
//	SWARM_SEED=123 go test ./internal/swarm -run TestSwarm -v    one again, with its trace
//
// Seeds that once failed are in testdata/seeds.txt and run first.
package swarm
