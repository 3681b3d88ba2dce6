package nodetaints

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// ofNode ends the UID of the node in front of its record. Neither a UID nor the key or
// the value of a taint has one.
const ofNode = ":"

// recordedOf returns the values, by key, of the taints that were added to a node here. A
// record with another UID is not of this node, and says nothing of its taints: whoever
// creates a node can write the annotation where admission is away, but learns the UID
// only afterwards.
func recordedOf(node *corev1.Node) map[string]string {
	value, mine := strings.CutPrefix(node.Annotations[v1alpha1.AnnotationTwins], prefix(node))
	if !mine {
		return nil
	}
	return v1alpha1.ParseTwins(value)
}

// recordFor returns the annotation of a node with these values by key.
func recordFor(node *corev1.Node, twins map[string]string) string {
	if len(twins) == 0 {
		return ""
	}
	return prefix(node) + v1alpha1.FormatTwins(twins)
}

// prefix is empty for a node without a UID, as no API server has one.
func prefix(node *corev1.Node) string {
	if node.UID == "" {
		return ""
	}
	return string(node.UID) + ofNode
}
