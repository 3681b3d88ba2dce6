package policy

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// The verbs on taints.tollgate.dev that RBAC grants. The resource exists for RBAC
// alone; nothing serves it.
const (
	VerbTolerate = "tolerate"
	VerbTaint    = "taint"

	taints = "taints"
)

// May reports whether RBAC, or whatever else authorizes in the cluster, allows the
// user the verb on the taints with a key. An empty key asks for all of them. An
// error means that nobody could say, and is no verdict.
func May(ctx context.Context, by authorizer.Authorizer, who user.Info, verb, key string) (bool, error) {
	decision, _, err := by.Authorize(ctx, authorizer.AttributesRecord{
		User:            who,
		Verb:            verb,
		APIGroup:        v1alpha1.GroupVersion.Group,
		APIVersion:      v1alpha1.GroupVersion.Version,
		Resource:        taints,
		Name:            key,
		ResourceRequest: true,
	})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may %s the taint %q: %w", who.GetName(), verb, key, err)
	}
	return decision == authorizer.DecisionAllow, nil
}

// UserInfo returns the user of a request as authorizers know them.
func UserInfo(u *authenticationv1.UserInfo) user.Info {
	extra := make(map[string][]string, len(u.Extra))
	for key, value := range u.Extra {
		extra[key] = value
	}
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}
}

// AccountInfo returns a service account as authorizers know it.
func AccountInfo(namespace, name string) user.Info {
	return &user.DefaultInfo{
		Name:   ServiceAccount(namespace, name),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, user.AllAuthenticated},
	}
}
