package taint

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Warnings says what of a policy is legal and probably not meant.
func Warnings(p *v1alpha1.TaintPolicy) []string {
	var warnings []string
	spec := field.NewPath("spec")
	if len(p.Spec.Setters) == 0 {
		warnings = append(warnings, spec.Child("setters").String()+
			": there are none, so nobody may set, change or remove the taints of this policy, except Kubernetes' controllers their own and drivers those of their devices")
	}
	c := compiled{}
	for i := range p.Spec.Taints {
		c.taints = append(c.taints, selector.Compile(&p.Spec.Taints[i]))
	}
	for i := range p.Spec.Register {
		if p.Spec.Register[i].Reconcile {
			continue // then nobody can remove the taint, whether it is governed or not
		}
		for j := range p.Spec.Register[i].Taints {
			r := Registered{Taint: p.Spec.Register[i].Taints[j]}
			if !c.governs(r.taint()) {
				warnings = append(warnings, spec.Child("register").Index(i).Child("taints").Index(j).String()+
					": "+r.String()+" is not among spec.taints: whoever may write nodes can remove it again")
			}
		}
	}
	return warnings
}
