package webhook

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// comparisonWarnings warns of new tolerations with the operators Lt and Gt, which stand at
// path, where the evictor does not honour them: the scheduler places such a pod, if its feature
// gate is on, and the pod is evicted at once.
func comparisonWarnings(tolerations, old []corev1.Toleration, path *field.Path) []string {
	if equality.Semantic.DeepEqual(tolerations, old) {
		return nil
	}
	var warnings []string
	for i := range tolerations {
		t := &tolerations[i]
		compares := t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
		if !compares || t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		warnings = append(warnings, fmt.Sprintf(
			"%s: Tollgate does not honour operator %s, and evicts the pod from a node with a NoExecute taint that it is to tolerate; an administrator can set eviction.comparisonOperators",
			path.Index(i), t.Operator))
	}
	return warnings
}
