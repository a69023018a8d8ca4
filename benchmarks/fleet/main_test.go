package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CRUISE_REQUIRE_SERVICES") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	var out bytes.Buffer
	if err := run(&out, 100*time.Millisecond, time.Second); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != 2+2*2*len(ways) {
		t.Fatalf("%d lines:\n%s", n, &out)
	}
}
