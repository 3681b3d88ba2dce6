package evictions

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor"
)

var eventResource = schema.GroupResource{Resource: "events"}

// Read reads a snapshot of a cluster at now, and the holds in its events. It also returns the raw
// snapshot, and sentences about missing data.
func Read(ctx context.Context, clients *cli.Clients, now time.Time, wants state.Wants) (*Cluster, *state.Cluster, []string, error) {
	shown, found, missing, _, err := readAll(ctx, clients, now, wants)
	return shown, found, missing, err
}

// readAll is Read that also returns the namespace of the readable events, empty for all.
func readAll(ctx context.Context, clients *cli.Clients, now time.Time, wants state.Wants) (shown *Cluster, found *state.Cluster, missing []string, events string, err error) {
	if found, err = state.Read(ctx, clients, now, wants); err != nil {
		return nil, nil, nil, "", err
	}
	shown, missing = shownOf(found), found.Missing()
	if !found.Tollgate.Installed {
		return shown, found, missing, "", nil
	}
	err = readEvents(ctx, clients, metav1.NamespaceAll, shown)
	if apierrors.IsForbidden(err) {
		lack := "you may not list events: what only they say of pods that are held is not known"
		if wants.Namespace != "" && readEvents(ctx, clients, wants.Namespace, shown) == nil {
			events = wants.Namespace
			lack = "you may list events in namespace " + events + " alone: what nodes, rules and patches were told of holds is not known"
		}
		missing, err = append(missing, lack+cli.Advice(err, "list", eventResource)), nil
	}
	if err != nil {
		return nil, nil, nil, "", err
	}
	return shown, found, missing, events, nil
}

// readEvents reads holds from the events of a namespace, or of all if it is empty.
func readEvents(ctx context.Context, clients *cli.Clients, namespace string, shown *Cluster) error {
	client := clients.Kubernetes.CoreV1().Events(namespace)
	for _, reason := range eventReasons() {
		err := cli.EachIn(ctx, clients, eventResource, namespace, cli.Pages(client.List), eventsFor(reason), func(event *corev1.Event) error {
			shown.Said.Add(event)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// shownOf returns the Cluster of a snapshot, without events.
func shownOf(found *state.Cluster) *Cluster {
	shown := &Cluster{
		Tracker: found.Tracker, Rules: found.Rules, Policies: found.EvictionPolicies, Namespaces: found.NamespaceLabels,
	}
	shown.Rules.Window = false
	if found.Tollgate.Installed {
		said := &found.Tollgate.Terms
		shown.Mode, shown.NodesOff, shown.DevicesOff = said.Mode, !said.Nodes, !said.Devices
	}
	if found.Tollgate.Terms.Policies {
		shown.Set = found.Policies.Evictions
	}
	return shown
}

func eventReasons() []string {
	return append(evictor.EventReasonsHeld(), evictor.EventReasonsHeldUp()...)
}

func eventsFor(reason string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("reason", reason).String()}
}

// feedRefusal returns an error with advice if a request is forbidden or unauthorized, else nil.
func feedRefusal(err error, verb string, resource schema.GroupResource) error {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return nil
	}
	return cli.Failed(err, verb+" "+resource.String(), verb, resource)
}
