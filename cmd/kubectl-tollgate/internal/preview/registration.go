package preview

import (
	"fmt"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// Registration previews the taints of a TaintPolicy on the existing nodes.
func (t *Teller) Registration(policy *v1alpha1.TaintPolicy) (Preview, error) {
	set := taint.Compile([]v1alpha1.TaintPolicy{*policy})
	changes, err := t.view.Nodes(set.Kept, t.cluster.Now)
	if err != nil {
		return Preview{}, fmt.Errorf("foretell TaintPolicy %s: %w", policy.Name, err)
	}
	of := "taintpolicy/" + policy.Name
	if !t.cluster.Tollgate.Installed { // Only Tollgate registers taints.
		return t.mere(of, t.instead(), changes), nil
	}
	return t.tell(of, changes), nil
}
