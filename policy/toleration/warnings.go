package toleration

import (
	"fmt"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/cel"
)

// Warnings returns what the author of a valid policy may not expect of it, in the
// order of its grants.
func Warnings(p *v1alpha1.TolerationPolicy) []string {
	var warnings []string
	for i := range p.Spec.Grants {
		var what string
		switch g := &p.Spec.Grants[i]; {
		case g.ObjectSelector != nil && readsObject(g.Expression):
			what = "objectSelector and expression look"
		case g.ObjectSelector != nil:
			what = "objectSelector looks"
		case readsObject(g.Expression):
			what = "expression looks"
		default:
			continue
		}
		warnings = append(warnings, fmt.Sprintf(
			"spec.grants[%d]: %s at the object as it is when a toleration is added; it may be changed afterwards and keeps the toleration", i, what))
	}
	return warnings
}

// readsObject reports whether an expression looks at the object. One that does not
// compile grants nothing.
func readsObject(text string) bool {
	if text == "" {
		return false
	}
	program, err := cel.Compile(cel.OfToleration, text, cel.Bool)
	return err == nil && program.Uses().Object
}
