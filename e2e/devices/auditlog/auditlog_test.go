package auditlog_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
)

const content = `{"verb":"patch","objectRef":{"resource":"pods","subresource":"status","namespace":"ns","name":"a"},"responseStatus":{"code":200}}
{"verb":"delete","objectRef":{"resource":"pods","namespace":"ns","name":"a"},"responseStatus":{"code":409}}
{"verb":"delete","objectRef":{"resource":"pods","namespace":"ns","name":"a"},"responseStatus":{"code":200},"requestObject":{"kind":"DeleteOptions","preconditions":{"uid":"1"}},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z"}
{"verb":"delete","objectRef":{"resource":"pods","namespace":"other","name":"a"},"responseStatus":{"code":200}}
{"verb":"get","requestURI":"/version","responseStatus":{"code":200}}
{"verb":"delete","objectRef":{"resource":"pods","namespace":"ns","name":"b"},"respon`

func TestLog(t *testing.T) {
	log, args, err := auditlog.New(t.TempDir(), "kind: Policy")
	require.NoError(t, err)
	require.Len(t, args, 3)
	policy, ok := strings.CutPrefix(args[0], "--audit-policy-file=")
	require.True(t, ok)
	require.FileExists(t, policy)
	path, ok := strings.CutPrefix(args[1], "--audit-log-path=")
	require.True(t, ok)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))

	events, err := log.Read(func(event *auditv1.Event) bool { return event.ObjectRef.Namespace == "ns" })
	require.NoError(t, err)
	require.Equal(t, map[string]int{"patch pods/status 200": 1, "delete pods 409": 1, "delete pods 200": 1}, auditlog.Count(events))
	require.Equal(t, []auditlog.Deletion{{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"},
		UID:            "1",
		At:             time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}}, auditlog.Deletions(events))
}
