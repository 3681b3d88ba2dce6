package gate

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestGuardsNamesWhoOpensAGate(t *testing.T) {
	t.Parallel()
	warns := gatePolicy("b-warns", []string{"example.com/*"}, admins)
	warns.Spec.ValidationActions, warns.Spec.Message = []v1alpha1.ValidationAction{v1alpha1.Warn}, "ask the queue"
	set := Compile([]v1alpha1.GatePolicy{warns, gatePolicy("a", []string{"example.com/queue"}, controller), gatePolicy("nobody", []string{"other.example.com/gate"}, rbacv1.Subject{})})
	require.Equal(t, []Guard{
		{Policy: "GatePolicy/a", Owners: "allowed to service account queue-system/queue-controller", Denies: true},
		{Policy: "GatePolicy/b-warns", Owners: "allowed to group admins", Message: "ask the queue"},
	}, set.Guards("example.com/queue"))
	require.Equal(t, "the policy names no owner, so nobody may (the policy is not fully in force, see its status)", set.Guards("other.example.com/gate")[0].Owners)
	require.Empty(t, set.Guards("free.example.com/gate"))
	require.Empty(t, (*Set)(nil).Guards("example.com/queue"))
}
