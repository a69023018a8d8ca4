package cruisegrpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/a7df5faa/cruise"
)

// Stream returns the interceptor of streaming calls. An attempt of a stream ends when its first
// message arrives, or it fails before: then it may be retried, with the messages sent so far. A
// failure after the first message is not retried, and the limiter does not learn of it. Asking for
// the stream's Header or Context ends retries too.
//
// Until its first message a stream is a call in flight. So streams that are silent for long, such
// as subscriptions, open at one a second at first, unless [cruise.WithInitialRate] sets the first
// rate.
//
// While RecvMsg waits for a retry, it does not return before the wait ends, even if messages sent
// meanwhile, or the end of the connection, have made the retry impossible.
//
// As for every gRPC stream, its resources are freed when its context ends, its
// connection is closed, or RecvMsg has returned an error.
func (i *Interceptor) Stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if i.isZero() {
			return nil, errZeroInterceptor
		}
		s := &stream{call: i.call(ctx, method, cc, opts), single: !desc.ServerStreams, limit: i.buffer}
		s.opts = append(s.opts, grpc.OnFinish(s.finished))
		s.open = func(ctx context.Context) (grpc.ClientStream, error) {
			return streamer(ctx, desc, cc, method, s.opts...)
		}
		s.next, s.stop = pull(s.retrier.Attempts(ctx, s.cost))
		if err := s.advance(nil); err != nil {
			return nil, err
		}
		// This needs a stream: until there is one, attempts end with ctx anyway.
		s.turn.Lock()
		defer s.turn.Unlock()
		s.release = context.AfterFunc(ctx, s.abandon)
		return s, nil
	}
}

// stream is a ClientStream around the gRPC stream of the present attempt. A retry replaces that
// stream.
//
// Only NewStream and RecvMsg replace it, so they may read it at any time. mu holds senders back
// meanwhile, and until the earlier messages are sent again. A send can block for as long as the
// server does not read, so RecvMsg waits for mu only when the attempt has failed, which ends such a
// send. CloseSend never blocks, so it does without mu.
type stream struct {
	*call
	open   func(context.Context) (grpc.ClientStream, error)
	single bool // one message at most will arrive
	limit  int  // of bytes kept

	current   atomic.Pointer[opened]
	committed atomic.Bool // to the current attempt

	mu    sync.Mutex // guards the fields below, and sending
	sent  []any
	bytes int

	closing   sync.Mutex // guards the fields below, and which stream is the current one
	closed    bool
	replaying bool // and closes afterwards

	turn    sync.Mutex // guards the fields below
	next    func() (*cruise.Attempt, error, bool)
	stop    func()
	release func() bool     // nil until there is a stream
	attempt *cruise.Attempt // nil when the last one has ended
}

// opened is the stream of one attempt.
type opened struct {
	grpc.ClientStream
	attempt context.Context
	cancel  context.CancelFunc
	detach  func() bool // so that the end of the attempt isn't that of the stream
	replay  sync.WaitGroup
}

// free ends the stream, and returns when no goroutine sends on it any more.
func (o *opened) free() {
	o.cancel()
	o.replay.Wait()
}

// advance ends an attempt that failed with err, if any, and begins another one if that is worth it.
// Otherwise it returns the final error of the stream.
func (s *stream) advance(err error) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	returned := false
	defer func() {
		if !returned { // the streamer has panicked
			s.end()
		}
	}()
	err = s.another(err)
	returned = true
	return err
}

// another is advance; turn must be held.
func (s *stream) another(err error) error {
	for {
		if err != nil {
			if s.attempt == nil {
				return shown(s.ctx, err)
			}
			s.attempt.Done(err)
		}
		attempt, gaveUp, ok := s.next()
		s.attempt = attempt
		switch {
		case gaveUp != nil:
			s.end()
			return surface(s.ctx, gaveUp)
		case !ok || err != nil && s.committed.Load(): // while we waited
			s.end()
			return shown(s.ctx, err)
		}
		failure, begun := s.begin(attempt)
		switch {
		case failure != nil:
			err = failure
		case !begun:
			s.end()
			return shown(s.ctx, err)
		default:
			return nil
		}
	}
}

// begin opens the stream of an attempt and sends the earlier messages on it. It does not begin if
// those messages are no longer kept.
func (s *stream) begin(attempt *cruise.Attempt) (failure error, begun bool) {
	// The attempt's context ends with the attempt, and the stream must not.
	ctx, cancel := context.WithCancel(mixed{s.ctx, attempt.Context()})
	detach := context.AfterFunc(attempt.Context(), func() {
		if s.ctx.Err() == nil { // else ctx ends by itself, and tells whether by a deadline
			cancel()
		}
	})
	cs, err := s.open(s.call.begin(ctx))
	if err != nil {
		detach()
		cancel()
		err = s.tookLong(attempt.Context(), err, "cruisegrpc: no stream within the time of one attempt: "+status.Convert(err).Message())
		return s.failed(err, nil, false), false
	}
	s.mu.Lock()
	if s.committed.Load() {
		s.mu.Unlock()
		detach()
		cancel()
		return nil, false
	}
	o := &opened{ClientStream: cs, attempt: attempt.Context(), cancel: cancel, detach: detach}
	s.closing.Lock()
	if s.committed.Load() { // the caller has asked for the context of the last stream meanwhile
		s.closing.Unlock()
		s.mu.Unlock()
		detach()
		cancel()
		return nil, false
	}
	s.current.Store(o)
	s.replaying = true
	s.closing.Unlock()
	if len(s.sent) == 0 {
		s.replay(o)
	} else {
		// RecvMsg must receive meanwhile: a server that can send no more may not
		// read on.
		o.replay.Go(func() { s.replay(o) })
	}
	return nil, true
}

