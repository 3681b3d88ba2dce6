package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestVerify(t *testing.T) {
	const node = "node-1"
	stayed := func() []*corev1.Pod { return []*corev1.Pod{newPod(stays, node, 0), newPod(stays, node, 1)} }
	gone := func(pod *corev1.Pod) *corev1.Pod {
		pod.DeletionTimestamp, pod.Finalizers = new(metav1.Now()), []string{"example.com/kept"}
		return pod
	}
	tests := map[string]struct {
		pods []*corev1.Pod
		want string
	}{
		"only those that may stay are there":   {pods: stayed()},
		"one that has to go is on its way":     {pods: append(stayed(), gone(newPod(leaves, node, 0)))},
		"one that had to go is still there":    {pods: append(stayed(), newPod(leaves, node, 0)), want: "leaves-node-1-000 is still there"},
		"one that may stay was told to go":     {pods: []*corev1.Pod{newPod(stays, node, 0), gone(newPod(stays, node, 1))}, want: "may stay and was told to go"},
		"one that may stay is gone altogether": {pods: stayed()[:1], want: "1 pods that may stay are there, want 2"},
		"a pod is there that nobody knows":     {pods: append(stayed(), newPod("who", node, 0)), want: "not of this program"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			for _, pod := range test.pods {
				pod.Namespace = namespace
				require.NoError(t, client.Tracker().Add(pod))
			}
			err := (&stage{client: client, nodes: []string{node}}).verify(t.Context())
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestOptions(t *testing.T) {
	require.NoError(t, (&options{pods: 1000, defaultPods: 200, nodes: 20, rounds: 1}).validate())
	for name, o := range map[string]options{
		"there are no nodes":                   {pods: 10, rounds: 1},
		"there are no rounds":                  {pods: 10, nodes: 1},
		"pods do not spread evenly over nodes": {pods: 10, nodes: 3, rounds: 1},
		"a node has no room for so many":       {pods: 1000, nodes: 2, rounds: 1},
		"a number is negative":                 {pods: -20, nodes: 20, rounds: 1},
		"a number of workers is negative":      {pods: 20, nodes: 20, rounds: 1, workers: -1},
	} {
		t.Run(name, func(t *testing.T) { require.Error(t, o.validate()) })
	}
}
