package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestALoopMarksAPodAndDeletesIt(t *testing.T) {
	pod := newPod(leaves, "node-1", 0)
	pod.UID = "uid"
	client := fake.NewClientset(pod)
	require.NoError(t, evictPod(t.Context(), client, pod))
	actions := client.Actions()
	require.Len(t, actions, 2)
	require.True(t, actions[0].Matches("patch", "pods/status"))
	require.True(t, actions[1].Matches("delete", "pods"))
	_, err := client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
}
