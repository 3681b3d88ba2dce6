package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/controllers/pairing"
)

func TestOnlyTollgateMarksRulesAsItsOwn(t *testing.T) {
	const (
		spec    = `"spec":{"deviceSelector":{"driver":"gpu"},"taint":{"key":"free","effect":"NoSchedule","timeAdded":"2026-11-20T12:00:00Z"}}}`
		plain   = `{"metadata":{"name":"r"},` + spec
		marked  = `{"metadata":{"name":"r","labels":{"tollgate.dev/pair":"rule"}},` + spec
		other   = `{"metadata":{"name":"r","labels":{"tollgate.dev/pair":"device"}},` + spec
		owned   = `{"metadata":{"name":"r","labels":{"tollgate.dev/pair":"rule"},"ownerReferences":[{"kind":"DeviceTaintRule","name":"x","uid":"1"}]},` + spec
		adopted = `{"metadata":{"name":"r","labels":{"tollgate.dev/pair":"rule"},"ownerReferences":[{"kind":"DeviceTaintRule","name":"nope","uid":"2"}]},` + spec
		labels  = `{"metadata":{"name":"r","labels":{"team":"a"},"ownerReferences":[{"kind":"X","name":"x","uid":"1"}]},` + spec
	)
	const tollgate = "system:serviceaccount:tollgate-system:tollgate"
	for name, tt := range map[string]struct {
		who, now, old, reason string
	}{
		"bob creates one that is marked":            {"bob", marked, "", "TwinReserved"},
		"Tollgate does":                             {tollgate, owned, "", ""},
		"C12 bob marks one":                         {"bob", marked, plain, "TwinReserved"},
		"bob takes the mark off":                    {"bob", plain, marked, "TwinReserved"},
		"bob changes the mark":                      {"bob", other, marked, "TwinReserved"},
		"bob gives one that is marked an owner":     {"bob", owned, marked, "TwinReserved"},
		"bob gives it another owner":                {"bob", adopted, owned, "TwinReserved"},
		"the garbage collector takes the owner off": {"system:serviceaccount:kube-system:generic-garbage-collector", marked, owned, ""},
		"bob labels another, and gives it an owner": {"bob", labels, plain, ""},
		"bob leaves one as it is":                   {"bob", owned, owned, ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := &ruleJudge{clock: clocktesting.NewFakePassiveClock(noon), governor: governedBy(taintPolicies()...)}
			review := asUser(deviceReview(t, "devicetaintrules", "v1", tt.now, tt.old), tt.who)
			requireReason(t, tt.reason, judged(t, j, review))
		})
	}
	require.Equal(t, pairing.Label, twinLabel)
	t.Run("one is deleted by whoever may", func(t *testing.T) {
		review := deviceReview(t, "devicetaintrules", "v1", "null", owned)
		review.Request.Operation = admissionv1.Delete
		j := &ruleJudge{clock: clocktesting.NewFakePassiveClock(noon), governor: governedBy(taintPolicies()...)}
		requireReason(t, "", judged(t, j, asUser(review, "bob")))
	})
}
