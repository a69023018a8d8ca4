// Package sdktest tests the Transport of cruisehttp within foreign SDKs. It is its own module, so
// that no other module needs the SDKs. The race detector leaves it out, since compiling the SDKs
// for it takes minutes.
package sdktest
