package app_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/app"
)

func TestE06ConnectionsAreNotKeptOnceTheEndWasTold(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			shutdownCtx, shutdown := context.WithCancel(t.Context())
			defer shutdown()
			server := httptest.NewUnstartedServer(app.CloseConnections(shutdownCtx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNoContent)
			})))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			ended := false
			kept := func() bool {
				var kept bool
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { kept = info.Reused }})
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
				require.NoError(t, err)
				response, err := server.Client().Do(request)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				require.Equal(t, http.StatusNoContent, response.StatusCode)
				require.Equal(t, !http2 && ended, response.Close, "HTTP/1.1 asks for it in each answer")
				return kept
			}
			// The client returns connections asynchronously.
			until := func(want bool) {
				for deadline := time.Now().Add(time.Minute); kept() != want; time.Sleep(time.Millisecond) {
					require.True(t, time.Now().Before(deadline), "a connection is kept: want %t", want)
				}
			}
			require.False(t, kept(), "the first has a connection of its own")
			until(true)
			shutdown()
			ended = true
			kept() // The answer to this one asks for it.
			until(false)
		})
	}
}