// replay sends the earlier messages on a new stream. It is called with mu held, and unlocks it.
func (s *stream) replay(o *opened) {
	defer s.mu.Unlock()
	for _, m := range s.sent {
		if o.SendMsg(m) != nil {
			break // RecvMsg will say why
		}
	}
	s.closing.Lock()
	defer s.closing.Unlock()
	s.replaying = false
	if s.closed {
		_ = o.CloseSend() // never fails, by its contract
	}
}

// broken returns the error of an attempt that failed after its stream was opened.
func (s *stream) broken(cs *opened, err error) error {
	return s.failed(s.tookLong(cs.attempt, err, "cruisegrpc: no message within the time of one attempt"), cs.Trailer(), true)
}

// tookLong returns err, or DEADLINE_EXCEEDED if gRPC reports a cancellation because the time of the
// attempt is over.
func (s *stream) tookLong(attempt context.Context, err error, text string) error {
	if status.Code(err) != codes.Canceled || !errors.Is(attempt.Err(), context.DeadlineExceeded) || errors.Is(s.ctx.Err(), context.Canceled) {
		return err
	}
	return status.Error(codes.DeadlineExceeded, text)
}

// end lets the loop over attempts go; turn must be held.
func (s *stream) end() {
	s.attempt = nil
	s.stop()
	if s.release != nil {
		s.release()
	}
}

// settle ends the attempts with the result of the last one, which will not be retried.
func (s *stream) settle(err error) {
	s.committed.Store(true)
	s.turn.Lock()
	defer s.turn.Unlock()
	s.last(err)
}

// last is settle; turn must be held.
func (s *stream) last(err error) {
	if s.attempt == nil {
		return
	}
	if cs := s.current.Load(); cs != nil {
		cs.detach()
	}
	if s.mu.TryLock() { // else a message is being sent, and the next one lets go of them
		s.sent = nil
		s.mu.Unlock()
	}
	defer s.end() // a classifier may panic
	s.attempt.Done(err)
	if err == nil {
		s.next()
	}
}

// abandon runs at the end of the caller's context or of the connection, in case the caller reads no
// more.
func (s *stream) abandon() {
	s.committed.Store(true)
	s.turn.Lock()
	defer s.turn.Unlock()
	s.end()
	if cs := s.current.Load(); cs != nil && s.ctx.Err() == nil {
		cs.cancel()
	}
}

// finished runs when gRPC reports that the stream of an attempt has ended, and why.
func (s *stream) finished(err error) {
	//lint:ignore SA1019 a server may cancel too, with the same code
	if err == grpc.ErrClientConnClosing {
		go s.abandon() // the goroutine that opens a stream has the turn
	}
}

// RecvMsg receives a message. The first message may take several attempts.
func (s *stream) RecvMsg(m any) error {
	for {
		cs := s.current.Load()
		err := cs.RecvMsg(m)
		switch {
		case err == nil || errors.Is(err, io.EOF):
			s.settle(nil)
			if err != nil || s.single {
				cs.free()
			}
			return err
		case s.committed.Load():
			failure := s.broken(cs, err)
			s.settle(failure)
			cs.free()
			return shown(s.ctx, failure)
		}
		failure := s.broken(cs, err)
		cs.detach()
		cs.free()
		if err := s.advance(failure); err != nil {
			return err
		}
	}
}

// SendMsg sends a message and keeps it for a retry.
func (s *stream) SendMsg(m any) error {
	cs, err := s.send(m)
	if err != nil && !errors.Is(err, io.EOF) {
		s.committed.Store(true)
		defer cs.cancel()
		if s.turn.TryLock() { // else RecvMsg may be backing off, and sees it then
			defer s.turn.Unlock()
			s.last(s.failed(err, nil, true))
		}
	}
	return err
}

func (s *stream) send(m any) (*opened, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size := sizeOf(m); s.bytes+size <= s.limit && !s.committed.Load() {
		s.sent, s.bytes = append(s.sent, m), s.bytes+size
	} else {
		s.sent = nil
		s.committed.Store(true)
	}
	cs := s.current.Load()
	err := cs.SendMsg(m)
	if errors.Is(err, io.EOF) && !s.committed.Load() {
		err = nil // RecvMsg will find out why, and may send it again
	}
	return cs, err
}

// CloseSend says that nothing more will be sent.
func (s *stream) CloseSend() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	s.closed = true
	if s.replaying {
		return nil
	}
	return s.current.Load().CloseSend()
}

// Header waits for the server's header, and ends retries.
func (s *stream) Header() (metadata.MD, error) {
	s.committed.Store(true)
	cs := s.current.Load()
	header, err := cs.Header()
	if err != nil {
		s.settle(s.failed(err, nil, true))
	}
	return header, err
}

// Trailer returns the trailer of the last attempt.
func (s *stream) Trailer() metadata.MD { return s.current.Load().Trailer() }

// Context returns the context of the stream, and ends retries: another stream would have
// another context, and this one be cancelled.
func (s *stream) Context() context.Context {
	s.closing.Lock() // so that no other stream takes its place in between
	defer s.closing.Unlock()
	s.committed.Store(true)
	return s.current.Load().Context()
}

// sizeOf returns the size of a message with the 5 bytes that gRPC puts before it. They bound the
// number of empty messages that are kept.
func sizeOf(m any) int {
	if m, ok := m.(proto.Message); ok {
		return 5 + proto.Size(m)
	}
	return 16 << 10
}

// mixed is one context with the values of another.
type mixed struct {
	context.Context
	values context.Context
}

func (m mixed) Value(key any) any { return m.values.Value(key) }
