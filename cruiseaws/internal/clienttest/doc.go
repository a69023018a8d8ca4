// Package clienttest tests cruiseaws with clients of services. They are tested
// here so that a program that imports cruiseaws needn't download those services.
package clienttest
