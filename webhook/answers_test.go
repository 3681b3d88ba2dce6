package webhook

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	admissionv1 "k8s.io/api/admission/v1"
)

// manyFaults is a small review whose answer is larger than what a server buffers of it: each
// of its tolerations is refused.
func manyFaults(t *testing.T) []byte {
	t.Helper()
	tolerations := strings.Repeat(`{"key":"!"},`, 100)
	pod := `{"metadata":{"name":"p"},"spec":{"tolerations":[` + strings.TrimSuffix(tolerations, ",") + `]}}`
	return marshal(t, podReview(t, admissionv1.Create, pod, ""))
}

func requestOf(body []byte) string {
	return fmt.Sprintf("POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestA05AClientThatDoesNotReadItsAnswerHoldsNoRoomAndLosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := testConfig()
		client := pipeTo(t, Validate(config))
		_, err := io.WriteString(client, requestOf(manyFaults(t)))
		require.NoError(t, err)
		synctest.Wait() // The server writes into a pipe that is not read.
		require.Zero(t, config.Bodies.used.Load(), "the room is free for other reviews")

		start := time.Now()
		synctest.Wait()
		time.Sleep(writeTimeout + time.Millisecond)
		_, err = io.ReadAll(client)
		require.NoError(t, err, "the server has closed the connection")
		require.LessOrEqual(t, time.Since(start), 10*time.Second)
	})
}

// A client of HTTP/2 may grant no room for answers and keep its connection for ever.
func TestA05StreamsWithoutAWindowHoldNoRoom(t *testing.T) {
	config := testConfig()
	server := httptest.NewUnstartedServer(Validate(config))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{NextProtos: []string{"h2"}, InsecureSkipVerify: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	require.NoError(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))

	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for name, value := range map[string]string{
		":method": "POST", ":path": "/validate", ":scheme": "https", ":authority": "x",
	} {
		require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: name, Value: value}))
	}
	require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: "content-type", Value: "application/json"}))
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header.Bytes(), EndHeaders: true}))
	require.NoError(t, framer.WriteData(1, true, manyFaults(t)))

	// The header of the answer needs no window; its body waits for one, and is given up.
	answered := false
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	for {
		frame, err := framer.ReadFrame()
		require.NoError(t, err)
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				require.NoError(t, framer.WriteSettingsAck())
			}
		case *http2.HeadersFrame:
			answered = true
			require.Zero(t, config.Bodies.used.Load(), "the room is free before the answer is read")
		case *http2.RSTStreamFrame:
			require.True(t, answered)
			return
		}
	}
}
