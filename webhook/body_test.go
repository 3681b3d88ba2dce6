package webhook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

func TestE04ABodyThatDoesNotComeHoldsItsRoomNoLongerThanAVerdictIsOfUse(t *testing.T) {
	for name, tt := range map[string]struct {
		budget time.Duration
		query  string
		want   time.Duration
	}{
		"until the budget has run out":             {2 * time.Second, "", 2 * time.Second},
		"until the API server waits no longer":     {2 * time.Second, "?timeout=1s", 500 * time.Millisecond},
		"until it is late, however long is budget": {30 * time.Second, "", bodyTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options := testOptions()
				options.Budget = tt.budget
				client := pipeTo(t, newEndpoint(EndpointValidate, options, map[handlers.Resource]handlers.Handler{pods: allowAll}))
				start := time.Now()
				_, err := io.WriteString(client, "POST /validate"+tt.query+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, int64(1000), options.Bodies.used.Load())
				response, err := http.ReadResponse(bufio.NewReader(client), nil)
				require.NoError(t, err)
				require.Equal(t, tt.want, time.Since(start))
				require.Equal(t, http.StatusInternalServerError, response.StatusCode)
				require.Zero(t, options.Bodies.used.Load())
				text, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.Equal(t, "the body did not arrive in time\n", string(text))
				require.NoError(t, response.Body.Close())
			})
		})
	}
}

// What stands behind a body, or is missing of it, is never read as a review.
func TestA06ABodyOfAnotherLengthThanItsHeaderSays(t *testing.T) {
	var reviews atomic.Int64
	url := serveHandler(t, testOptions(), func(context.Context, *review.Request) (handlers.Result, error) {
		reviews.Add(1)
		return allowed(), nil
	})
	body := marshal(t, podReview(t, admissionv1.Create, simplePod, ""))
	const header = "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	length := func(more int) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)+more) }
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for name, tt := range map[string]struct {
		request string
		answers []int
		reviews int64
		// ends says that the client sends nothing more, and waits for the answer.
		ends bool
	}{
		"as long as it says":       {header + length(0) + "\r\n" + string(body), []int{http.StatusOK}, 1, false},
		"shorter than it says":     {header + length(1) + "\r\n" + string(body), []int{http.StatusBadRequest}, 0, true},
		"longer than it says":      {header + length(-1) + "\r\n" + string(body), []int{http.StatusBadRequest}, 0, false},
		"with a second review":     {header + length(0) + "\r\n" + string(body) + string(body), []int{http.StatusOK, http.StatusBadRequest}, 1, false},
		"of two lengths":           {header + length(0) + length(1) + "\r\n" + string(body), []int{http.StatusBadRequest}, 0, false},
		"of a negative length":     {header + "Content-Length: -1\r\n\r\n" + string(body), []int{http.StatusBadRequest}, 0, false},
		"of a length in words":     {header + "Content-Length: all\r\n\r\n" + string(body), []int{http.StatusBadRequest}, 0, false},
		"in an unknown encoding":   {header + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked, []int{http.StatusNotImplemented}, 0, false},
		"in chunks":                {header + "Transfer-Encoding: chunked\r\n\r\n" + chunked, []int{http.StatusOK}, 1, false},
		"in chunks that end early": {header + "Transfer-Encoding: chunked\r\n\r\n" + chunked[:len(chunked)/2], []int{http.StatusBadRequest}, 0, true},
		// Chunks count, as RFC 9112 says: nothing of the body is left that could be another request.
		"in chunks and with a length": {header + length(-10) + "Transfer-Encoding: chunked\r\n\r\n" + chunked, []int{http.StatusOK}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			reviews.Store(0)
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			_, err = io.WriteString(conn, tt.request)
			require.NoError(t, err)
			end := sync.OnceFunc(func() { _ = conn.(*net.TCPConn).CloseWrite() }) //nolint:forcetypeassert // It is one of TCP.
			if tt.ends {
				end()
			}
			answers := bufio.NewReader(conn)
			for _, want := range tt.answers {
				answer, err := http.ReadResponse(answers, nil)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, answer.Body)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, want, answer.StatusCode)
				end() // A client that ends before its answer has left.
			}
			_, err = answers.ReadByte()
			require.ErrorIs(t, err, io.EOF, "the connection is closed")
			require.Equal(t, tt.reviews, reviews.Load())
		})
	}
}

// A length beside chunks is how a request is hidden from a proxy: net/http obeys the chunks and
// says nothing of the length, so the connection ends with the answer.
func TestA06AConnectionEndsWithABodyInChunks(t *testing.T) {
	var reviews atomic.Int64
	url := serveHandler(t, testOptions(), func(context.Context, *review.Request) (handlers.Result, error) {
		reviews.Add(1)
		return allowed(), nil
	})
	body := marshal(t, podReview(t, admissionv1.Create, simplePod, ""))
	whole := requestOf(body)
	header, _, _ := strings.Cut(whole, "Content-Length:")
	chunked := fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for name, request := range map[string]string{
		"without a length":         header + chunked,
		"with their own length":    header + fmt.Sprintf("Content-Length: %d\r\n", len(chunked)) + chunked,
		"with a shorter length":    header + "Content-Length: 4\r\n" + chunked,
		"with a length beyond":     header + fmt.Sprintf("Content-Length: %d\r\n", len(chunked)+len(whole)) + chunked,
		"with a length behind":     header + strings.Replace(chunked, "\r\n\r\n", "\r\nContent-Length: 4\r\n\r\n", 1),
		"of a review that is none": header + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			reviews.Store(0)
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			_, err = io.WriteString(conn, request+whole)
			require.NoError(t, err)
			answers := bufio.NewReader(conn)
			answer, err := http.ReadResponse(answers, nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.True(t, answer.Close, "it says so")
			if name == "of a review that is none" {
				require.Equal(t, http.StatusBadRequest, answer.StatusCode)
				require.Zero(t, reviews.Load())
			} else {
				require.Equal(t, http.StatusOK, answer.StatusCode)
				require.Equal(t, int64(1), reviews.Load())
			}
			more, err := io.ReadAll(answers)
			if !errors.Is(err, syscall.ECONNRESET) { // It has not read what was behind.
				require.NoError(t, err)
			}
			require.Empty(t, more, "the request behind it is not answered")
			require.LessOrEqual(t, reviews.Load(), int64(1), "nor judged")
		})
	}
}
