package taint

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Set is a snapshot of TaintPolicies. It does not change and is safe for concurrent
// use. The nil Set and the zero Set allow everything and register nothing.
type Set struct {
	policy.Set[*compiled]
	index selector.Index
	// registering are the policies that give nodes taints.
	registering []*compiled
}

// compiled is a compiled policy. It does not change.
type compiled struct {
	name, ref  string // ref is how findings name the policy
	created    metav1.Time
	problems   field.ErrorList
	taints     []selector.Selector
	setters    []setter
	conditions cel.Conditions
	registers  []registration
	limits     *v1alpha1.TaintLimits
	ttl        time.Duration // zero for none
	actions    []v1alpha1.ValidationAction
	denies     bool // the policy can refuse
	message    string
}

// Compile returns the set of policies. The set shares no memory with the argument.
//
// The valid parts of an invalid policy apply. An invalid setter allows nothing, invalid
// matchConditions count as true, an invalid registration registers nothing, limits apply if
// they have a value, and an unknown action counts as Deny. Problems returns the errors.
func Compile(policies []v1alpha1.TaintPolicy) *Set {
	return new(Set).Next(policies)
}

// Next returns the set of policies as Compile does, and takes over from s those that
// have not changed.
func (s *Set) Next(policies []v1alpha1.TaintPolicy) *Set {
	if s == nil {
		s = new(Set)
	}
	next := &Set{Set: policy.CompileSet(policies, &s.Set, policy.ByName, compile)}
	next.index = selector.IndexOf(next.Policies, func(c *compiled) []selector.Selector { return c.taints })
	for _, c := range next.Policies {
		if len(c.registers) > 0 {
			next.registering = append(next.registering, c)
		}
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

func compile(p *v1alpha1.TaintPolicy) (*compiled, field.ErrorList) {
	c := &compiled{
		name:       p.Name,
		ref:        policy.Ref("TaintPolicy", p.Name),
		taints:     selector.CompileAll(p.Spec.Taints),
		created:    p.CreationTimestamp,
		problems:   validateRest(p),
		conditions: cel.CompileConditions(p.Spec.MatchConditions),
		limits:     p.Spec.Limits.DeepCopy(),
		actions:    policy.Actions(p.Spec.ValidationActions),
		message:    strings.TrimSpace(policy.Short(p.Spec.Message, policy.MaxFinding)),
	}
	c.denies = policy.Denies(c.actions)
	for i := range p.Spec.Setters {
		s, errs := compileSetter(&p.Spec.Setters[i], settersPath.Index(i))
		if len(errs) == 0 {
			c.setters = append(c.setters, s)
		}
		c.problems = append(c.problems, errs...)
	}
	slices.SortStableFunc(c.setters, func(a, b setter) int { return cmp.Compare(a.cost, b.cost) })
	for i := range p.Spec.Register {
		if in := &p.Spec.Register[i]; len(ValidateRegistration(in, nil)) == 0 {
			c.registers = append(c.registers, registration{in.DeepCopy(), selector.CompileLabels(&in.NodeSelector)})
		}
	}
	if p.Spec.TTL != nil && p.Spec.TTL.Duration >= minTTL {
		c.ttl = p.Spec.TTL.Duration
	}
	return c, c.problems
}

// governs reports whether the policy governs the taint.
func (c *compiled) governs(t Taint) bool {
	return selector.Selecting(c.taints, t.Target, t.Driver, t.Key, t.Value, t.Effect) != nil
}

// seen returns the operation of a write for the policy, empty if it does not govern it: a taint
// that comes to be governed is added, and one that is no longer governed is removed, also where it
// merely changes. So a requester who may only change taints cannot change one out of the policy.
func (c *compiled) seen(w *Write) v1alpha1.TaintOperation {
	before := w.Operation != v1alpha1.TaintAdd && c.governs(w.Old)
	after := w.Operation != v1alpha1.TaintRemove && c.governs(w.New)
	switch {
	case before && after:
		return v1alpha1.TaintChange
	case before:
		return v1alpha1.TaintRemove
	case after:
		return v1alpha1.TaintAdd
	default:
		return ""
	}
}

// candidates returns the positions of the policies that may govern one of the writes,
// ascending.
func (s *Set) candidates(writes []Write) []int {
	if s.Len() == 0 {
		return nil
	}
	var positions []int
	add := func(t Taint) {
		exact := selector.Toleration{Target: t.Target, Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value}
		positions = slices.AppendSeq(positions, s.index.Candidates(&exact))
	}
	for i := range writes {
		w := &writes[i]
		if w.Operation != v1alpha1.TaintAdd {
			add(w.Old)
		}
		if w.Operation != v1alpha1.TaintRemove && (w.Operation == v1alpha1.TaintAdd || w.Old.Value != w.New.Value) {
			add(w.New)
		}
	}
	slices.Sort(positions)
	return slices.Compact(positions)
}

// setter is a compiled setter of taints.
type setter struct {
	anyone     bool // no subjects are named
	subjects   policy.SubjectSet
	rbac       bool
	expression *cel.Program // nil for none
	operations []v1alpha1.TaintOperation
	words      string
	cost       int // of the evaluation, to order setters by it
}

// compileSetter compiles a setter of a stored policy. A setter with a fault allows nothing.
func compileSetter(in *v1alpha1.TaintSetter, path *field.Path) (setter, field.ErrorList) {
	errs := validateSetter(in, path)
	s := setter{
		anyone:     len(in.Subjects) == 0,
		subjects:   policy.CompileSubjects(in.Subjects),
		rbac:       in.RBAC,
		operations: slices.Clone(in.Operations),
		words:      setterWords(in),
	}
	if in.RBAC {
		s.cost = 2 // it may take a request to the API server
	}
	if in.Expression != "" {
		program, err := cel.Compile(cel.OfTaint, in.Expression, cel.Bool)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("expression"), policy.Short(in.Expression, policy.MaxKeyLength), err.Error()))
		}
		s.expression = program
		s.cost++
	}
	return s, errs
}

