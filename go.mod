module github.com/a7df5faa/cruise

go 1.26.0
