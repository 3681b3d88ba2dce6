package taint

import (
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/tollgate-dev/tollgate/policy/selector"
)

const (
	nodePrefix = "system:node:"
	nodesGroup = "system:nodes"
)

// systemControllers are the identities under which Kubernetes' own controllers, and
// those of cloud providers, taint nodes.
var systemControllers = []string{
	"system:kube-controller-manager",
	"system:serviceaccount:kube-system:node-controller",
	"system:cloud-controller-manager",
	"system:serviceaccount:kube-system:cloud-controller-manager",
	"system:serviceaccount:kube-system:cloud-node-controller",
}

// SystemControllers returns the users under which the controllers of Kubernetes and of cloud
// providers taint nodes.
func SystemControllers() []string { return slices.Clone(systemControllers) }

// IsNode reports whether the user is the kubelet of a node, and of which. The group
// is what makes it one: a name alone can be anybody's (C18).
func IsNode(user *authenticationv1.UserInfo) (name string, ok bool) {
	name, found := strings.CutPrefix(user.Username, nodePrefix)
	return name, found && name != "" && slices.Contains(user.Groups, nodesGroup)
}

// PublishesSlice reports whether the user is taken for the driver of a slice, which may
// always set its taints. The slice is of a node or, with an empty name, of none.
//
// Drivers are service accounts. Nothing says of which driver one is. But the token of
// one that runs in a pod says on which node that is, and only the slices of that node
// can be its own. A pool that has slices of another node is not its own either: that is
// for whoever knows the pools to ask. The slices of no node are published by controllers, which may run
// anywhere: of those every service account is taken for the driver that may write them
// at all, which RBAC says.
func PublishesSlice(user *authenticationv1.UserInfo, node string) bool {
	if _, _, err := serviceaccount.SplitUsername(user.Username); err != nil {
		return false
	}
	return node == "" || slices.Contains(user.Extra[serviceaccount.NodeNameKey], node)
}

// exempt reports whether the write is one that its author may always make: Kubernetes'
// controllers that of the keys which they are there to set.
func exempt(user *authenticationv1.UserInfo, w *Write) bool {
	return selector.System(w.taint().Key) && slices.Contains(systemControllers, user.Username)
}
