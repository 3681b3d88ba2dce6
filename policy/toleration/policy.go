package toleration

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Set is a snapshot of TolerationPolicies, ready to judge tolerations. It does not change
// and is safe for concurrent use. The nil Set and the zero Set hold no policy and allow
// everything.
type Set struct {
	policy.Set[*compiled]
	index selector.Index
	// labels says that the labels of pods matter to some policy, namespaced that some policy
	// is namespaced.
	labels, namespaced bool
}

// compiled is a compiled policy. It does not change.
type compiled struct {
	name   string
	guards []selector.Selector
	// grants are in the order of their cost.
	grants []grant
	// dynamic says that a grant has RBAC or an expression, personal that a grant depends on
	// the requester, not on the namespace alone.
	dynamic, personal bool
	// limited says that a grant limits tolerationSeconds.
	limited bool
	// namespaced says that a grant selects labels of the namespace, or that an expression reads
	// namespaceObject.
	namespaced bool

	conditions cel.Conditions

	actions []v1alpha1.ValidationAction
	denies  bool

	message    string
	expression *cel.Program // of the message; nil for none
	remedy     string

	problems field.ErrorList
}

// Compile returns the set of policies. It keeps nothing of what it is given.
//
// A policy that is not valid still guards what it can: a grant with a fault grants
// nothing, a condition with a fault holds, and an action that is not known is Deny.
// Problems names the faults.
func Compile(policies []v1alpha1.TolerationPolicy) *Set {
	return new(Set).Next(policies)
}

// Next returns the set of policies as Compile does, and takes over from s those that
// have not changed.
func (s *Set) Next(policies []v1alpha1.TolerationPolicy) *Set {
	if s == nil {
		s = new(Set)
	}
	next := &Set{Set: policy.CompileSet(policies, &s.Set, policy.ByName, compile)}
	next.index = selector.IndexOf(next.Policies, func(c *compiled) []selector.Selector { return c.guards })
	for _, c := range next.Policies {
		next.namespaced = next.namespaced || c.namespaced
		next.labels = next.labels || slices.ContainsFunc(c.grants, func(g grant) bool { return g.object != nil })
	}
	return next
}

// Len returns how many policies the set holds.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.Policies)
}

// compile compiles a stored policy, as far as it is valid.
func compile(p *v1alpha1.TolerationPolicy) (*compiled, field.ErrorList) {
	spec := field.NewPath("spec")
	c := &compiled{
		name:       p.Name,
		guards:     selector.CompileAll(p.Spec.Taints),
		conditions: cel.CompileConditions(p.Spec.MatchConditions),
		actions:    policy.Actions(p.Spec.ValidationActions),
		message:    strings.TrimSpace(policy.Short(p.Spec.Message, policy.MaxFinding)),
		problems:   validateRest(p, spec),
	}
	c.denies, c.namespaced = policy.Denies(c.actions), c.conditions.Uses().Namespace
	if text := p.Spec.MessageExpression; text != "" {
		var errs field.ErrorList
		c.expression, errs = compileExpression(text, cel.String, spec.Child("messageExpression"))
		c.problems = append(c.problems, errs...)
		c.namespaced = c.namespaced || readsNamespace(c.expression)
	}
	var granted []string
	for i := range p.Spec.Grants {
		g, errs := compileGrant(&p.Spec.Grants[i], i, spec.Child("grants").Index(i))
		if len(errs) > 0 {
			c.problems = append(c.problems, errs...)
			continue
		}
		c.grants = append(c.grants, g)
		c.dynamic = c.dynamic || g.cost() > 0
		c.limited = c.limited || g.limit != nil
		c.personal = c.personal || g.personal()
		c.namespaced = c.namespaced || g.namespace != nil || readsNamespace(g.expression)
		granted = append(granted, grantWords(&p.Spec.Grants[i]))
	}
	slices.SortStableFunc(c.grants, func(a, b grant) int { return cmp.Compare(a.cost(), b.cost()) })
	c.remedy = remedy(granted)
	return c, c.problems
}

