package cruisehttp_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// inNamespace is set in the environment of a test that has a network of its own.
const inNamespace = "CRUISE_TEST_NAMESPACE"

// ownNetwork runs the test again, in a process that has a network of its own, and
// reports whether this is that process.
func ownNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Skipf("no network of one's own on this machine: %v", err)
	}
	err = cmd.Wait()
	if _, reason, skipped := strings.Cut(out.String(), "no wire: "); skipped {
		reason, _, _ = strings.Cut(reason, "\n")
		t.Skipf("no network of one's own on this machine: %s", reason)
	}
	require.NoError(t, err, "%s", &out)
	t.Logf("%s", &out)
	return false
}

// The two ends of a wire, as the kernel sees them: a packet to far comes back as if far had sent it
// to near. Between them TCP behaves as on a bad line: it sends again, backs off, and does not learn
// of an end that is gone.
const near, far = "10.99.0.1", "10.99.0.2"

// A wire carries packets as its fields say, which may be changed at any time.
type wire struct {
	tun *os.File

	late    atomic.Int64 // ns at most by which each packet comes later, and so in another order
	lost    atomic.Int64 // of a thousand
	doubled atomic.Int64 // of a thousand
	cut     atomic.Bool

	carried, dropped atomic.Int64
}

func newWire(t *testing.T) *wire {
	t.Helper()
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("no wire: /dev/net/tun: %v", err)
	}
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_TUN | syscall.IFF_NO_PI}
	copy(request.name[:], "wire")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		t.Fatalf("no wire: TUNSETIFF: %v", errno)
	}
	for _, args := range []string{"addr add " + near + "/24 dev wire", "link set wire up"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("no wire: ip %s: %v %s", args, err, out)
		}
	}
	w := &wire{tun: os.NewFile(uintptr(fd), "tun")}
	var group sync.WaitGroup
	group.Go(w.carry)
	t.Cleanup(func() {
		_ = w.tun.Close()
		group.Wait()
	})
	return w
}

func (w *wire) carry() {
	buffer := make([]byte, 1<<16)
	for {
		n, err := w.tun.Read(buffer)
		if err != nil {
			return
		}
		const version, source, destination, header = 0, 12, 16, 20
		if n < header || buffer[version]>>4 != 4 {
			continue
		}
		packet := append([]byte(nil), buffer[:n]...)
		// Both addresses change places, so that all checksums stay true.
		copy(packet[source:], buffer[destination:destination+4])
		copy(packet[destination:], buffer[source:source+4])
		times := 1
		switch at := rand.Int64N(1000); {
		case w.cut.Load() || at < w.lost.Load():
			times = 0
			w.dropped.Add(1)
		case at >= 1000-w.doubled.Load():
			times = 2
		}
		for range times {
			time.AfterFunc(time.Duration(rand.Int64N(w.late.Load()+1)), func() {
				if _, err := w.tun.Write(packet); err == nil {
					w.carried.Add(1)
				}
			})
		}
	}
}

// A bad line loses, doubles and overtakes packets of TCP itself, which a proxy
// cannot do; then it is cut, with connections open, and mended. No answer is lost
// or another request's, no POST is done twice, no call outlasts its bounds, and
// once the line is well again so are the calls.
func TestBadLine(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of real time")
	}
	if !ownNetwork(t) {
		return
	}
	nothingLeft(t)
	w := newWire(t)
	srv := serveFaultsAt(t, near+":0", func(string, int) *fault { return nil })
	_, port, err := net.SplitHostPort(srv.Addr().String())
	require.NoError(t, err)
	url := "http://" + net.JoinHostPort(far, port)
	base := &http.Transport{MaxIdleConnsPerHost: 20, DialContext: (&net.Dialer{Timeout: 500 * time.Millisecond}).DialContext}
	t.Cleanup(base.CloseIdleConnections)
	const elapsed, timeout = 2 * time.Second, 500 * time.Millisecond
	client := &http.Client{Transport: transport(t, base, cruisehttp.WithAttemptTimeout(timeout),
		cruisehttp.WithRetrierOptions(cruise.WithMaxElapsed(elapsed), cruise.WithTuning(cruise.Tuning{MinRate: 100})))}

	began := measure()
	var number atomic.Int64
	// work makes calls for a time, and returns how many got an answer.
	work := func(lasting time.Duration) (answered, failed int64) {
		var ok, bad atomic.Int64
		var group sync.WaitGroup
		until := time.Now().Add(lasting)
		for range 20 {
			group.Go(func() {
				for time.Now().Before(until) {
					n := number.Add(1)
					id, method := fmt.Sprint(n), []string{"GET", "PUT", "POST"}[n%3]
					begin := time.Now()
					resp, err := client.Do(request(t, method, url, strings.NewReader("body"), "X-Id: "+id))
					var got []byte
					if err == nil {
						got, err = io.ReadAll(resp.Body)
						_ = resp.Body.Close()
					}
					seen, done := srv.counts(id)
					if err == nil {
						ok.Add(1)
						assert.Equal(t, id+"body", string(got), "the answer to another request")
						assert.GreaterOrEqual(t, done, 1, "lost")
					} else {
						bad.Add(1)
					}
					if method == "POST" {
						assert.LessOrEqual(t, seen, 1, "done twice")
					}
					// The last attempt may begin when nearly all the time has passed.
					assert.Less(t, time.Since(begin), elapsed+timeout+2*time.Second, "%v", err)
				}
			})
		}
		group.Wait()
		return ok.Load(), bad.Load()
	}
	tell := func(what string, ok, bad int64) {
		t.Logf("%s: %d answered, %d failed; %d packets carried, %d lost", what, ok, bad, w.carried.Swap(0), w.dropped.Swap(0))
	}

	well := func(what string) {
		t.Helper()
		// A machine that is busy makes calls fail, too, but not each time.
		for range 5 {
			ok, bad := work(300 * time.Millisecond)
			tell(what, ok, bad)
			if ok > 0 && bad == 0 {
				return
			}
		}
		t.Fatal("calls go on failing")
	}
	well("a good line")

	w.late.Store(int64(20 * time.Millisecond))
	w.lost.Store(50)
	w.doubled.Store(50)
	ok, bad := work(2 * time.Second)
	tell("a bad line", ok, bad)
	assert.Greater(t, ok, 3*bad, "most calls get through")

	w.cut.Store(true)
	ok, bad = work(time.Second)
	tell("a line that is cut", ok, bad)
	assert.Positive(t, bad)

	w.cut.Store(false)
	w.lost.Store(0)
	w.doubled.Store(0)
	w.late.Store(0)
	well("a line that was mended")

	base.CloseIdleConnections()
	var now usage
	assert.Eventually(t, func() bool {
		now = measure()
		return now.goroutines <= began.goroutines+5 && now.files <= began.files+10
	}, 10*time.Second, 50*time.Millisecond, "began with %v, has %v", began, &now)
}
