package gate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestValidatePolicy(t *testing.T) {
	t.Parallel()
	long := make([]rbacv1.Subject, 257)
	for i := range long {
		long[i] = controller
	}
	tests := map[string]struct {
		change func(p *v1alpha1.GatePolicySpec)
		want   []string
	}{
		"as it should be":             {func(*v1alpha1.GatePolicySpec) {}, nil},
		"a prefix":                    {func(p *v1alpha1.GatePolicySpec) { p.Gates = []string{"example.com/*", "hold"} }, nil},
		"no owners":                   {func(p *v1alpha1.GatePolicySpec) { p.Owners = nil }, nil},
		"no gates":                    {func(p *v1alpha1.GatePolicySpec) { p.Gates = nil }, []string{"spec.gates"}},
		"every gate":                  {func(p *v1alpha1.GatePolicySpec) { p.Gates = []string{"*"} }, []string{"spec.gates[0]"}},
		"a star within":               {func(p *v1alpha1.GatePolicySpec) { p.Gates = []string{"example.com/q*"} }, []string{"spec.gates[0]"}},
		"a prefix that is none":       {func(p *v1alpha1.GatePolicySpec) { p.Gates = []string{"ex ample/*", "/*"} }, []string{"spec.gates[0]", "spec.gates[1]"}},
		"a gate that is none (SD-01)": {func(p *v1alpha1.GatePolicySpec) { p.Gates = []string{"a b", ""} }, []string{"spec.gates[0]", "spec.gates[1]"}},
		"a gate twice":                {func(p *v1alpha1.GatePolicySpec) { p.Gates = []string{"a", "a"} }, []string{"spec.gates[1]"}},
		"a subject that is none":      {func(p *v1alpha1.GatePolicySpec) { p.Owners = []rbacv1.Subject{{Kind: "Pod", Name: "p"}} }, []string{"spec.owners[0].kind"}},
		"too many owners (D06)":       {func(p *v1alpha1.GatePolicySpec) { p.Owners = long }, []string{"spec.owners"}},
		"too many gates (D06)": {func(p *v1alpha1.GatePolicySpec) {
			p.Gates = strings.Split(strings.Repeat("a,", maxGates)+"a", ",")
			for i := range p.Gates {
				p.Gates[i] = "g" + strings.Repeat("x", i)
			}
			p.Gates = p.Gates[:maxGates+1]
		}, []string{"spec.gates", "spec.gates[63]", "spec.gates[64]"}},
		"an unknown action": {func(p *v1alpha1.GatePolicySpec) { p.ValidationActions = []v1alpha1.ValidationAction{"Hope"} }, []string{"spec.validationActions[0]"}},
		"Deny and Warn": {func(p *v1alpha1.GatePolicySpec) {
			p.ValidationActions = []v1alpha1.ValidationAction{v1alpha1.Deny, v1alpha1.Warn}
		}, []string{"spec.validationActions"}},
		"a message of two lines": {func(p *v1alpha1.GatePolicySpec) { p.Message = "a\nb" }, []string{"spec.message"}},
		"a long message":         {func(p *v1alpha1.GatePolicySpec) { p.Message = strings.Repeat("x", 1024+1) }, []string{"spec.message"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gatePolicy("p", []string{"example.com/queue"}, controller)
			tt.change(&p.Spec)
			var paths []string
			for _, err := range ValidatePolicy(&p) {
				paths = append(paths, err.Field)
			}
			require.Equal(t, tt.want, paths)
			_, faulty := Compile([]v1alpha1.GatePolicy{p}).Problems()["p"]
			require.Equal(t, len(tt.want) > 0, faulty)
		})
	}
}
