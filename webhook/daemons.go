package webhook

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// lackedByDaemons warns of tolerations that PlacementPolicies would give to the pods of a
// DaemonSet and that its template, which was old, lacks. The DaemonSet controller makes pods
// for the nodes whose taints the template tolerates, so no pod is made that could be given
// them. A nil placer warns of nothing.
func (p *placer) lackedByDaemons(ctx context.Context, policies *policyset.Set, req *admission.Request, template, old *podTemplate, path *field.Path) []string {
	if p == nil || policies.Placement.Len() == 0 ||
		old != nil && equality.Semantic.DeepEqual(old.pod.Spec.Tolerations, template.pod.Spec.Tolerations) {
		return nil
	}
	pod, err := decodePlacedPod(template.raw)
	if err != nil {
		return nil
	}
	matching, err := p.ofPod(ctx, policies.Placement, req, pod)
	if err != nil || matching.Empty() {
		return nil // Nothing is refused for a warning.
	}
	additions := matching.GivePod(placement.Pod{Spec: &pod.pod.Spec, FromDaemonSetController: true})
	var warnings []string
	for i := range additions.Tolerations {
		t := &additions.Tolerations[i]
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		if t.Effect != "" {
			text += ":" + string(t.Effect)
		}
		warnings = append(warnings, fmt.Sprintf(
			"%s: lacks the toleration of %s that a PlacementPolicy gives to pods here: the DaemonSet controller makes no pod for a node with such a taint unless the template tolerates it; add it to the template",
			path, policy.Short(text, policy.MaxKeyLength+policy.Value)))
	}
	return warnings
}
