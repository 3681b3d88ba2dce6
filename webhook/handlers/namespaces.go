package handlers

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// judgeNamespace judges the labels of a namespace, which can be written through status and finalize
// too. A user who gives a namespace a label that a policy grants tolerations for grants these: so the
// user must be allowed to tolerate the taints (C11).
//
// Names are not judged: a namespace whose name comes under the pattern of a grant has the
// grant, and so have the users who may create it.
func (r request) judgeNamespace(ctx context.Context) ([]policy.Finding, []string, error) {
	labels, old := readBoth(r, func(f *review.Fields, v review.Value) map[string]string { return f.Texts(v, "metadata", "labels") })
	found, err := r.refusals(ctx, r.policies.Tolerations.NewlySatisfied(r.Name, old, labels))
	return found, nil, err
}

// everyKey is the name under which RBAC is asked about the taints of all keys.
const everyKey = ""

// refusals returns the findings about the grants that the namespace would gain, of as
// many policies as an answer has room for. Those that refuse are asked about first, so
// that the bound never changes the verdict.
func (r request) refusals(ctx context.Context, gained []toleration.Newly) ([]policy.Finding, error) {
	if len(gained) == 0 {
		return nil, nil
	}
	user, answers := policy.UserInfo(&r.UserInfo), map[string]bool{}
	may := func(key string) (bool, error) {
		if answer, ok := answers[key]; ok {
			return answer, nil
		}
		answer, err := policy.May(ctx, r.Operators, user, policy.VerbTolerate, key)
		answers[key] = answer
		return answer, err
	}
	if all, err := may(everyKey); err != nil || all {
		return nil, err
	}
	slices.SortStableFunc(gained, func(a, b toleration.Newly) int { return cmp.Compare(rank(&a), rank(&b)) })
	path := field.NewPath("metadata", "labels")
	var found []policy.Finding
	for i, newly := range gained {
		for _, key := range newly.Keys {
			ok, err := may(key)
			if err != nil {
				return nil, err
			}
			if !ok {
				found = append(found, newly.Finding(key, path))
				break
			}
		}
		if len(found) == policy.MaxFindings-1 && i+1 < len(gained) {
			// One more finding stands for the policies that there is no room for. It only warns:
			// they may have nothing against the labels, and a refusal is listed already.
			return append(found, policy.Finding{
				Reason:  policy.MoreFindings,
				Policy:  gained[i+1].Policy,
				Actions: []v1alpha1.ValidationAction{v1alpha1.Warn},
				Field:   path.String(),
				Problem: "by these labels the namespace satisfies this policy and maybe others that were not looked at any more",
			}), nil
		}
	}
	return found, nil
}

// rank sorts policies that refuse before those that only warn or record.
func rank(n *toleration.Newly) int {
	if policy.Denies(n.Actions) {
		return 0
	}
	return 1
}
