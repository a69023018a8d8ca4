package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	require.NoError(t, compare(t.Context(), 200, 20, 4, 60))
}
