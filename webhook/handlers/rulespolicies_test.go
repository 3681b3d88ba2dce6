package handlers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

func ruleJSON(selector, key, effect string) string {
	return `{"metadata":{"name":"r"},"spec":{"deviceSelector":` + selector + `,"taint":{"key":"` + key + `","effect":"` + effect + `","timeAdded":"2026-11-20T12:00:00Z"}}}`
}

func TestWritesOfRulesAreGoverned(t *testing.T) {
	const gpu, every = `{"driver":"gpu"}`, `{}`
	quarantine := ruleJSON(gpu, "example.com/quarantine", "NoExecute")
	deleted := func(old string) admissionv1.AdmissionReview {
		review := deviceReview(t, "devicetaintrules", "v1", "null", old)
		review.Request.Operation = admissionv1.Delete
		return review
	}
	owned := func(rule string) string {
		const owner = `"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"none","uid":"none"}]`
		return strings.Replace(rule, `{"name":"r"}`, `{"name":"r",`+owner+`}`, 1)
	}
	tests := map[string]struct {
		user   []string
		review admissionv1.AdmissionReview
		reason string
	}{
		"bob gives one an owner that is not there":     {[]string{"bob"}, deviceReview(t, "devicetaintrules", "v1", owned(quarantine), quarantine), "TaintNotGranted"},
		"sre gives one an owner":                       {[]string{"ann", "sre"}, deviceReview(t, "devicetaintrules", "v1", owned(quarantine), quarantine), ""},
		"bob gives another an owner":                   {[]string{"bob"}, deviceReview(t, "devicetaintrules", "v1", owned(ruleJSON(gpu, "free", "None")), ruleJSON(gpu, "free", "None")), ""},
		"bob leaves one its owner":                     {[]string{"bob"}, deviceReview(t, "devicetaintrules", "v1", owned(quarantine), owned(quarantine)), ""},
		"bob takes its owner from one":                 {[]string{"bob"}, deviceReview(t, "devicetaintrules", "v1", quarantine, owned(quarantine)), ""},
		"bob creates one":                              {[]string{"bob"}, deviceReview(t, "devicetaintrules", "v1", quarantine, ""), "TaintNotGranted"},
		"sre creates one":                              {[]string{"ann", "sre"}, deviceReview(t, "devicetaintrules", "v1", quarantine, ""), ""},
		"bob creates another":                          {[]string{"bob"}, deviceReview(t, "devicetaintrules", "v1", ruleJSON(gpu, "free", "NoExecute"), ""), ""},
		"bob deletes one":                              {[]string{"bob"}, deleted(quarantine), "TaintNotGranted"},
		"sre deletes one":                              {[]string{"ann", "sre"}, deleted(quarantine), ""},
		"bob deletes another":                          {[]string{"bob"}, deleted(ruleJSON(gpu, "free", "NoExecute")), ""},
		"Tollgate deletes one whose time has come":     {[]string{"system:serviceaccount:tollgate-system:tollgate"}, deleted(quarantine), ""},
		"the garbage collector is not a way around":    {[]string{"system:serviceaccount:kube-system:generic-garbage-collector"}, deleted(quarantine), "TaintNotGranted"},
		"C08 bob deletes one in an older version":      {[]string{"bob"}, deviceReview(t, "devicetaintrules", "v1alpha3", ruleJSON(gpu, "free", "NoExecute"), quarantine), "TaintNotGranted"},
		"bob labels one":                               {[]string{"bob"}, deviceReview(t, "devicetaintrules", "v1", quarantine, quarantine), ""},
		"C25 sre taints every device":                  {[]string{"ann", "sre"}, deviceReview(t, "devicetaintrules", "v1", ruleJSON(every, "example.com/x", "None"), ""), "SelectorRequired"},
		"C25 sre taints none":                          {[]string{"ann", "sre"}, deviceReview(t, "devicetaintrules", "v1", ruleJSON("null", "example.com/x", "NoExecute"), ""), ""},
		"C25 a selector of unknown fields is none":     {[]string{"ann", "sre"}, deviceReview(t, "devicetaintrules", "v1alpha3", ruleJSON(`{"deviceClassName":"x"}`, "example.com/x", "None"), ""), "SelectorRequired"},
		"one of known fields too is one":               {[]string{"ann", "sre"}, deviceReview(t, "devicetaintrules", "v1alpha3", ruleJSON(`{"deviceClassName":"x","driver":"gpu"}`, "example.com/x", "None"), ""), ""},
		"C25 another unknown field is another rule":    {[]string{"ann", "sre"}, deviceReview(t, "devicetaintrules", "v1alpha3", ruleJSON(`{"deviceClassName":"y"}`, "example.com/x", "None"), ruleJSON(`{"deviceClassName":"x"}`, "example.com/x", "None")), "SelectorRequired"},
		"bob selects by a field that is not known":     {[]string{"bob"}, deviceReview(t, "devicetaintrules", "v1alpha3", ruleJSON(`{"driver":"gpu","deviceClassName":"x"}`, "example.com/quarantine", "NoExecute"), quarantine), "TaintNotGranted"},
		"bob deletes one that is on its way out again": {[]string{"bob"}, deleted(quarantine), "TaintNotGranted"},
	}
	policies := taintPolicies()
	policies[0].Spec.Limits = &v1alpha1.TaintLimits{RequireSelector: true}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			j := governedBy(policies...)
			requireReason(t, tt.reason, judged(t, j.handler(request.validateRule), asUser(tt.review, tt.user[0], tt.user[1:]...)))
		})
	}
}

