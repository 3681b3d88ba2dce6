package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/tracker"
)

// nodes are those that topology spread constraints are held against. They are listed for the
// first object that has any such constraint: most have none, and need no right to do so.
type nodes struct {
	world *world
	// followed says whether the Tollgate whose verdicts are wanted follows nodes.
	followed bool
	known    *tracker.Tracker
	// now is when the taints are taken to be seen, which makes no difference to spread.
	now time.Time
	// read says that they were asked for, and note what is to be said of the answer.
	read bool
	note string
}

// need reads the nodes, if an object has a constraint that may count nodes which its pods
// cannot use. Whoever may not list them is told what that means.
func (n *nodes) need(ctx context.Context, object runtime.Object) error {
	if !n.followed || n.read || !mayWedge(object) {
		return nil
	}
	var list corev1.NodeList
	switch err := n.world.List(ctx, &list); {
	case apierrors.IsForbidden(err):
		n.note = "nodes may not be listed: whether topology spread constraints count nodes that pods cannot use is not known"
	case err != nil:
		return fmt.Errorf("list nodes: %w", err)
	case len(list.Items) == 0 && n.world.behind == nil:
		n.note = "there are no nodes among the manifests: whether topology spread constraints count nodes that pods cannot use is not known"
	}
	for i := range list.Items {
		n.known.SetNode(tracker.NodeOf(&list.Items[i]), n.now)
	}
	n.read = true
	return nil
}

// mayWedge reports whether the pods of an object may wait for spread without end, on some
// nodes. Daemons are placed without it.
func mayWedge(object runtime.Object) bool {
	if _, daemons := object.(*appsv1.DaemonSet); daemons {
		return false
	}
	var spec *corev1.PodSpec
	if pod, ok := object.(*corev1.Pod); ok {
		spec = &pod.Spec
	} else if template := TemplateOf(object); template != nil {
		spec = &template.Spec
	} else {
		return false
	}
	return slices.ContainsFunc(spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule && (c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore)
	})
}
