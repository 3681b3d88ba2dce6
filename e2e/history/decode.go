package history

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// evicts reports whether a write makes a pod leave, and how.
func evicts(w *faultproxy.Write) (method string, ok bool) {
	if w.Resource != "pods" {
		return "", false
	}
	switch {
	case w.Verb == "delete" && w.Subresource == "":
		return methodDelete, true
	case w.Verb == "create" && w.Subresource == "eviction":
		return methodEvict, true
	case w.Verb == "deletecollection":
		return "deletecollection", true
	}
	return "", false
}

// The methods by which pods are made to leave.
const (
	methodDelete = "Delete"
	methodEvict  = "Evict"
)

// preconditions returns what a request to evict a pod insists on; empty where it
// insists on nothing.
func preconditions(w *faultproxy.Write) (uid, version string, err error) {
	if len(w.Body) == 0 {
		return "", "", nil
	}
	options := &metav1.DeleteOptions{}
	if w.Subresource == "eviction" {
		eviction := &policyv1.Eviction{}
		if err := decode(w.Body, eviction); err != nil {
			return "", "", fmt.Errorf("read Eviction: %w", err)
		}
		if eviction.DeleteOptions == nil {
			return "", "", nil
		}
		options = eviction.DeleteOptions
	} else if err := decode(w.Body, options); err != nil {
		return "", "", fmt.Errorf("read DeleteOptions: %w", err)
	}
	if options.Preconditions == nil {
		return "", "", nil
	}
	if options.Preconditions.UID != nil {
		uid = string(*options.Preconditions.UID)
	}
	if options.Preconditions.ResourceVersion != nil {
		version = *options.Preconditions.ResourceVersion
	}
	return uid, version, nil
}

// holder returns who a write makes the holder of the lease; empty for nobody.
func holder(w *faultproxy.Write) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := decode(w.Body, lease); err != nil {
		return "", fmt.Errorf("read Lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	return *lease.Spec.HolderIdentity, nil
}

// decode reads JSON and protobuf.
func decode(body []byte, into runtime.Object) error {
	_, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
	return err
}