func TestNothingIsStampedOnARuleThatIsDeleted(t *testing.T) {
	review := deviceReview(t, "devicetaintrules", "v1", "null", ruleJSON("null", "k", "None"))
	review.Request.Operation = admissionv1.Delete
	require.Empty(t, judged(t, governedBy().mutating(request.mutateRule), review).Patches)
}

func TestWritesOfSlicesAreGovernedWhereTheyAreNotTheDrivers(t *testing.T) {
	slice := func(node, taints string) string {
		return `{"metadata":{"name":"s"},"spec":{"driver":"gpu","nodeName":"` + node + `","pool":{"name":"p"},"devices":[{"name":"a","taints":` + taints + `}]}}`
	}
	const hot = `[{"key":"example.com/hot","effect":"NoSchedule","timeAdded":"2026-11-20T12:00:00Z"}]`
	account := authenticationv1.UserInfo{Username: "system:serviceaccount:gpu:driver"}
	bound := *account.DeepCopy()
	bound.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {"n1"}}
	tests := map[string]struct {
		user     authenticationv1.UserInfo
		now, old string
		reason   string
	}{
		"a driver":                           {bound, slice("n1", hot), slice("n1", "[]"), ""},
		"a driver of a cluster":              {account, slice("", "[]"), slice("", hot), ""},
		"C24 an account that runs nowhere":   {account, slice("n1", hot), slice("n1", "[]"), "TaintNotGranted"},
		"C24 a driver of another node":       {bound, slice("n2", "[]"), slice("n2", hot), "TaintNotGranted"},
		"a person taints":                    {authenticationv1.UserInfo{Username: "bob"}, slice("n1", hot), "", "TaintNotGranted"},
		"a person lifts a taint":             {authenticationv1.UserInfo{Username: "bob"}, slice("n1", "null"), slice("n1", hot), "TaintNotGranted"},
		"a person who may":                   {authenticationv1.UserInfo{Username: "ann", Groups: []string{"sre"}}, slice("n1", hot), "", ""},
		"a person who changes nothing of it": {authenticationv1.UserInfo{Username: "bob"}, slice("n1", hot), slice("n1", hot), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			j := governedBy(taintPolicies()...)
			review := deviceReview(t, "resourceslices", "v1", tt.now, tt.old)
			review.Request.UserInfo = tt.user
			requireReason(t, tt.reason, judged(t, j.handler(request.validateSlice), review))
		})
	}
}

func TestC24ADriverIsNotTheDriverOfAPoolOfAnotherNode(t *testing.T) {
	const hot = `[{"key":"example.com/hot","effect":"NoExecute","timeAdded":"2026-11-20T12:00:00Z"}]`
	slice := func(name, node, pool string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"driver":"gpu","nodeName":"` + node + `","pool":{"name":"` + pool + `","generation":9},"devices":[{"name":"a","taints":` + hot + `}]}}`
	}
	driver := authenticationv1.UserInfo{
		Username: "system:serviceaccount:gpu:driver",
		Extra:    map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {"n1"}},
	}
	controller := authenticationv1.UserInfo{Username: "system:serviceaccount:gpu:controller"}
	tests := map[string]struct {
		user             authenticationv1.UserInfo
		name, node, pool string
		reason           string
	}{
		"the pool of its node":                            {driver, "of-n1", "n1", "n1", ""},
		"another slice for it":                            {driver, "more", "n1", "n1", ""},
		"a pool that is new":                              {driver, "new", "n1", "new", ""},
		"the pool of another node":                        {driver, "x", "n1", "n2", "TaintNotGranted"},
		"a pool of no node":                               {driver, "x", "n1", "shared", "TaintNotGranted"},
		"a controller, with the pool of no node":          {controller, "more", "", "shared", ""},
		"a controller, with the pool of a node":           {controller, "x", "", "n2", "TaintNotGranted"},
		"a slice of another node, as it is known already": {driver, "of-n2", "n2", "n2", "TaintNotGranted"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBlast(t, taintPolicies()...)
			for node, pool := range map[string]string{"n1": "n1", "n2": "n2", "": "shared"} {
				b.tracker.SetSlice(tracker.Slice{Name: "of-" + node, UID: types.UID(pool), Driver: "gpu", Pool: pool, Node: node, Generation: 1}, noon)
			}
			review := deviceReview(t, "resourceslices", "v1", slice(tt.name, tt.node, tt.pool), "")
			review.Request.UserInfo, review.Request.Name = tt.user, tt.name
			requireReason(t, tt.reason, judged(t, b.reviewer().handler(request.validateSlice), review))
		})
	}
}
