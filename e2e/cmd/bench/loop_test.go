package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestALoopMakesTheRequestsOfAMark(t *testing.T) {
	for mark, want := range map[v1alpha1.EvictionMark][][2]string{
		v1alpha1.EvictionMarkBefore:           {{"patch", "pods/status"}, {"delete", "pods"}},
		v1alpha1.EvictionMarkByEvictionAPI:    {{"create", "pods/eviction"}},
		v1alpha1.EvictionMarkWhileTerminating: {{"delete", "pods"}, {"patch", "pods/status"}},
	} {
		t.Run(string(mark), func(t *testing.T) {
			pod := newPod(leaves, "node-1", 0)
			pod.UID = "uid"
			client := fake.NewClientset(pod)
			require.NoError(t, evictPod(t.Context(), client, pod, mark))
			actions := client.Actions()
			require.Len(t, actions, len(want))
			for i, action := range want {
				require.True(t, actions[i].Matches(action[0], action[1]), "%v", actions[i])
			}
		})
	}
}
