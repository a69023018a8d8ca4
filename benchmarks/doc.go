// Package benchmarks compares the cost of cruise with that of its peers. It holds
// benchmarks only; docs/benchmarks.md says how to run them and what they show.
package benchmarks