// setterWords returns the subjects of a setter, for messages.
func setterWords(in *v1alpha1.TaintSetter) string {
	var parts []string
	if len(in.Subjects) > 0 {
		parts = append(parts, policy.ShortSubjects(in.Subjects))
	}
	if in.RBAC {
		parts = append(parts, "who may "+policy.VerbTaint+" taints.tollgate.dev of this name")
	}
	if in.Expression != "" {
		parts = append(parts, "where "+policy.Short(in.Expression, policy.MaxKeyLength))
	}
	return strings.Join(parts, " and ")
}

// allows reports whether the setter is for the operation.
func (s *setter) allows(operation v1alpha1.TaintOperation) bool {
	return len(s.operations) == 0 || slices.Contains(s.operations, operation)
}

// may reports whether the setter allows the requester the write. An expression that fails allows nothing, and its
// failure is returned as a *cel.FailedError. Every other error is a fault.
func (s *setter) may(ctx context.Context, in *Input, w *governed) (bool, error) {
	if !s.allows(w.operation) || !s.anyone && !s.subjects.Includes(in.User) {
		return false, nil
	}
	t := w.named()
	if s.rbac {
		if in.Review == nil || in.Review.Authorizer == nil {
			return false, errors.New("nobody can be asked what RBAC allows")
		}
		ok, err := policy.May(ctx, in.Review.Authorizer, policy.UserInfo(in.User), policy.VerbTaint, t.Key)
		if !ok || err != nil {
			return false, err
		}
	}
	if s.expression == nil {
		return true, nil
	}
	judged := &corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: new(metav1.NewTime(t.TimeAdded))}
	return s.expression.Bool(ctx, in.Review, &cel.Judged{Taint: judged, Operation: string(w.operation)})
}

// ask reports whether one of the setters allows a write; then faults of others do not matter.
// Failure is the failure of an expression that might have allowed it.
func (c *compiled) ask(ctx context.Context, in *Input, w *governed) (allowed bool, failure string, fault error) {
	for i := range c.setters {
		ok, err := c.setters[i].may(ctx, in, w)
		failed, is := errors.AsType[*cel.FailedError](err)
		switch {
		case is:
			failure = cmp.Or(failure, failed.Problem)
		case err != nil:
			fault = errors.Join(fault, err)
		case ok:
			return true, "", nil
		}
	}
	return false, failure, fault
}
