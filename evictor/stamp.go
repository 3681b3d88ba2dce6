package evictor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/tracker"
)

// lackTime reports whether a taint has no time.
func lackTime(taints []tracker.Taint) bool {
	return slices.ContainsFunc(taints, func(taint tracker.Taint) bool { return !taint.Stamped })
}

// stampStep processes one node of the queue.
func (e *Evictor) stampStep(ctx context.Context, name string) (time.Duration, error) {
	if err := e.stamp(ctx, name); err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("cannot stamp taints yet", "node", name, "reason", err.Error())
		return 0, backoff(e.nodes, name, err)
	}
	return 0, nil
}

// stamp sets the time of NoExecute taints of a node that have none to the time at which they were
// first seen, so that their time does not start again after a restart (H03). Admission sets the
// time of other taints; a taint without one was written while no webhook answered. stamp reads
// the node for the positions of the taints, and its patch tests them. It does nothing for a node
// that was recreated, which the watch will report.
func (e *Evictor) stamp(ctx context.Context, name string) error {
	uid, known := e.tracker.Taints(name)
	if !lackTime(known) {
		return nil
	}
	nodes := e.options.Client.CoreV1().Nodes()
	asked := instantOf(e.local.Now())
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound("read node", err)
	}
	e.PodsChanged(e.confirm.SawNode(node, uid, asked))
	uid, known = e.tracker.Taints(name)
	patch, count := stampPatch(node, known, e.clock.Now())
	if uid != node.UID || count == 0 {
		return nil
	}
	body, _ := json.Marshal(patch) // Strings can be encoded.
	asked = instantOf(e.local.Now())
	answer, err := nodes.Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
	if err != nil {
		return ignoreNotFound("stamp taints of node", err)
	}
	e.PodsChanged(e.confirm.SawNode(answer, uid, asked))
	e.metrics.stamped.Add(float64(count))
	logr.FromContextOrDiscard(ctx).Info("stamped taints", "node", name, "taints", count)
	return nil
}

// ignoreNotFound wraps err; nil if the node does not exist.
func ignoreNotFound(verb string, err error) error {
	if act.Classify(err) == act.NotFound {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// stampPatch returns the patch for the NoExecute taints of a node without a time, and their number.
// known has the times at which they were first seen. Times are truncated to seconds, because the
// API stores seconds; Decide counts a toleration from the end of the second.
func stampPatch(node *corev1.Node, known []tracker.Taint, now time.Time) (patch []jsonpatch.Operation, count int) {
	patch = []jsonpatch.Operation{jsonpatch.NewOperation("test", "/metadata/uid", node.UID)}
	for i, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectNoExecute || (taint.TimeAdded != nil && !taint.TimeAdded.IsZero()) {
			continue
		}
		since := now
		for _, k := range known {
			if k.Key == taint.Key && k.Effect == taint.Effect {
				since = k.TimeAdded
			}
		}
		path := "/spec/taints/" + strconv.Itoa(i)
		patch = append(
			patch,
			jsonpatch.NewOperation("test", path, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect}),
			jsonpatch.NewOperation("add", path+"/timeAdded", since.UTC().Format(time.RFC3339)),
		)
		count++
	}
	return patch, count
}
