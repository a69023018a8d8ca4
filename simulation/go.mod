module github.com/a7df5faa/cruise/simulation

go 1.26.0
