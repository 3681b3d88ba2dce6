package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func entry(user, verb, resource, subresource, code string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":"` + verb +
		`","user":{"username":"` + user + `"},"objectRef":{"resource":"` + resource + `","subresource":"` + subresource +
		`"},"responseStatus":{"metadata":{},"code":` + code + `}}` + "\n"
}

func TestCountRequests(t *testing.T) {
	tests := map[string]struct {
		log  string
		want requests
	}{
		"nothing was asked": {},
		"each kind of request is counted for itself": {
			log: entry(tollgateUser, "get", "pods", "", "200") +
				entry(tollgateUser, "patch", "pods", "status", "200") +
				entry(tollgateUser, "delete", "pods", "", "200") +
				entry(tollgateUser, "create", "events", "", "201") +
				entry(tollgateUser, "patch", "events", "", "200") +
				entry(tollgateUser, "get", "nodes", "", "200"),
			want: requests{gets: 1, marks: 1, deletes: 1, deleted: 1, events: 2, others: 1},
		},
		"an eviction is a deletion by another request": {
			log:  entry(tollgateUser, "create", "pods", "eviction", "201"),
			want: requests{deletes: 1, deleted: 1},
		},
		"a request that is refused and tried again counts twice": {
			log: entry(tollgateUser, "delete", "pods", "", "429") +
				entry(tollgateUser, "delete", "pods", "", "409") +
				entry(tollgateUser, "delete", "pods", "", "200"),
			want: requests{deletes: 3, deleted: 1, throttled: 1, conflicts: 1},
		},
		"requests of others do not count": {
			log:  entry(builtinNodeUser, "delete", "pods", "", "200"),
			want: requests{},
		},
		"a line that is still being written waits": {
			log:  entry(tollgateUser, "delete", "pods", "", "200") + `{"verb":"del`,
			want: requests{deletes: 1, deleted: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := countRequests([]byte(test.log), tollgateUser)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestALineThatIsNoEntryIsAnError(t *testing.T) {
	_, err := countRequests([]byte("not JSON\n"), tollgateUser)
	require.Error(t, err)
}

func TestRequestsAPod(t *testing.T) {
	r := requests{gets: 1, marks: 2, deletes: 3, events: 4, others: 5, deleted: 100, throttled: 100, conflicts: 100}
	require.Equal(t, 15, r.total(), "an answer is not one more request")
	require.InDelta(t, 1.5, r.perPod(10), 0)
}

func TestOnlyWhatWasWrittenSinceIsRead(t *testing.T) {
	log := auditLog{path: filepath.Join(t.TempDir(), "audit.log")}
	offset, err := log.size()
	require.NoError(t, err, "the API server has written nothing yet")
	require.Zero(t, offset)

	line := entry(builtinNodeUser, "delete", "pods", "", "200")
	require.NoError(t, os.WriteFile(log.path, []byte(line+line), 0o600))
	all, err := log.since(offset, builtinNodeUser)
	require.NoError(t, err)
	require.Equal(t, 2, all.deletes)

	last, err := log.since(int64(len(line)), builtinNodeUser)
	require.NoError(t, err)
	require.Equal(t, 1, last.deletes)
}

func TestAnEvictorThatNeverFallsSilentIsNotWaitedForForEver(t *testing.T) {
	log := auditLog{path: filepath.Join(t.TempDir(), "audit.log")}
	require.NoError(t, os.WriteFile(log.path, nil, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := log.settled(ctx, 0, builtinNodeUser)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
