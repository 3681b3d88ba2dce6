package safety

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// prefix is that of the keys of all taints here.
const prefix = "safety.example.com/"

// taint puts a taint on nodes, and returns the times that it got by the names of the
// nodes. It goes when the test is over.
func taint(t *testing.T, key string, nodes ...int) map[string]time.Time {
	t.Helper()
	t.Cleanup(func() { untaint(t, nodes...) })
	times := map[string]time.Time{}
	for _, number := range nodes {
		node := patchNode(t, number, `{"spec":{"taints":[{"key":"`+key+`","effect":"NoExecute"}]}}`)
		for _, got := range node.Spec.Taints {
			if got.Key == key && got.TimeAdded != nil {
				times[node.Name] = got.TimeAdded.Time
			}
		}
	}
	require.Len(t, times, len(nodes), "admission writes the time of a taint")
	return times
}

// untaint takes all taints off nodes.
func untaint(t *testing.T, nodes ...int) {
	t.Helper()
	for _, number := range nodes {
		patchNode(t, number, `{"spec":{"taints":null}}`)
	}
}

func patchNode(t *testing.T, number int, patch string) *corev1.Node {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	node, err := clientOf(t).CoreV1().Nodes().
		Patch(ctx, controlplane.NodeName(number), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	return node
}

// waitEvent waits for an event on an object whose message has all of some words.
func waitEvent(t *testing.T, namespace, object, reason string, words ...string) {
	t.Helper()
	events := clientOf(t).CoreV1().Events(namespace)
	eventually(t, reason+" on "+object, func(ctx context.Context) error {
		list, err := events.List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}
		var messages []string
		for i := range list.Items {
			about := list.Items[i].InvolvedObject.Name
			if about == object && hasAll(list.Items[i].Message, words) {
				return nil
			}
			messages = append(messages, about+": "+list.Items[i].Message)
		}
		return fmt.Errorf("none says %q, only %q", words, messages)
	})
}

func hasAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}
