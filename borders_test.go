package cruise_test

import (
	"go/build"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Dependencies run one way. A folder may import only the packages of this module that it lists
// here, and no folder that is listed here imports net/http or log/slog.
func TestBorders(t *testing.T) {
	const module = "github.com/a7df5faa/cruise"
	below := []string{"internal/chance", "internal/check", "internal/clock", "internal/keys", "internal/law", "internal/limits", "internal/nils", "internal/pacer", "internal/queue", "internal/signals"}
	for dir, may := range map[string][]string{
		".":                below,
		"delay":            append([]string{""}, below...),
		"shared":           append([]string{""}, below...),
		"internal/chance":  nil,
		"internal/check":   nil,
		"internal/clock":   nil,
		"internal/keys":    nil,
		"internal/law":     {"internal/clock"},
		"internal/limits":  {"internal/clock", "internal/queue"},
		"internal/mutate":  nil,
		"internal/nils":    nil,
		"internal/pacer":   {"internal/clock"},
		"internal/queue":   {"internal/clock"},
		"internal/signals": nil,
		"internal/swarm":   nil,
	} {
		pkg, err := build.ImportDir(filepath.FromSlash(dir), 0)
		require.NoError(t, err)
		for _, path := range pkg.Imports {
			assert.NotContains(t, []string{"net/http", "log/slog"}, path, "%s", dir)
			if rest, ours := strings.CutPrefix(path, module); ours {
				assert.True(t, slices.Contains(may, strings.TrimPrefix(rest, "/")), "%s imports %s", dir, path)
			}
		}
	}
}
