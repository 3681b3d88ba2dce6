package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// These are who events are from. They are the names of the controllers of
// Kubernetes that Tollgate stands in for (NE-21, DE-42), as are its metrics, so
// that what watches for them goes on working.
const (
	nodeEventComponent   = "taint-eviction-controller"
	deviceEventComponent = "device-taint-eviction-controller"
)

// Events have a client and a limit of their own: when there are more than the
// API server takes, events are late, never evictions.
const (
	eventQPS   = 20
	eventBurst = 100
)

// newRecorders returns a recorder for events about taints of nodes and one for
// those about taints of devices. They work until stopEvents is called: what is told
// on the way out must still find them.
func (p *program) newRecorders(ctx context.Context) (nodes, devices record.EventRecorder, err error) {
	connection := rest.CopyConfig(p.connection)
	connection.QPS, connection.Burst = eventQPS, eventBurst
	clientset, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")})
	p.stopEvents = broadcaster.Shutdown
	from := func(component string) record.EventRecorder {
		return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	}
	return from(nodeEventComponent), from(deviceEventComponent), nil
}
