// Package migrating holds the code of docs/migrating.md and docs/migrating-projects.md, as tests.
package migrating
