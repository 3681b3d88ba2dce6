package toleration

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestNextTakesOverWhatDidNotChange(t *testing.T) {
	stored := func(name, uid string, generation int64, spec string) v1alpha1.TolerationPolicy {
		p := policyOf(t, name, spec)
		p.UID, p.Generation = types.UID(uid), generation
		return p
	}
	const toNobody, toApple, faulty = `{taints: [{key: dedicated}]}`, `{taints: [{key: dedicated}], grants: [{expression: "request.namespace == 'apple'"}]}`, `{taints: [{key: other}], grants: [{expression: maybe}]}`
	first := Compile([]v1alpha1.TolerationPolicy{stored("a", "1", 1, toApple), stored("b", "2", 1, faulty), policyOf(t, "c", toApple)})
	require.Contains(t, first.Problems(), "b")
	tests := map[string]struct {
		next     v1alpha1.TolerationPolicy
		same     bool
		verdict  policy.Verdict
		problems int
	}{
		"nothing changed":                          {stored("a", "1", 1, toApple), true, policy.Allowed, 0},
		"another generation":                       {stored("a", "1", 2, toNobody), false, policy.Denied, 0},
		"another policy of the same name":          {stored("a", "3", 1, toNobody), false, policy.Denied, 0},
		"a policy that the API server did not see": {policyOf(t, "c", toNobody), false, policy.Denied, 0},
		"a faulty policy stays faulty":             {stored("b", "2", 1, faulty), true, policy.Allowed, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			next := first.Next([]v1alpha1.TolerationPolicy{tt.next})
			require.Equal(t, tt.same, next.Policies[0] == first.Policies[0] || next.Policies[0] == first.Policies[1])
			require.Equal(t, tt.verdict, judge(t, next, inputOf("apple", toleration(t, dedicatedExists))).Verdict)
			require.Len(t, next.Problems(), tt.problems)
			require.Equal(t, 1, next.Len())

			again := next.Next([]v1alpha1.TolerationPolicy{tt.next})
			require.Equal(t, tt.next.UID != "", again.Policies[0] == next.Policies[0])
		})
	}
	require.Equal(t, 3, first.Len(), "a set does not change")
}
