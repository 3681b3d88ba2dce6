package admission

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// write is one way to change a pod.
type write struct {
	kind  types.PatchType
	patch string
}

// writes are the ways to add a toleration of a key to a pod.
func writes(pod *corev1.Pod, key string) map[string]write {
	toleration := `{"key":"` + key + `","operator":"Exists"}`
	return map[string]write{
		"a JSON patch":            {types.JSONPatchType, `[{"op":"add","path":"/spec/tolerations/-","value":` + toleration + `}]`},
		"a strategic merge patch": {types.StrategicMergePatchType, `{"spec":{"tolerations":[` + toleration + `]}}`},
		"server-side apply": {types.ApplyPatchType, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + pod.Name +
			`"},"spec":{"tolerations":[` + toleration + `]}}`},
	}
}

// do sends the write.
func (w write) do(t *testing.T, pods typedcorev1.PodInterface, name string) error {
	t.Helper()
	options := metav1.PatchOptions{}
	if w.kind == types.ApplyPatchType {
		options.FieldManager, options.Force = "test", new(true)
	}
	_, err := pods.Patch(t.Context(), name, w.kind, []byte(w.patch), options)
	return err
}

func TestC06ATolerationThatIsAddedLaterIsJudged(t *testing.T) {
	namespace := namespaceOf(t, "updates-")
	enforce(t, "updates", guarding("updates.example.com/x"))
	pods := clientOf(t).CoreV1().Pods(namespace)
	pod := createPod(t, namespace, podWith())
	for name, guarded := range writes(pod, "updates.example.com/x") {
		t.Run(name+" is refused", func(t *testing.T) {
			err := guarded.do(t, pods, pod.Name)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, "TolerationPolicy/updates: spec.tolerations[")
		})
	}
	for name, free := range writes(pod, "free.example.com/x") {
		t.Run(name+" of another key is not", func(t *testing.T) {
			other := createPod(t, namespace, podWith())
			free.patch = writes(other, "free.example.com/x")[name].patch
			require.NoError(t, free.do(t, pods, other.Name))
		})
	}
}

func TestC28APodThatViolatesAlreadyIsNotHeldUp(t *testing.T) {
	namespace := namespaceOf(t, "ratchet-")
	pods := clientOf(t).CoreV1().Pods(namespace)
	pod := createPod(t, namespace, podWith(forSeconds("ratchet.example.com/x", 60)))
	enforce(t, "ratchet", guarding("ratchet.example.com/*"))

	allowed := map[string]write{
		"a label may be set":                       {types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`},
		"an image may be changed":                  {types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"c","image":"newer"}]}}`},
		"a toleration of another key may be added": writes(pod, "free.example.com/x")["a JSON patch"],
	}
	for name, w := range allowed {
		t.Run(name, func(t *testing.T) { require.NoError(t, w.do(t, pods, pod.Name)) })
	}
	refused := map[string]write{
		"another guarded toleration may not be added": writes(pod, "ratchet.example.com/y")["a JSON patch"],
		"the seconds of the old one may not change": {
			types.JSONPatchType, `[{"op":"replace","path":"/spec/tolerations/0/tolerationSeconds","value":61}]`,
		},
	}
	for name, w := range refused {
		t.Run(name, func(t *testing.T) {
			err := w.do(t, pods, pod.Name)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, "TolerationPolicy/ratchet")
		})
	}
	t.Run("it may be deleted", func(t *testing.T) {
		require.NoError(t, pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	})
}
