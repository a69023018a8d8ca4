// Package signal reads what an HTTP response says of throttling.
//
// A [Profile] holds what is known of a provider, as data, and reads a response into a
// [Signal]: what the attempt meant, how long to wait, which limit is to blame, and what is
// left of the limits. [Generic] recognises the providers of this package by itself and reads
// everything else by the rules that hold for every server.
//
// The Transport of package cruisehttp reads all its responses by a Profile. A program that
// has its own loop calls [Profile.Read], or [ParseRetryAfter] for one header.
package signal
