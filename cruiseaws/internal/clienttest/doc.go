// Package clienttest tests cruiseaws with clients of services. They are tested
// here so that a program that imports cruiseaws does not download these services.
package clienttest
