package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMutants(t *testing.T) {
	const head = "package p\n\nfunc f(a, b int) int {\n\t"
	for _, tt := range []struct {
		name, code string
		want       []string
	}{
		{"a condition", "if a == b {\n\t}", []string{"if !(a == b) {\n\t}"}},
		{"bounds", "for a < b || a >= b {\n\t}", []string{"for a <= b || a >= b {\n\t}", "for a < b || a > b {\n\t}"}},
		{"plus and minus", "return a + b - a", []string{"return a - b - a", "return a + b + a"}},
		{"assignments", "a = b\n\ta++\n\ta += b", []string{"\n\ta++\n\ta += b", "a = b\n\n\ta += b", "a = b\n\ta++\n"}},
		{"no declarations", "c := a\n\tvar d [2]int", nil},
		{"numbers", "return max(0, 0.0, 7, 2_5)", []string{"return max(0, 0.0, (2 * 7), 2_5)", "return max(0, 0.0, 7, (2 * 2_5))"}},
		{"no text", "return \"1\" == `2`", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := []byte(head + tt.code + "\n}\n")
			all, err := mutants("p.go", source)
			require.NoError(t, err)
			var got []string
			for _, m := range all {
				changed, err := m.apply(source)
				require.NoError(t, err)
				assert.Contains(t, m.describe(source), "p.go:")
				got = append(got, string(changed))
			}
			require.Len(t, got, len(tt.want), "%q", got)
			for i, want := range tt.want {
				assert.Equal(t, strings.Fields(head+want+"\n}\n"), strings.Fields(got[i]))
			}
		})
	}
}
