// Package keys bounds the length of the keys of scopes.
package keys

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"strings"
)

// Longest is the length up to which a key is kept as it is. A longer one is kept as its hash.
const Longest = 64

const digestLen = 16 // of the hash; the rest is 0

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Short returns a key of at most Longest+1 bytes in the place of a key of any length. It holds no
// memory of the caller's.
func Short(key string) string {
	if len(key) <= Longest {
		return strings.Clone(key)
	}
	sum := make([]byte, 0, Longest+1)
	for _, seed := range seeds {
		sum = binary.LittleEndian.AppendUint64(sum, maphash.String(seed, key))
	}
	return string(sum[:Longest+1]) // longer than any key kept as it is
}

// Text shows a short key: a digest is no text.
func Text(short string) string {
	if len(short) <= Longest {
		return short
	}
	return hex.EncodeToString([]byte(short[:digestLen]))
}
