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

// eventComponent is who events are from. It is the name of the controller of
// Kubernetes that Tollgate stands in for (NE-21), as are its metrics, so that
// what watches for them goes on working.
const eventComponent = "taint-eviction-controller"

// Events have a client and a limit of their own: when there are more than the
// API server takes, events are late, never evictions.
const (
	eventQPS   = 20
	eventBurst = 100
)

// newRecorder returns a recorder that works until stopEvents is called: what is
// told on the way out must still find it.
func (p *program) newRecorder(ctx context.Context) (record.EventRecorder, error) {
	connection := rest.CopyConfig(p.connection)
	connection.QPS, connection.Burst = eventQPS, eventBurst
	clientset, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("make a client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")})
	p.stopEvents = broadcaster.Shutdown
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: eventComponent}), nil
}
