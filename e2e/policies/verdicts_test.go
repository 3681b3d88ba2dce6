package policies

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

// requireRefused requires that Tollgate refused a request for a reason, and that what
// it told the user has all of the parts and nothing of its internals.
func requireRefused(t *testing.T, err error, reason policy.Reason, parts ...string) {
	t.Helper()
	require.True(t, apierrors.IsForbidden(err), "not forbidden: %v", err)
	require.ErrorContains(t, err, "denied the request")
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	var reasons []policy.Reason
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			reasons = append(reasons, policy.Reason(cause.Type))
		}
	}
	require.Contains(t, reasons, reason, "%v", err)
	for _, part := range parts {
		require.ErrorContains(t, err, part)
	}
	for _, internal := range []string{".go:", "0x", "runtime error", "context deadline", "goroutine", "<nil>", "%!"} {
		require.NotContains(t, err.Error(), internal)
	}
}

// requireInvalid requires that a policy was refused where it stands wrong.
func requireInvalid(t *testing.T, err error, parts ...string) {
	t.Helper()
	require.Error(t, err)
	require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%v", err)
	for _, part := range parts {
		require.ErrorContains(t, err, part)
	}
}

// requireWarned requires that one of the warnings has all of the parts.
func requireWarned(t *testing.T, heard []string, parts ...string) {
	t.Helper()
	for _, text := range heard {
		if containsAll(text, parts) {
			return
		}
	}
	require.Failf(t, "not warned", "of %q; warned of %q", parts, heard)
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// audited returns the events of writes of one object, oldest first. The audit log
// knows no names that the API server made up.
func audited(t *testing.T, resource, namespace, name string) []auditv1.Event {
	t.Helper()
	events, err := audit.Read(func(event *auditv1.Event) bool {
		return event.ObjectRef.Resource == resource && event.ObjectRef.Namespace == namespace && event.ObjectRef.Name == name
	})
	require.NoError(t, err)
	return events
}

// auditedViolations returns what the audit log says that policies have against the
// creation of a pod.
func auditedViolations(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	events := audited(t, "pods", pod.Namespace, pod.Name)
	require.NotEmpty(t, events, "the audit log has no event for pod %s", pod.Name)
	return events[0].Annotations["validate.tollgate.dev/violations"]
}

// ownedBy is a controller reference to an object, as anybody can write it.
func ownedBy(apiVersion, kind string, owner metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
	}}
}
