// Package clienttest tests cruisegoogle with clients of services. They are tested
// here so that a program that imports cruisegoogle does not download these services.
package clienttest
