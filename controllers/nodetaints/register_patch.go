package nodetaints

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy/taint"
)

// operation is one operation of a JSON patch.
type operation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     any    `json:"value"`
}

// patch returns the JSON patch that adds taints to a node with timeAdded now, in whole
// seconds. It tests that a missing list is still absent, or the patch would replace a list
// that was created concurrently.
func patch(node *corev1.Node, missing []taint.Registered, now time.Time) ([]byte, error) {
	const list = "/spec/taints"
	operations := []operation{{"test", "/metadata/uid", node.UID}}
	if len(node.Spec.Taints) == 0 {
		operations = append(operations, operation{"test", list, nil}, operation{"add", list, []corev1.Taint{}})
	}
	for _, taint := range nodeTaints(missing, now) {
		operations = append(operations, operation{"add", list + "/-", taint})
	}
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return body, nil
}
