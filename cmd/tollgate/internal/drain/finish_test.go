package drain_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/drain"
)

func TestE06AReviewThatIsUnderWayIsFinished(t *testing.T) {
	tests := map[string]struct {
		ends func(server, client context.CancelFunc)
		want error
	}{
		"when the server ends":                              {func(server, _ context.CancelFunc) { server() }, nil},
		"when the server ends, and then the client goes":    {func(server, client context.CancelFunc) { server(); client() }, nil},
		"but not when its client goes":                      {func(_, client context.CancelFunc) { client() }, context.Canceled},
		"but not when its client goes and the server after": {func(server, client context.CancelFunc) { client(); synctest.Wait(); server() }, context.Canceled},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				serving, end := context.WithCancel(context.WithValue(t.Context(), key{}, "log"))
				defer end()
				asked, hangUp := context.WithCancel(serving)
				defer hangUp()
				var left error
				var logs any
				handler := drain.Finish(serving, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					test.ends(end, hangUp)
					synctest.Wait()
					left, logs = r.Context().Err(), r.Context().Value(key{})
				}))
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(asked, http.MethodPost, "/validate", http.NoBody))
				require.ErrorIs(t, left, test.want)
				require.Equal(t, "log", logs, "it was asked, with what the server's context holds")
			})
		})
	}
}
