package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// resets are the streams that are opened and reset.
	resets = 10_000
	// mostStreams is how many a connection may have at a time.
	mostStreams = 100
	// endlessHeader is far beyond what a header may have, and what is underway on loopback.
	endlessHeader = 64 << 20
	readHeader    = 16 << 20
)

// frames is a connection over HTTP/2 on which a client sends what it likes.
type frames struct {
	*http2.Framer

	conn net.Conn
	// ended is closed when the server has ended the connection.
	ended chan struct{}
	// settings are those of the server, and gone is why it ended the connection.
	mu       sync.Mutex
	settings map[http2.SettingID]uint32
	gone     string
}

func newFrames(ctx context.Context, roots *x509.CertPool) (*frames, error) {
	dialer := tls.Dialer{NetDialer: dialer(attackerAddress), Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(tollgate.WebhookURL, "https://"))
	if err != nil {
		return nil, err
	}
	f := &frames{Framer: http2.NewFramer(conn, conn), conn: conn, ended: make(chan struct{}), settings: map[http2.SettingID]uint32{}}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	if err := f.WriteSettings(); err != nil {
		return nil, err
	}
	reading := http2.NewFramer(io.Discard, conn)
	first, err := reading.ReadFrame()
	if err != nil {
		return nil, err
	}
	f.take(first)
	if err := f.WriteSettingsAck(); err != nil {
		return nil, err
	}
	go func() {
		defer close(f.ended)
		for {
			frame, err := reading.ReadFrame()
			if err != nil {
				return
			}
			f.take(frame)
		}
	}()
	return f, nil
}

// take notes what the server says of the connection.
func (f *frames) take(frame http2.Frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		_ = frame.ForeachSetting(func(s http2.Setting) error {
			f.settings[s.ID] = s.Val
			return nil
		})
	case *http2.GoAwayFrame:
		f.gone = fmt.Sprintf("%s %s", frame.ErrCode, frame.DebugData())
	}
}

func (f *frames) close() {
	_ = f.conn.Close()
	<-f.ended
}

// header encodes the header of a review.
func header(of *hpack.Encoder, into *bytes.Buffer) []byte {
	into.Reset()
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "tollgate"},
		{Name: ":path", Value: "/validate"},
		{Name: "content-type", Value: "application/json"},
		{Name: "content-length", Value: "1000"},
	} {
		_ = of.WriteField(field) // into memory
	}
	return into.Bytes()
}

// reset opens streams and resets them, until the server ends the connection or it was that many.
func (f *frames) reset(most int) (n int) {
	var into bytes.Buffer
	encoder := hpack.NewEncoder(&into)
	for ; n < most; n++ {
		stream := uint32(2*n + 1)
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header(encoder, &into), EndHeaders: true}) != nil {
			return n
		}
		if f.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			return n
		}
	}
	return n
}

// A server starts a handler for each stream, also for those that the client resets at once
// (CVE-2023-44487).
func TestA07StreamsThatAreResetAtOnceLeaveNothingBehind(t *testing.T) {
	roots := caBundle(t)
	quiet := atRest(t)
	before, _ := memory(t)
	forgetMost(t)
	ordinaryReviews := goOn(t, roots)
	opened, connections, gone := 0, 0, map[string]int{}
	for opened < resets {
		f, err := newFrames(t.Context(), roots)
		require.NoError(t, err)
		require.Equal(t, uint32(mostStreams), f.settings[http2.SettingMaxConcurrentStreams])
		n := f.reset(resets - opened)
		opened += n
		connections++
		f.close()
		gone[f.gone]++
		require.Positive(t, n)
	}
	_, most := memory(t)
	ordinaryReviews(func(m *measurement) {
		t.Logf("%d streams on %d connections, ended for %v; memory %.0f MiB before, %.0f MiB at most; reviews meanwhile: %v",
			opened, connections, gone, mebibytes(before), mebibytes(most), m)
		require.Empty(t, m.failures())
	})
	require.LessOrEqual(t, most, int64(memoryLimit))
	t.Logf("at rest again after %s", quiet.requireAgain(t).Round(time.Millisecond))
}

// A header that goes on in CONTINUATION frames without end (CVE-2023-45288).
func TestA07AHeaderWithoutEndEndsTheConnection(t *testing.T) {
	roots := caBundle(t)
	quiet := atRest(t)
	before, _ := memory(t)
	forgetMost(t)
	ordinaryReviews := goOn(t, roots)
	for range 10 {
		f, err := newFrames(t.Context(), roots)
		require.NoError(t, err)
		var into bytes.Buffer
		encoder := hpack.NewEncoder(&into)
		require.NoError(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header(encoder, &into)}))
		sent := 0
		for n := 0; sent < endlessHeader; n++ {
			into.Reset()
			require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: fmt.Sprintf("x-%d", n), Value: strings.Repeat("y", 8<<10), Sensitive: true}))
			if f.WriteContinuation(1, false, into.Bytes()) != nil {
				break
			}
			sent += into.Len()
		}
		select {
		case <-f.ended:
		case <-time.After(calmed):
			t.Fatal("the server did not end the connection")
		}
		require.Less(t, sent, readHeader, "it is not read to its end")
		f.close()
	}
	_, most := memory(t)
	ordinaryReviews(func(m *measurement) {
		t.Logf("memory %.0f MiB before, %.0f MiB at most; reviews meanwhile: %v", mebibytes(before), mebibytes(most), m)
		require.Empty(t, m.failures())
	})
	require.LessOrEqual(t, most, int64(memoryLimit))
	t.Logf("at rest again after %s", quiet.requireAgain(t).Round(time.Millisecond))
}

// goOn sends ordinary reviews from another address until the function that it returns is called,
// which is told what became of them.
func goOn(t *testing.T, roots *x509.CertPool) (end func(tell func(*measurement))) {
	t.Helper()
	halted, halt := context.WithCancel(t.Context())
	caller := newCaller(roots, "127.0.0.1")
	caller.Timeout = time.Minute // The attacker shares the processors with it.
	m := &measurement{}
	var running sync.WaitGroup
	running.Go(func() {
		every(halted, time.Hour, perSecond, func() { //nolint:contextcheck // A review that was sent is waited for.
			began := time.Now()
			allowed, err := caller.askAt(t.Context(), "/validate?timeout=30s", review(ordinary, "default", ""))
			m.note(time.Since(began), allowed, err)
		})
	})
	t.Cleanup(func() {
		halt()
		running.Wait()
	})
	return func(tell func(*measurement)) {
		halt()
		running.Wait()
		tell(m)
	}
}
