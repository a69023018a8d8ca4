package nils

import (
	"net/http"
	"testing"
)

func TestIs(t *testing.T) {
	for _, tt := range []struct {
		name string
		v    any
		want bool
	}{
		{"nil", nil, true},
		{"a nil pointer", (*http.Transport)(nil), true},
		{"a nil function", http.HandlerFunc(nil), true},
		{"a pointer", &http.Transport{}, false},
		{"a value", 0, false},
		{"a nil map, which is an empty one", http.Header(nil), false},
	} {
		if got := Is(tt.v); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
