package cruiseredis_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
	"github.com/a7df5faa/cruise/shared"
)

// workerAddr is the variable that makes this test's binary a worker, of the Redis
// that it names.
const workerAddr = "CRUISE_TEST_WORKER"

// A worker process that was stopped while it had slots sends none of them when it
// goes on: Redis is gone by then and there is no fallback, so any call would be by a
// slot of before.
func TestStoppedWorkerHasNoStaleSlots(t *testing.T) {
	if addr := os.Getenv(workerAddr); addr != "" {
		l, err := cruiseredis.NewLimiter(redis.NewClient(&redis.Options{Addr: addr}), "stopped",
			steady(100, patient, shared.WithFallback(shared.FallbackClosed))...)
		require.NoError(t, err)
		for l.WaitN(t.Context(), 1) == nil {
			fmt.Println("call")
			l.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 1})
		}
		return
	}
	t.Parallel()
	s := startRedis(t)
	worker := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=5m")
	worker.Env = append(os.Environ(), workerAddr+"="+s.addr)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer out.Close()
	worker.Stdout = out
	require.NoError(t, worker.Start())
	t.Cleanup(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	})
	calls := func() int64 {
		info, err := out.Stat()
		require.NoError(t, err)
		return info.Size() / int64(len("call\n"))
	}
	require.Eventually(t, func() bool { return calls() > 150 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, worker.Process.Signal(syscall.SIGSTOP))
	_, err = syscall.Wait4(worker.Process.Pid, nil, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	before := calls()
	s.kill()
	time.Sleep(10 * time.Second)
	require.NoError(t, worker.Process.Signal(syscall.SIGCONT))
	time.Sleep(2 * time.Second)
	assert.LessOrEqual(t, calls(), before+1, "but for one that had left the limiter")
	s.start()
	require.Eventually(t, func() bool { return calls() > before+10 }, time.Minute, 10*time.Millisecond, "it goes on with Redis")
}
