// Package benchmarks compares the cost of cruise with that of its peers. It holds
// benchmarks only; docs/benchmarks.md has their commands and results.
package benchmarks
