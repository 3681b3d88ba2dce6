package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// futureField is a field that this version does not know, and ofTheFuture its value, with all that
// would be judged elsewhere.
const (
	futureField = "zzFuture"
	ofTheFuture = `{
  "tolerations": [{"operator": "Exists"}], "containers": [{"name": "x", "resources": {"requests": {"example.com/gpu": "1"}}}],
  "nodeName": "n", "taints": [{"key": "dedicated", "effect": "NoExecute"}], "kind": "Node", "schedulingGates": [{"name": "a.example.com/b"}]
}`
)

// withFutureFields adds the field to an object, its metadata, its spec and its status, to the
// templates within, and to what is in their lists.
func withFutureFields(t *testing.T, object map[string]any) {
	t.Helper()
	var future any
	require.NoError(t, json.Unmarshal([]byte(ofTheFuture), &future))
	object[futureField] = future
	for name, member := range object {
		switch member := member.(type) {
		case map[string]any:
			if slices.Contains([]string{"metadata", "spec", "status", "template", "jobTemplate", "devices", "allocation", "exactly", "affinity", "nodeAffinity"}, name) {
				withFutureFields(t, member)
			}
		case []any:
			for _, item := range member {
				if item, ok := item.(map[string]any); ok && name != "managedFields" {
					withFutureFields(t, item)
				}
			}
		}
	}
}

// withoutFutureFields returns an answer without the field.
func withoutFutureFields(t *testing.T, answer answered) []byte {
	t.Helper()
	var decoded any
	require.NoError(t, json.Unmarshal(indented(t, answer), &decoded))
	var prune func(any)
	prune = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			delete(value, futureField)
			for _, member := range value {
				prune(member)
			}
		case []any:
			for _, item := range value {
				prune(item)
			}
		}
	}
	prune(decoded)
	return indented(t, decoded)
}

func TestB13FieldsOfANewerKubernetesChangeNoAnswer(t *testing.T) {
	cluster := loadCluster(t)
	tried := map[string]int{}
	for _, r := range readCorpus(t) {
		status, response := r.response(t)
		if len(r.Review) == 0 || r.Sent != nil || status != http.StatusOK || path.Base(path.Dir(r.name)) == malformed {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			var review map[string]any
			decoder := json.NewDecoder(bytes.NewReader(r.Review))
			decoder.UseNumber()
			require.NoError(t, decoder.Decode(&review))
			request, ok := review["request"].(map[string]any)
			require.True(t, ok)
			for _, name := range []string{"object", "oldObject"} {
				if object, ok := request[name].(map[string]any); ok {
					withFutureFields(t, object)
				}
			}
			changed := *r
			changed.Review = indented(t, review)
			require.NotEqual(t, string(r.Review), string(changed.Review))
			url := serving(t, cluster, r.Settings)
			// A patch that replaces a list keeps what it does not know of it.
			require.JSONEq(t, string(r.Answer), string(withoutFutureFields(t, changed.post(t, url))))
		})
		tried[r.endpoint]++
		if response.Allowed {
			tried["allowed"]++
		} else {
			tried["denied"]++
		}
	}
	for _, what := range []string{"mutate", "validate", "allowed", "denied"} {
		require.Greater(t, tried[what], 30, what)
	}
}
