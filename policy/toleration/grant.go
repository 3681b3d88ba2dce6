package toleration

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// grant is a valid grant, read once. All that is set must match.
type grant struct {
	// position is the grant's among those of its policy, as they are written.
	position int

	// anyNamespace says that names and prefixes are not asked: the grant has
	// none, or it has "*".
	anyNamespace bool
	names        map[string]struct{}
	prefixes     []string

	// namespace and object select by labels; nil where the grant does not.
	namespace, object labels.Selector

	subjects policy.SubjectSet
	named    bool // the grant has subjects

	rbac       bool
	expression *cel.Program // nil for none

	// limit is nil where the grant sets none.
	limit *int64
}

// readGrant reads a grant. With errors it must not be used: what could not be read
// would narrow.
func readGrant(in *v1alpha1.TolerationGrant, position int, path *field.Path) (grant, field.ErrorList) {
	g := grant{position: position, anyNamespace: len(in.Namespaces) == 0, rbac: in.RBAC, named: len(in.Subjects) > 0}
	errs := validateGrant(in, path)
	if in.Expression != "" {
		var found field.ErrorList
		g.expression, found = compileExpression(in.Expression, cel.Bool, path.Child("expression"))
		errs = append(errs, found...)
	}
	if len(errs) > 0 {
		return grant{}, errs
	}
	g.readNamespaces(in.Namespaces)
	g.subjects = policy.CompileSubjects(in.Subjects)
	g.namespace = readSelector(in.NamespaceSelector)
	g.object = readSelector(in.ObjectSelector)
	if in.MaxTolerationSeconds != nil {
		g.limit = new(*in.MaxTolerationSeconds)
	}
	return g, nil
}

func (g *grant) readNamespaces(patterns []string) {
	for _, pattern := range patterns {
		prefix, open := strings.CutSuffix(pattern, "*")
		switch {
		case !open:
			if g.names == nil {
				g.names = make(map[string]struct{}, len(patterns))
			}
			g.names[pattern] = struct{}{}
		case prefix == "":
			g.anyNamespace = true
		default:
			g.prefixes = append(g.prefixes, prefix)
		}
	}
}

// readSelector reads a selector that is valid or nil. One that is not valid selects
// nothing.
func readSelector(in *metav1.LabelSelector) labels.Selector {
	if in == nil {
		return nil
	}
	read, err := metav1.LabelSelectorAsSelector(in)
	if err != nil {
		return labels.Nothing()
	}
	return read
}

// cost orders grants by what it takes to ask them: nothing, a question to the
// cluster's authorizer, which is mostly in its cache, or an expression.
func (g *grant) cost() int {
	switch {
	case g.expression != nil:
		return 2
	case g.rbac:
		return 1
	default:
		return 0
	}
}

// personal reports whether the grant is about more than the namespace.
func (g *grant) personal() bool {
	return g.named || g.rbac || g.expression != nil
}

// covers reports whether the grant is for the namespace. Labels that are not
// known (nil) satisfy no selector, not even one for the absence of a label.
func (g *grant) covers(namespace string, known map[string]string) bool {
	if !g.anyNamespace && !g.namedNamespace(namespace) {
		return false
	}
	return g.namespace == nil || (known != nil && g.namespace.Matches(labels.Set(known)))
}

func (g *grant) namedNamespace(namespace string) bool {
	if _, ok := g.names[namespace]; ok {
		return true
	}
	for _, prefix := range g.prefixes {
		if strings.HasPrefix(namespace, prefix) {
			return true
		}
	}
	return false
}

// admits reports whether all that can be told without asking anybody matches:
// namespace, labels of the object, and subjects.
func (g *grant) admits(in *Input) bool {
	if !g.covers(in.Namespace, in.NamespaceLabels) {
		return false
	}
	if g.object != nil && !g.object.Matches(labels.Set(in.Labels)) {
		return false
	}
	return !g.named || in.RequesterUnknown || g.subjects.Includes(&in.User)
}

// fits reports whether a toleration stays within the time of the grant. outlasts
// says that it could outlast a guarded NoExecute taint, or else time is no matter.
func (g *grant) fits(t *selector.Toleration, outlasts bool) bool {
	return g.limit == nil || !outlasts || t.Within(*g.limit)
}
