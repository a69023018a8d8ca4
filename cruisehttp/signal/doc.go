// Package signal reads throttles, waits and rate limits from HTTP responses.
//
// A [Profile] describes a provider as data, and reads a response into a [Signal]: the outcome of
// the attempt, the time to wait, the limit to blame, and the rest of the quota. [Generic]
// recognises the providers of this package by itself and reads everything else by the rules that
// hold for every server.
//
// The Transport of package cruisehttp reads all its responses by a Profile. A program that
// has its own loop calls [Profile.Read], or [ParseRetryAfter] for one header.
package signal
