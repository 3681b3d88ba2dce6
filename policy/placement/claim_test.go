package placement

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
)

// tolerating returns a toleration of devices for ever, or for a while.
func tolerating(key string, seconds *int64) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{
		Key: key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: seconds,
	}
}

func many(prefix string, n int) []resourcev1.DeviceToleration {
	list := make([]resourcev1.DeviceToleration, n)
	for i := range list {
		list[i] = tolerating(prefix+strconv.Itoa(i), nil)
	}
	return list
}

func TestGiveClaim(t *testing.T) {
	degraded, for300 := tolerating("degraded", nil), tolerating("degraded", new(int64(300)))
	t.Run("every request is given what it lacks", func(t *testing.T) {
		m := matchClaim(t, givesClaims("b", for300), givesClaims("a", tolerating("broken", nil)))
		additions := m.GiveClaim([]ClaimRequest{{}, {Tolerations: []resourcev1.DeviceToleration{degraded}}, {Tolerations: []resourcev1.DeviceToleration{tolerating("broken", nil), for300}}})
		require.Equal(t, [][]resourcev1.DeviceToleration{{tolerating("broken", nil), for300}, {tolerating("broken", nil)}, nil}, additions)
	})
	t.Run("for ever is enough where another policy gives a while", func(t *testing.T) {
		m := matchClaim(t, givesClaims("a", for300), givesClaims("b", degraded))
		require.Equal(t, [][]resourcev1.DeviceToleration{{degraded}}, m.GiveClaim([]ClaimRequest{{}}))
	})
	t.Run("D09 AV-11 a request is never given more than 16", func(t *testing.T) {
		m := matchClaim(t, givesClaims("a", many("a", 4)...), givesClaims("b", many("b", 4)...))
		path := field.NewPath("spec", "devices", "requests").Index(0).Child("exactly", "tolerations")
		request := ClaimRequest{Path: path, Tolerations: many("own", 11)}
		additions := m.GiveClaim([]ClaimRequest{request})[0]
		require.Equal(t, append(many("a", 4), many("b", 1)...), additions)

		request.Tolerations = append(request.Tolerations, additions...)
		require.Empty(t, m.GiveClaim([]ClaimRequest{request})[0])
		decision := policy.Decide(m.JudgeClaim([]ClaimRequest{request}))
		require.Equal(t, policy.Allowed, decision.Verdict)
		require.Len(t, decision.Findings, 3)
		require.Equal(t, "PlacementPolicy/b: spec.devices.requests[0].exactly.tolerations (b1:NoExecute): is given by the policy, and is not there; "+
			"a request holds no more than 16 tolerations: remove some of its own", decision.Findings[0].String())
	})
	t.Run("a claim with more than 16 of its own is Kubernetes' to refuse", func(t *testing.T) {
		m := matchClaim(t, givesClaims("a", degraded))
		require.Empty(t, m.GiveClaim([]ClaimRequest{{Tolerations: many("own", 17)}})[0])
	})
	t.Run("what was left out is warned of", func(t *testing.T) {
		m := matchClaim(t, givesClaims("a", for300))
		decision := policy.Decide(m.JudgeClaim([]ClaimRequest{{Path: field.NewPath("x")}}))
		require.Equal(t, policy.Allowed, decision.Verdict)
		require.Equal(t, "PlacementPolicy/a: x (degraded:NoExecute for 300s): is given by the policy, and is not there; "+
			"Tollgate adds it to what is created: create it again, or add it", decision.Findings[0].String())
		require.Empty(t, m.JudgeClaim([]ClaimRequest{{Tolerations: []resourcev1.DeviceToleration{for300}}}))
	})
	t.Run("findings are bounded", func(t *testing.T) {
		m := matchClaim(t, givesClaims("a", many("a", 16)...))
		path := field.NewPath("x")
		require.Len(t, m.JudgeClaim([]ClaimRequest{{Path: path}, {Path: path}, {Path: path}}), MaxFindings)
	})
}
