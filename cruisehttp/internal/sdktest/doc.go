// Package sdktest holds tests of the Transport of cruisehttp within SDKs of others. They are a
// module of their own, so that nobody else needs those SDKs, and left out under the race
// detector, for which compiling them takes minutes.
package sdktest