// compileExpression compiles an expression of a stored policy.
func compileExpression(text string, result cel.Type, path *field.Path) (*cel.Program, field.ErrorList) {
	program, err := cel.Compile(cel.OfToleration, text, result)
	if err == nil {
		return program, nil
	}
	if errs := cel.Validate(cel.OfToleration, text, result, path); len(errs) > 0 {
		return nil, errs
	}
	return nil, field.ErrorList{field.Invalid(path, text, err.Error())}
}

func readsNamespace(expression *cel.Program) bool {
	return expression != nil && expression.Uses().Namespace
}

// Summary returns the remedy that denials of a policy name, and the keys of the guarded
// taints, sorted.
func Summary(p *v1alpha1.TolerationPolicy) (remedy string, keys []string) {
	c, _ := compile(p)
	return c.remedy, c.keys()
}

func (c *compiled) keys() []string {
	keys := make([]string, len(c.guards))
	for i := range c.guards {
		keys[i] = c.guards[i].Key()
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// outlasted returns the first guard with a NoExecute taint that t tolerates, or
// nil. It is nil too where no grant has a limit, because it decides nothing there.
func (c *compiled) outlasted(t *selector.Toleration) *selector.Selector {
	if !c.limited {
		return nil
	}
	for i := range c.guards {
		if c.guards[i].CouldOutlast(t) {
			return &c.guards[i]
		}
	}
	return nil
}

// grant is a valid grant, read once. All that is set must match.
type grant struct {
	// position is the grant's among those of its policy, as they are written.
	position int

	namespaces selector.Namespaces
	// namespace and object select by labels; nil where the grant does not.
	namespace, object labels.Selector

	subjects policy.SubjectSet
	named    bool // the grant has subjects

	rbac       bool
	expression *cel.Program // nil for none

	// limit is nil where the grant sets none.
	limit *int64
}

// compileGrant compiles a grant. A grant with errors must not be used, because the parts that
// cannot be read would narrow it.
func compileGrant(in *v1alpha1.TolerationGrant, position int, path *field.Path) (grant, field.ErrorList) {
	g := grant{position: position, namespaces: selector.CompileNamespaces(in.Namespaces), rbac: in.RBAC, named: len(in.Subjects) > 0}
	errs := validateGrant(in, path)
	if in.Expression != "" {
		var found field.ErrorList
		g.expression, found = compileExpression(in.Expression, cel.Bool, path.Child("expression"))
		errs = append(errs, found...)
	}
	if len(errs) > 0 {
		return grant{}, errs
	}
	g.subjects = policy.CompileSubjects(in.Subjects)
	g.namespace = selector.CompileLabels(in.NamespaceSelector)
	g.object = selector.CompileLabels(in.ObjectSelector)
	if in.MaxTolerationSeconds != nil {
		g.limit = new(*in.MaxTolerationSeconds)
	}
	return g, nil
}

// cost orders grants by the cost of their evaluation: none, an expression, or a question to the
// authorizer of the cluster.
func (g *grant) cost() int {
	switch {
	case g.rbac:
		return 2
	case g.expression != nil:
		return 1
	default:
		return 0
	}
}

// personal reports whether the grant is about more than the namespace.
func (g *grant) personal() bool {
	return g.named || g.rbac || g.expression != nil
}

// covers reports whether the grant is for the namespace. Nil labels were not read and satisfy
// no selector, not even one for the absence of a label.
func (g *grant) covers(namespace string, namespaceLabels map[string]string) bool {
	return g.namespaces.Has(namespace) &&
		(g.namespace == nil || (namespaceLabels != nil && g.namespace.Matches(labels.Set(namespaceLabels))))
}

// admits reports whether the parts of the grant that cost nothing match: namespace, labels of
// the object, and subjects.
func (g *grant) admits(in *Input) bool {
	return g.covers(in.Namespace, in.NamespaceLabels) &&
		(g.object == nil || g.object.Matches(labels.Set(in.Labels))) &&
		(!g.named || in.RequesterUnknown || g.subjects.Includes(&in.User))
}

// fits reports whether a toleration stays within the time of the grant. Time matters only
// where the toleration outlasts a guarded NoExecute taint.
func (g *grant) fits(t *selector.Toleration, outlasts bool) bool {
	return g.limit == nil || !outlasts || t.Within(*g.limit)
}
