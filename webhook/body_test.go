package webhook

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/webhook/handlers"
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
