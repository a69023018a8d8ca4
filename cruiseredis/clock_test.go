package cruiseredis_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

// shim makes the clock of a program differ from the machine's by as many seconds
// as a file says.
const shim = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static volatile int64_t *offset;
__attribute__((constructor)) static void init(void) {
	int fd = open(getenv("CLOCK_OFFSET"), O_RDONLY);
	if (fd >= 0) offset = mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
}
int gettimeofday(struct timeval *tv, void *tz) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec + (offset ? *offset : 0);
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}
`

// The clock of Redis jumps: no call waits longer than before, no burst is sent, and a pause keeps
// its length.
func TestRedisClockJumps(t *testing.T) {
	t.Parallel()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler to make a clock that jumps")
	}
	dir := t.TempDir()
	source, library, offset := filepath.Join(dir, "shim.c"), filepath.Join(dir, "shim.so"), filepath.Join(dir, "offset")
	require.NoError(t, os.WriteFile(source, []byte(shim), 0o600))
	out, err := exec.Command(cc, "-shared", "-fPIC", "-o", library, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(offset, make([]byte, 8), 0o600))

	const hour = 3600
	for _, tt := range []struct {
		name string
		by   int64
	}{{"an hour back", -hour}, {"an hour ahead", hour}, {"ten years ahead", 10 * 365 * 24 * hour}} {
		t.Run(tt.name, func(t *testing.T) {
			jump := func(by int64) {
				f, err := os.OpenFile(offset, os.O_WRONLY, 0)
				require.NoError(t, err)
				defer f.Close()
				_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(by)))
				require.NoError(t, err)
			}
			jump(0)
			s := &server{t: t, port: freePort(t), env: []string{"LD_PRELOAD=" + library, "CLOCK_OFFSET=" + offset}}
			s.addr = "127.0.0.1:" + s.port
			s.start()
			t.Cleanup(s.kill)
			c := s.client()
			before := c.Time(t.Context()).Val()
			jump(tt.by)
			if d := c.Time(t.Context()).Val().Sub(before); d.Abs() < 30*time.Minute {
				t.Skipf("this redis-server reads its clock in another way: it moved by %v", d)
			}
			jump(0)

			scope := scopeOf(t)
			workers := fleet(t, 4, s.addr, scope, steady(100, patient)...)
			tr := drive(t, workers, 2)
			meet(t, workers, tr)
			jump(tt.by)
			time.Sleep(1500 * time.Millisecond)
			assert.Less(t, tr.longest(), time.Second+slack())
			recovers(t, workers) // at once, but where the machine stood still
			workers[0].Pause(3 * time.Second)
			paused := time.Now()
			time.Sleep(time.Second)
			jump(2 * tt.by)
			workers[1].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1}) // which asks Redis
			time.Sleep(500 * time.Millisecond)
			late := fleet(t, 1, s.addr, scope, steady(100, patient)...)
			require.NoError(t, late[0].WaitN(t.Context(), 1))
			took := time.Since(paused)
			assert.Greater(t, took, 3*time.Second-slack(), "a later call waits for the pause, too")
			if tt.by < 0 {
				took -= time.Second // from the last sync to the jump, for which there is no telling
			}
			assert.Less(t, took, 3*time.Second+2*slack())
			tr.stop()
			assert.Zero(t, tr.count(paused.Add(500*time.Millisecond+slack()), 2500*time.Millisecond-2*slack()))
			assert.LessOrEqual(t, tr.worst(), crowded())
			assert.Empty(t, tr.failed)
			require.NoError(t, c.Ping(t.Context()).Err())
		})
	}
}
