package keys

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShort(t *testing.T) {
	longest := strings.Repeat("k", Longest)
	for _, key := range []string{"", "customer 7", longest} {
		assert.Equal(t, key, Short(key))
		assert.Equal(t, key, Text(Short(key)))
	}
	long := Short(longest + "k")
	assert.Len(t, long, Longest+1)
	assert.Equal(t, long, Short(longest+"k"))
	assert.NotEqual(t, long, Short(longest+"l"))
	assert.Regexp(t, "^[0-9a-f]{32}$", Text(long))
}
