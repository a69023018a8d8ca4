package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name       string
		warm, long time.Duration
		want       string
	}{
		{"the defaults", 8 * time.Second, 12 * time.Second, ""},
		{"warm for less than no time", -time.Second, 12 * time.Second, "-warm -1s: want 0s to 1h"},
		{"measured for no time", 0, 0, "-long 0s: want 1s to 1h"},
		{"measured for days", 0, 48 * time.Hour, "-long 48h0m0s: want 1s to 1h"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := check(tt.warm, tt.long); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

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
