package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// usesClaim is part of the spec of a pod that uses the claim of the stage.
const usesClaim = `resourceClaims: [{name: g, resourceClaimName: gpu}]`

// devices adds a node, a device that can be used from all nodes, with taints, and a claim
// for it, with more of its request.
func (s *stage) devices(t *testing.T, taints, request string) {
	t.Helper()
	s.node(t, "1", "", "")
	s.apply(t, fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: X}
spec: {selectors: [{cel: {expression: "device.driver == 'X.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: X}
spec:
  driver: X.example.com
  allNodes: true
  pool: {name: pool, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, taints: [%s]}]
`, taints))
	s.apply(t, claimOf("gpu", request))
}

func claimOf(name, request string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: X, %s}}]}}
`, name, request)
}

func rule(effect string) string {
	return "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: X}\nspec: {deviceSelector: {driver: X.example.com}, taint: {key: example.com/X, value: a, effect: " + effect + "}}\n"
}

func patch(effect string) string {
	return "apiVersion: tollgate.dev/v1alpha1\nkind: ResourceSlicePatch\nmetadata: {name: X}\nspec: {devices: {filter: {driver: X.example.com}, taints: [{key: example.com/X, value: a, effect: " + effect + "}]}}\n"
}

// written returns when the taints of the patch of the stage are written out as a rule.
func (s *stage) written(t *testing.T) {
	t.Helper()
	eventually(t, "the taints of the patch are written out", func(ctx context.Context) error {
		var rules resourcev1.DeviceTaintRuleList
		if err := s.List(ctx, &rules); err != nil {
			return err
		}
		for i := range rules.Items {
			if rules.Items[i].Spec.Taint.Key == s.key() {
				return nil
			}
		}
		return errors.New("there is no rule")
	})
}

// keep gives a pod a finalizer, so that it stays when it is deleted.
func (s *stage) keep(t *testing.T, name string) {
	t.Helper()
	pod, err := s.podNow(t.Context(), name)
	require.NoError(t, err)
	before := client.MergeFrom(pod.DeepCopy())
	pod.Finalizers = append(pod.Finalizers, "example.com/keep")
	require.NoError(t, s.Patch(t.Context(), pod, before))
}

// eventuallyOnNode returns when a pod is on a node, whether or not it runs.
func (s *stage) eventuallyOnNode(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the pod is on a node", func(ctx context.Context) error {
		pod, err := s.podNow(ctx, name)
		if err == nil && pod.Spec.NodeName == "" {
			return errors.New("it is on none")
		}
		return err
	})
}
