// Package migrating holds the code of docs/migrating.md, as tests.
package migrating
