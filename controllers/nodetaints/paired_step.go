package nodetaints

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// step reconciles the paired taints of one node.
func (c *PairingController) step(ctx context.Context, name string) (time.Duration, error) {
	current := c.options.Policies.Current()
	if current == nil {
		return policiesPause, nil
	}
	var cached corev1.Node
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: name}, &cached); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if cachedPlan := planFor(current, c.options.Window, &cached); cachedPlan.empty() || cached.DeletionTimestamp != nil {
		return 0, nil
	}
	node, err := c.options.Nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read node %s: %w", name, err)
	}
	wanted := planFor(current, c.options.Window, node)
	if wanted.empty() {
		return 0, nil // The cache lags behind; its update needs no write.
	}
	return 0, c.write(ctx, node, &wanted)
}

func (c *PairingController) write(ctx context.Context, node *corev1.Node, wanted *plan) error {
	body, err := wanted.patch(node)
	if err != nil {
		return err
	}
	_, err = c.options.Nodes.Patch(ctx, node.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the taints of node %s: %w", node.Name, err)
	}
	c.report(ctx, node, wanted)
	return nil
}

// pairedOperation is one operation of a JSON patch.
type pairedOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     any    `json:"value,omitempty"`
}

// patch returns the JSON patch of the plan. It applies only to the node as it was read: it
// tests the UID and the resourceVersion.
func (p *plan) patch(node *corev1.Node) ([]byte, error) {
	operations := []pairedOperation{
		{"test", "/metadata/uid", node.UID},
		{"test", "/metadata/resourceVersion", node.ResourceVersion},
	}
	const list = "/spec/taints/"
	for _, change := range p.changes {
		switch change.operation {
		case operationAdd:
			operations = append(operations, pairedOperation{"add", list + "-", change.taint})
		case operationChange:
			operations = append(operations, pairedOperation{"replace", list + strconv.Itoa(change.index), change.taint})
		case operationRemove:
			operations = append(operations, pairedOperation{"remove", list + strconv.Itoa(change.index), nil})
		}
	}
	body, err := json.Marshal(append(operations, p.annotate(node)...))
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return body, nil
}

func (p *plan) annotate(node *corev1.Node) []pairedOperation {
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationTwins, "/", "~1")
	_, exists := node.Annotations[v1alpha1.AnnotationTwins]
	switch {
	case p.newRecord == "" && exists:
		return []pairedOperation{{"remove", path, nil}}
	case p.newRecord == p.oldRecord:
		return nil
	case len(node.Annotations) == 0:
		return []pairedOperation{{"add", "/metadata/annotations", map[string]string{v1alpha1.AnnotationTwins: p.newRecord}}}
	default:
		return []pairedOperation{{"add", path, p.newRecord}}
	}
}

// report counts the writes and records them in events and in the log.
func (c *PairingController) report(ctx context.Context, node *corev1.Node, wanted *plan) {
	reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	log := logr.FromContextOrDiscard(ctx).WithValues("node", node.Name)
	for _, change := range wanted.changes {
		c.options.Metrics.writes.WithLabelValues(change.operation).Inc()
		text := change.taint.ToString()
		log.Info("wrote a NoSchedule taint beside one of NoExecute", "operation", change.operation, "taint", text)
		if change.operation == operationRemove {
			c.options.Recorder.Eventf(reference, corev1.EventTypeNormal, "NoSchedulePairRemoved",
				"Removed the taint %s: no pod is given time of a taint that it stood beside any more", text)
			continue
		}
		c.options.Recorder.Eventf(reference, corev1.EventTypeNormal, "NoSchedulePaired",
			"Added the taint %s, which keeps pods from coming back that are given time before they are evicted", text)
	}
}
