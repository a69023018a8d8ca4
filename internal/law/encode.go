package law

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// encoding is the version of an encoded law. A law reads no other.
const encoding = 3

var errEncoding = errors.New("law: not an encoded law of this version")

// code replaces each number in the state of a law whose owner calls Used by what f makes of it. It
// leaves out calls in flight, latencies, and what Undo needs.
func (l *Law) code(f func(int64) int64) {
	m, p, c := &l.delivered, &l.ours, &l.closings
	for _, x := range []*float64{&l.rate, &l.ceiling, &l.peak, &l.cost, &l.given, &l.price, &l.spare, &l.unspread, &p.each, &l.apart, &l.vain} {
		*x = math.Float64frombits(uint64(f(int64(math.Float64bits(*x)))))
	}
	for _, flag := range []*bool{&m.begun, &l.certain} {
		n := int64(0)
		if *flag {
			n = 1
		}
		*flag = f(n) != 0
	}
	code(f, &l.measured, &l.known, &l.agreed, &l.fresh, &l.row, &l.peaked.calls, &l.opened.calls, &m.entries, &m.n, &m.base, &m.floor,
		&l.lowLeft, &l.lowSame, &l.resetLeft, &p.n, &p.left, &p.low, &l.calls, &l.left, &l.alone, &l.sunk, &l.chance.late)
	code(f, &l.credit, &l.heldAt, &l.resume, &m.since, &m.ends, &m.paused.from,
		&l.lowAt, &l.lowCutAt, &l.resetAt, &p.at, &l.jumpedAt, &l.seenAt)
	code(f, &l.closedAt, &l.shutAt, &l.peaked.total, &l.opened.total, &m.elapsed, &m.skipped, &m.paused.counts, &m.paused.skips, &m.baseAt,
		&l.longest, &l.every, &c[0], &c[1], &c[2], &c[3])
	last := entry{}
	for i := range m.ring {
		e := &m.ring[i]
		e.before = last.before + int(f(int64(e.before-last.before)))
		e.at = last.at + time.Duration(f(int64(e.at-last.at)))
		last = *e
	}
}

func code[T int | clock.Instant | time.Duration](f func(int64) int64, numbers ...*T) {
	for _, n := range numbers {
		*n = T(f(int64(*n)))
	}
}

// Append appends the encoded law to b: about a kilobyte.
func (l *Law) Append(b []byte) []byte {
	start := len(b)
	b = append(b, encoding, byte(len(l.delivered.ring)))
	l.code(func(n int64) int64 {
		b = binary.AppendVarint(b, n)
		return n
	})
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

// Decode takes over an encoded law. On an error l is not to be used.
func (l *Law) Decode(b []byte) error {
	end := len(b) - crc32.Size
	if end < 2 || b[0] != encoding || b[1] > memoryLong || crc32.ChecksumIEEE(b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return errEncoding
	}
	l.delivered.ring = make([]entry, b[1])
	b = b[2:end]
	l.code(func(int64) int64 {
		n, size := binary.Varint(b)
		b = b[max(0, size):]
		return n
	})
	return nil
}
