package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// labelJudge judges the labels of namespaces. Whoever gives a namespace a label that a
// policy grants something for, grants it: so they must be allowed to tolerate the
// taints themselves (C11).
//
// Names are not judged: a namespace whose name comes under the pattern of a grant has
// what is granted, and so has whoever may create it.
type labelJudge struct {
	policies   policySource
	authorizer authorizer.Authorizer
}

// Judge implements judge. Labels can be written through status and finalize too.
func (j *labelJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	labels, err := decodeLabels(req.Object.Raw)
	if err != nil {
		return admission.Response{}, err
	}
	var old map[string]string // nil of a namespace that is created
	if req.Operation == admissionv1.Update {
		if old, err = decodeLabels(req.OldObject.Raw); err != nil {
			return admission.Response{}, err
		}
	}
	policies := j.policies.Current()
	if policies == nil {
		return admission.Response{}, errNoPolicies
	}
	found, err := j.refusals(ctx, &req, policies.Tolerations.NewlySatisfied(req.Name, old, labels))
	if err != nil {
		return admission.Response{}, err
	}
	return judgedBy(respond(ctx, policy.Decide(found), nil), policies), nil
}

// everyKey is the name under which RBAC is asked about the taints of all keys.
const everyKey = ""

// refusals returns what stands against the grants that the namespace would gain, of as
// many policies as an answer has room for. Those that refuse are asked about first, so
// that the bound never changes the verdict.
func (j *labelJudge) refusals(ctx context.Context, req *admission.Request, gained []toleration.Newly) ([]policy.Finding, error) {
	if len(gained) == 0 {
		return nil, nil
	}
	who := keyholder{by: j.authorizer, user: policy.UserInfo(&req.UserInfo), keys: map[string]bool{}}
	if all, err := who.may(ctx, everyKey); err != nil || all {
		return nil, err
	}
	slices.SortStableFunc(gained, func(a, b toleration.Newly) int { return cmp.Compare(rank(&a), rank(&b)) })
	path := field.NewPath("metadata", "labels")
	var found []policy.Finding
	for i := range gained {
		key, missing, err := who.lacks(ctx, gained[i].Keys)
		if err != nil {
			return nil, err
		}
		if !missing {
			continue
		}
		found = append(found, gained[i].Finding(key, path))
		if len(found) == toleration.MaxFindings-1 && i+1 < len(gained) {
			return append(found, notAsked(&gained[i+1], path)), nil
		}
	}
	return found, nil
}

// rank sorts policies that refuse before those that only warn or record.
func rank(n *toleration.Newly) int {
	if (policy.Finding{Actions: n.Actions}).Denies() {
		return 0
	}
	return 1
}

// notAsked stands for the policies that there is no room for. It only warns: they may
// have nothing against the labels, and what refuses is listed already.
func notAsked(n *toleration.Newly, path *field.Path) policy.Finding {
	return policy.Finding{
		Reason:  policy.MoreFindings,
		Policy:  n.Policy,
		Actions: []v1alpha1.ValidationAction{v1alpha1.Warn},
		Field:   path.String(),
		Problem: "by these labels the namespace satisfies this policy and maybe others that were not looked at any more",
	}
}

// keyholder is somebody of whom it is asked which taints they may tolerate, once for
// each key.
type keyholder struct {
	by   authorizer.Authorizer
	user user.Info
	keys map[string]bool
}

// lacks returns the first of the keys that the user may not tolerate.
func (k *keyholder) lacks(ctx context.Context, keys []string) (string, bool, error) {
	for _, key := range keys {
		if may, err := k.may(ctx, key); err != nil || !may {
			return key, true, err
		}
	}
	return "", false, nil
}

func (k *keyholder) may(ctx context.Context, key string) (bool, error) {
	if may, known := k.keys[key]; known {
		return may, nil
	}
	may, err := policy.May(ctx, k.by, k.user, policy.VerbTolerate, key)
	if err == nil {
		k.keys[key] = may
	}
	return may, err
}

func decodeLabels(raw []byte) (map[string]string, error) {
	var metadata, encoded json.RawMessage
	var labels map[string]string
	err := findMembers(raw, member{"metadata", &metadata})
	if err == nil {
		err = findMembers(metadata, member{"labels", &encoded})
	}
	if err = errors.Join(err, decodeStringsAt(encoded, "metadata.labels", &labels)); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode object: %w", err)}
	}
	return labels, nil
}
