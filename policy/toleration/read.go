package toleration

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// compile reads a policy that is in store, as far as it can be read.
func compile(p *v1alpha1.TolerationPolicy) (*compiled, field.ErrorList) {
	spec := field.NewPath("spec")
	c := &compiled{
		name:        p.Name,
		conditional: len(p.Spec.MatchConditions) > 0,
		actions:     policy.Actions(p.Spec.ValidationActions),
		message:     strings.TrimSpace(policy.Short(p.Spec.Message, MaxMessage)),
		problems:    validateRest(p, spec),
	}
	c.denies = len(c.actions) == 0 || slices.Contains(c.actions, v1alpha1.Deny)
	for i := range p.Spec.Taints {
		c.guards = append(c.guards, selector.Compile(&p.Spec.Taints[i]))
	}
	if c.conditional {
		c.conditions = cel.CompileConditions(cel.OfRequest, p.Spec.MatchConditions)
	}
	if text := p.Spec.MessageExpression; text != "" {
		var errs field.ErrorList
		c.expression, errs = compileExpression(text, cel.String, spec.Child("messageExpression"))
		c.problems = append(c.problems, errs...)
	}
	c.readGrants(p.Spec.Grants, spec.Child("grants"))
	return c, c.problems
}

func (c *compiled) readGrants(grants []v1alpha1.TolerationGrant, path *field.Path) {
	var granted []string
	for i := range grants {
		g, errs := readGrant(&grants[i], i, path.Index(i))
		if len(errs) > 0 {
			c.problems = append(c.problems, errs...)
			continue
		}
		c.grants = append(c.grants, g)
		c.dynamic = c.dynamic || g.cost() > 0
		c.personal = c.personal || g.personal()
		granted = append(granted, grantWords(&grants[i]))
	}
	slices.SortStableFunc(c.grants, func(a, b grant) int { return cmp.Compare(a.cost(), b.cost()) })
	c.remedy = remedy(granted)
}

// compileExpression compiles an expression of a policy that is in store.
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
