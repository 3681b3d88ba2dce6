package taint

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
)

// setter is who may set taints, read once.
type setter struct {
	anyone     bool // no subjects are named
	subjects   policy.SubjectSet
	rbac       bool
	expression *cel.Program // nil for none
	operations []v1alpha1.TaintOperation
	words      string
}

// readSetter reads a setter of a policy that is in store. One with a fault is for
// nobody.
func readSetter(in *v1alpha1.TaintSetter, path *field.Path) (setter, field.ErrorList) {
	errs := validateSetter(in, path)
	s := setter{
		anyone:     len(in.Subjects) == 0,
		subjects:   policy.CompileSubjects(in.Subjects),
		rbac:       in.RBAC,
		operations: slices.Clone(in.Operations),
		words:      setterWords(in),
	}
	if in.Expression != "" {
		program, err := cel.Compile(cel.OfTaint, in.Expression, cel.Bool)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("expression"), policy.Short(in.Expression, policy.MaxKeyLength), err.Error()))
		}
		s.expression = program
	}
	return s, errs
}

// cost orders setters by what asking them takes, so that the cheap ones come first.
func (s *setter) cost() int {
	cost := 0
	if s.rbac {
		cost += 2 // it may take a request to the API server
	}
	if s.expression != nil {
		cost++
	}
	return cost
}

// setterWords says who a setter is for.
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

// asked is one question to the setters of a policy: may the requester do this to the
// taint.
type asked struct {
	in        *Input
	operation v1alpha1.TaintOperation
	taint     Taint
}

var errNoAuthorizer = errors.New("nobody can be asked what RBAC allows")

// may reports whether the setter lets the requester do it. An expression that fails
// lets nobody, and its failure is returned as an *cel.FailedError. Every other
// error is a fault.
func (s *setter) may(ctx context.Context, a asked) (bool, error) {
	if !s.allows(a.operation) || !s.anyone && !s.subjects.Includes(a.in.User) {
		return false, nil
	}
	if s.rbac {
		if a.in.Review == nil || a.in.Review.Authorizer == nil {
			return false, errNoAuthorizer
		}
		ok, err := policy.May(ctx, a.in.Review.Authorizer, policy.UserInfo(a.in.User), policy.VerbTaint, a.taint.Key)
		if !ok || err != nil {
			return false, err
		}
	}
	if s.expression == nil {
		return true, nil
	}
	return s.expression.Bool(ctx, a.in.Review, &cel.Judged{Taint: a.taint.object(), Operation: string(a.operation)})
}

// answer is what the setters of a policy say. Reason is why an expression that might
// have allowed it could not be evaluated.
type answer struct {
	allowed bool
	reason  string
}

// ask asks the setters. One that allows it is enough, and then faults of others do not
// matter.
func (c *compiled) ask(ctx context.Context, a asked) (answer, error) {
	var fault error
	var said answer
	for i := range c.setters {
		ok, err := c.setters[i].may(ctx, a)
		if failed := (*cel.FailedError)(nil); errors.As(err, &failed) {
			if said.reason == "" {
				said.reason = failed.Problem
			}
			continue
		}
		if err != nil {
			fault = errors.Join(fault, err)
			continue
		}
		if ok {
			return answer{allowed: true}, nil
		}
	}
	return said, fault
}
