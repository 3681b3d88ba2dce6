package nodetaints

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// uidSeparator follows the UID of the node in the annotation. No UID, taint key or taint
// value contains it.
const uidSeparator = ":"

// recordedTaints returns the values, by key, of the taints that the annotation of a node
// lists. It ignores an annotation with another UID: the creator of a node can write the
// annotation while admission is unavailable, but learns the UID only afterwards.
func recordedTaints(node *corev1.Node) map[string]string {
	value, mine := strings.CutPrefix(node.Annotations[v1alpha1.AnnotationTwins], annotationPrefix(node))
	if !mine {
		return nil
	}
	return v1alpha1.ParseTwins(value)
}

// annotationOf returns the annotation for paired taints, given as values by key.
func annotationOf(node *corev1.Node, values map[string]string) string {
	if len(values) == 0 {
		return ""
	}
	return annotationPrefix(node) + v1alpha1.FormatTwins(values)
}

// annotationPrefix is empty for a node without a UID, which only tests have.
func annotationPrefix(node *corev1.Node) string {
	if node.UID == "" {
		return ""
	}
	return string(node.UID) + uidSeparator
}
