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
const encoding = 2

var errEncoding = errors.New("law: not an encoded law of this version")

// numbers returns the state of a law whose owner calls Used: it needs no calls in flight, no
// latencies, and no Undo.
func (l *Law) numbers() ([]*float64, []*int, []*clock.Instant, []*time.Duration, []*bool) {
	m, p, c := &l.delivered, &l.ours, &l.closings
	return []*float64{&l.rate, &l.ceiling, &l.peak, &l.cost, &l.given, &l.price, &l.spare, &l.unspread, &p.each, &l.apart, &l.vain},
		[]*int{
			&l.measured, &l.known, &l.agreed, &l.fresh, &l.row, &l.peaked.calls, &l.opened.calls, &m.entries, &m.n, &m.base, &m.floor,
			&l.lowLeft, &l.lowSame, &l.resetLeft, &p.n, &p.left, &p.low, &l.calls, &l.left, &l.alone, &l.sunk, &l.chance.late,
		},
		[]*clock.Instant{
			&l.credit, &l.heldAt, &l.resume, &m.since, &m.ends, &m.paused.from,
			&l.lowAt, &l.lowCutAt, &l.resetAt, &p.at, &l.jumpedAt, &l.seenAt,
		},
		[]*time.Duration{
			&l.closedAt, &l.shutAt, &l.peaked.total, &l.opened.total, &m.elapsed, &m.skipped, &m.paused.counts, &m.paused.skips, &m.baseAt,
			&l.longest, &l.every, &c[0], &c[1], &c[2], &c[3],
		},
		[]*bool{&m.begun, &l.certain}
}

// Append appends the encoded law to b: about a kilobyte.
func (l *Law) Append(b []byte) []byte {
	start := len(b)
	fractions, counts, times, spans, flags := l.numbers()
	b = append(b, encoding, byte(len(l.delivered.ring)))
	for _, f := range fractions {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(*f))
	}
	for _, f := range flags {
		b, _ = binary.Append(b, binary.LittleEndian, *f)
	}
	for _, n := range counts {
		b = binary.AppendVarint(b, int64(*n))
	}
	for _, n := range times {
		b = binary.AppendVarint(b, int64(*n))
	}
	for _, n := range spans {
		b = binary.AppendVarint(b, int64(*n))
	}
	last := entry{}
	for _, e := range l.delivered.ring {
		b = binary.AppendVarint(binary.AppendVarint(b, int64(e.before-last.before)), int64(e.at-last.at))
		last = e
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

// Decode takes over an encoded law. On an error l is not to be used.
func (l *Law) Decode(b []byte) error {
	fractions, counts, times, spans, flags := l.numbers()
	end, fixed := len(b)-crc32.Size, 2+8*len(fractions)+len(flags)
	if end < fixed || b[0] != encoding || b[1] > memoryLong || crc32.ChecksumIEEE(b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return errEncoding
	}
	l.delivered.ring = make([]entry, b[1])
	for i, f := range fractions {
		*f = math.Float64frombits(binary.LittleEndian.Uint64(b[2+8*i:]))
	}
	for i, f := range flags {
		*f = b[fixed-len(flags)+i] != 0
	}
	b = b[fixed:end]
	next := func() int64 {
		n, size := binary.Varint(b)
		b = b[max(0, size):]
		return n
	}
	for _, n := range counts {
		*n = int(next())
	}
	for _, n := range times {
		*n = clock.Instant(next())
	}
	for _, n := range spans {
		*n = time.Duration(next())
	}
	last := entry{}
	for i := range l.delivered.ring {
		last = entry{last.before + int(next()), last.at + time.Duration(next())}
		l.delivered.ring[i] = last
	}
	return nil
}
