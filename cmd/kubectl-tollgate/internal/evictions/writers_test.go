package evictions

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

func TestThatItIsNotAskedWhoWroteIsSaid(t *testing.T) {
	t.Parallel()
	list := make([]Eviction, maxObjects+1)
	for i := range list {
		list[i].Because = []decide.Reason{{Taint: tracker.Taint{Source: tracker.Source{Kind: tracker.SourceNode, Name: strconv.Itoa(i)}}}}
	}
	found := &state.Cluster{}
	require.NoError(t, AddWriters(t.Context(), nil, found, list))
	require.Equal(t, []string{"who wrote the taints is not said: they are of 51 objects, and it is asked of 50 at most. Narrow the list"}, found.Missing())
}

func TestWhoWroteAFieldLastIsNamed(t *testing.T) {
	t.Parallel()
	entry := func(manager string, minute int, fields string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC))
		return metav1.ManagedFieldsEntry{Manager: manager, Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	entries := []metav1.ManagedFieldsEntry{
		entry("kubelet", 9, `{"f:status":{"f:taints":{}}}`),
		entry("kubectl-taint", 2, `{"f:spec":{"f:taints":{}}}`),
		entry("operator", 5, `{"f:spec":{"f:taints":{".":{},"k:{\"key\":\"a\"}":{}}}}`),
		entry("other", 7, `{"f:spec":{"f:unschedulable":{}}}`),
		entry("broken", 8, `[`),
		{Manager: "nobody"},
	}
	manager := func(path ...string) string {
		if last := LastWriter(&metav1.ObjectMeta{ManagedFields: entries}, path...); last != nil {
			return last.Manager
		}
		return ""
	}
	require.Equal(t, "operator", manager("f:spec", "f:taints"))
	require.Equal(t, "other", manager("f:spec", "f:unschedulable"))
	require.Empty(t, manager("f:spec", "f:podCIDR"))
	require.Nil(t, LastWriter(&metav1.ObjectMeta{}, "f:spec"))
}
