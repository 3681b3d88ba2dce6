package toleration

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// Newly is a policy with a grant that the new labels of a namespace satisfy and the old ones
// do not.
type Newly struct {
	// Policy is "TolerationPolicy/name".
	Policy  string
	Actions []v1alpha1.ValidationAction
	// Keys are those of the guarded taints as they are written, sorted. Whoever sets
	// the labels must be allowed to tolerate all of them.
	Keys []string
	// Selector is what the labels satisfy, in words.
	Selector string
}

// GrantsByNamespaceLabels reports whether a policy has a grant with a namespaceSelector.
func (s *Set) GrantsByNamespaceLabels() bool {
	return s.Len() > 0 && slices.ContainsFunc(s.Policies, func(c *compiled) bool {
		return slices.ContainsFunc(c.grants, func(g grant) bool { return g.namespace != nil })
	})
}

// NewlySatisfied returns the policies of which a namespace satisfies more grants by
// its new labels, sorted by name. Old labels are nil where the namespace is created:
// then a grant that every namespace satisfies, whatever its labels, is not newly
// satisfied.
func (s *Set) NewlySatisfied(namespace string, old, current map[string]string) []Newly {
	if s.Len() == 0 {
		return nil
	}
	if old == nil {
		old = map[string]string{corev1.LabelMetadataName: namespace}
	}
	if current == nil {
		current = map[string]string{}
	}
	var newly []Newly
	for _, c := range s.Policies {
		for i := range c.grants {
			g := &c.grants[i]
			if g.namespace != nil && g.covers(namespace, current) && !g.covers(namespace, old) {
				newly = append(newly, Newly{Policy: policyRef(c), Actions: slices.Clone(c.actions), Keys: c.keys(), Selector: g.namespace.String()})
				break
			}
		}
	}
	return newly
}

// Finding returns the finding about labels that are set by a requester who may not tolerate
// the taints of a key. The path is that of the labels.
func (n *Newly) Finding(key string, path *field.Path) policy.Finding {
	key = policy.Short(key, policy.MaxKeyLength)
	return policy.Finding{
		Reason:  policy.LabelNotGranted,
		Policy:  n.Policy,
		Actions: slices.Clone(n.Actions),
		Field:   path.String(),
		Value:   policy.Short(n.Selector, maxRemedy),
		Problem: "with these labels the namespace would be granted the taint " + key + ", which you may not tolerate yourself",
		Remedy:  `allowed to whom RBAC allows the verb tolerate on taints.tollgate.dev "` + key + `"`,
	}
}
