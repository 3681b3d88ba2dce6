package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
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
			j := governedBy(taintPolicies()...)
			review := asUser(deviceReview(t, "devicetaintrules", "v1", tt.now, tt.old), tt.who)
			requireReason(t, tt.reason, judged(t, j.handler(request.validateRule), review))
		})
	}
	require.Equal(t, devicetaints.Label, twinLabel)
	t.Run("one is deleted by whoever may", func(t *testing.T) {
		review := deviceReview(t, "devicetaintrules", "v1", "null", owned)
		review.Request.Operation = admissionv1.Delete
		j := governedBy(taintPolicies()...)
		requireReason(t, "", judged(t, j.handler(request.validateRule), asUser(review, "bob")))
	})
}

func TestOnlyTollgateMarksRulesAsThoseOfPatches(t *testing.T) {
	rule := func(labels, annotations, owners string) string {
		return `{"metadata":{"name":"r","labels":{` + labels + `},"annotations":{` + annotations + `},"ownerReferences":[` + owners + `]},
			"spec":{"deviceSelector":{"driver":"gpu"},"taint":{"key":"free","effect":"NoSchedule","timeAdded":"2026-11-20T12:00:00Z"}}}`
	}
	const (
		tollgate, collector, manager = "system:serviceaccount:tollgate-system:tollgate", "system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"

		label   = `"tollgate.dev/resource-slice-patch":"1"`
		effect  = `"tollgate.dev/patch-effect":"NoExecute"`
		owner   = `{"apiVersion":"tollgate.dev/v1alpha1","kind":"ResourceSlicePatch","name":"p","uid":"1","controller":true,"blockOwnerDeletion":true}`
		waiting = `{"apiVersion":"tollgate.dev/v1alpha1","kind":"ResourceSlicePatch","name":"p","uid":"1","controller":true,"blockOwnerDeletion":false}`
		mere    = `{"apiVersion":"tollgate.dev/v1alpha1","kind":"ResourceSlicePatch","name":"p","uid":"1"}`
		foreign = `{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"2"}`
	)
	require.Contains(t, label, v1alpha1.LabelPatch)
	require.Contains(t, effect, v1alpha1.AnnotationPatchEffect)
	plain, written := rule("", "", ""), rule(label, effect, owner)
	for name, tt := range map[string]struct {
		who, now, old, reason string
	}{
		"Tollgate writes one":                           {tollgate, written, "", ""},
		"Tollgate changes its effect":                   {tollgate, rule(label, "", owner), written, ""},
		"bob creates one with the label":                {"bob", rule(label, "", ""), "", "PatchReserved"},
		"bob creates one with the annotation":           {"bob", rule("", effect, ""), "", "PatchReserved"},
		"C12 bob labels one":                            {"bob", rule(label, "", ""), plain, "PatchReserved"},
		"C12 bob annotates one":                         {"bob", rule("", effect, ""), plain, "PatchReserved"},
		"bob takes the label off":                       {"bob", rule("", effect, owner), written, "PatchReserved"},
		"bob takes the annotation off":                  {"bob", rule(label, "", owner), written, "PatchReserved"},
		"bob changes the label":                         {"bob", rule(`"tollgate.dev/resource-slice-patch":"2"`, effect, owner), written, "PatchReserved"},
		"bob changes the annotation":                    {"bob", rule(label, `"tollgate.dev/patch-effect":"None"`, owner), written, "PatchReserved"},
		"bob empties the annotation":                    {"bob", rule(label, `"tollgate.dev/patch-effect":""`, owner), written, "PatchReserved"},
		"bob gives it another owner":                    {"bob", rule(label, effect, owner+","+foreign), written, "PatchReserved"},
		"bob takes its owner away":                      {"bob", rule(label, effect, ""), written, "PatchReserved"},
		"bob says that its owner does not control it":   {"bob", rule(label, effect, mere), written, "PatchReserved"},
		"the garbage collector takes the owner away":    {collector, rule(label, effect, ""), written, ""},
		"it does so as the controller manager":          {manager, rule(label, effect, ""), written, ""},
		"it says that the owner need not wait":          {collector, rule(label, effect, waiting), written, ""},
		"but it gives it no other owner":                {collector, rule(label, effect, owner+","+foreign), written, "PatchReserved"},
		"bob labels it with something else":             {"bob", rule(label+`,"team":"a"`, effect+`,"a":"b"`, owner), written, ""},
		"bob writes it again":                           {"bob", written, written, ""},
		"bob gives another one an owner and a label":    {"bob", rule(`"team":"a"`, "", foreign), plain, ""},
		"bob takes an owner from one that nobody wrote": {"bob", plain, rule("", "", foreign), ""},
	} {
		for _, version := range []string{"v1", "v1alpha3"} {
			t.Run(name+" in "+version, func(t *testing.T) {
				j := governedBy(taintPolicies()...)
				requireReason(t, tt.reason, judged(t, j.handler(request.validateRule), asUser(deviceReview(t, "devicetaintrules", version, tt.now, tt.old), tt.who)))
			})
		}
	}
	t.Run("each mark that changes is named", func(t *testing.T) {
		j := governedBy()
		response := judged(t, j.handler(request.validateRule), asUser(deviceReview(t, "devicetaintrules", "v1", written, plain), "bob"))
		require.False(t, response.Allowed)
		require.Equal(t, "metadata.annotations[tollgate.dev/patch-effect] (NoExecute): says which effect a rule that was written out for a ResourceSlicePatch has for Tollgate; "+
			"leave the annotation as it is, and write the effect into the ResourceSlicePatch; "+
			"metadata.labels[tollgate.dev/resource-slice-patch] (1): marks the rules that Tollgate writes out for ResourceSlicePatches; leave the label as it is", response.Result.Message)
	})
}

func TestTheGarbageCollectorDeletesRulesOfPatchesThatAreGone(t *testing.T) {
	governedRule := func(labels string) string {
		return `{"metadata":{"name":"r","labels":{` + labels + `}},"spec":{"deviceSelector":{"driver":"gpu"},"taint":{"key":"example.com/broken","effect":"NoExecute","timeAdded":"2026-11-20T12:00:00Z"}}}`
	}
	const label = `"tollgate.dev/resource-slice-patch":"1"`
	for name, tt := range map[string]struct{ who, old, reason string }{
		"the collector deletes one of a patch":      {"system:serviceaccount:kube-system:generic-garbage-collector", governedRule(label), ""},
		"the controller manager does":               {"system:kube-controller-manager", governedRule(label), ""},
		"bob deletes one":                           {"bob", governedRule(label), "TaintNotGranted"},
		"the collector deletes one that bob wrote":  {"system:serviceaccount:kube-system:generic-garbage-collector", governedRule(""), "TaintNotGranted"},
		"one that is called like it has no rights":  {"system:serviceaccount:team:generic-garbage-collector", governedRule(label), "TaintNotGranted"},
		"another controller of Kubernetes has none": {"system:serviceaccount:kube-system:job-controller", governedRule(label), "TaintNotGranted"},
	} {
		t.Run(name, func(t *testing.T) {
			review := asUser(deviceReview(t, "devicetaintrules", "v1", "null", tt.old), tt.who)
			review.Request.Operation = admissionv1.Delete
			j := governedBy(taintPolicies()...)
			requireReason(t, tt.reason, judged(t, j.handler(request.validateRule), review))
		})
	}
}
