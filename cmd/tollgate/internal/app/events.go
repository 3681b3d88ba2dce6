package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/tollgate-dev/tollgate/evictor"
)

// These are the source components of events. They are the names of the Kubernetes controllers
// that Tollgate replaces (NE-21, DE-42), as are its metrics, so that event watchers keep working.
const (
	nodeEventComponent   = "taint-eviction-controller"
	deviceEventComponent = "device-taint-eviction-controller"
	// policyEventComponent is the source of events about policies. Kubernetes has no counterpart.
	policyEventComponent = "tollgate"
)

// Events have a client and a rate limit of their own: a backlog delays events, never evictions.
const (
	eventQPS   = 20
	eventBurst = 100
)

// recorders write events about evictions from nodes, evictions because of devices, and policies.
type recorders struct{ nodes, devices, policies record.EventRecorder }

// newRecorders returns recorders, which work until stopEvents is called: events of the shutdown
// are written too.
func (p *program) newRecorders(ctx context.Context) (recorders, error) {
	connection := rest.CopyConfig(p.connection)
	connection.QPS, connection.Burst = eventQPS, eventBurst
	clientset, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return recorders{}, fmt.Errorf("make a client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")})
	p.stopEvents = broadcaster.Shutdown
	from := func(component string) record.EventRecorder {
		return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	}
	return recorders{nodes: from(nodeEventComponent), devices: from(deviceEventComponent), policies: from(policyEventComponent)}, nil
}

// Reasons of events on the Lease.
const (
	reasonModeFits   = "ModeFits"
	reasonModeMisfit = "ModeMisfit"
)

// fitChanged returns a function that records an event on the Lease about whether the mode fits
// the cluster.
func (p *program) fitChanged() func(evictor.ModeFinding) {
	lease := p.leaseReference()
	mode := string(p.config.Eviction.Mode)
	return func(finding evictor.ModeFinding) {
		if finding == evictor.Fits {
			p.recorders.policies.Eventf(lease, corev1.EventTypeNormal, reasonModeFits, "eviction.mode %s fits again", mode)
			return
		}
		p.recorders.policies.Eventf(lease, corev1.EventTypeWarning, reasonModeMisfit, "eviction.mode %s does not fit: %s", mode, finding.Message())
	}
}

// leaseReference returns the reference of events about Tollgate itself.
func (p *program) leaseReference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: p.config.Namespace, Name: objectName}
}
