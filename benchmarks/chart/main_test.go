package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const measured = `goos: linux
BenchmarkCall/job=retry/goroutines=1/by=cruise-2 100 10.0 ns/op
BenchmarkCall/job=retry/goroutines=1/by=other-2 100 40.0 ns/op
BenchmarkCall/job=retry/goroutines=1/by=cruise-2 100 20.0 ns/op
BenchmarkCall/job=retry/goroutines=1/by=cruise-2 100 15.0 ns/op
BenchmarkCall/job=retry/goroutines=1000/by=cruise-2 100 15.0 ns/op
BenchmarkQueue/by=cruise-2 1 379816799 ns/op
`

func TestChart(t *testing.T) {
	var out bytes.Buffer
	if err := run(strings.NewReader(measured), &out); err != nil {
		t.Fatal(err)
	}
	svg := out.String()
	for _, want := range []string{">retry, 1 goroutine<", ">cruise<", ">15.0 ns<", `width="176"`, ">other<", ">40.0 ns<", `width="470"`} {
		if strings.Count(svg, want) != 1 {
			t.Errorf("%d of %q in\n%s", strings.Count(svg, want), want, svg)
		}
	}
	for d := xml.NewDecoder(&out); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingMeasured(t *testing.T) {
	if err := run(strings.NewReader("PASS\n"), io.Discard); err == nil {
		t.Error("want an error")
	}
}
