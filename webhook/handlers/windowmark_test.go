package handlers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

const (
	podWindowField      = "metadata.annotations[tollgate.dev/window]"
	templateWindowField = "spec.metadata.annotations[tollgate.dev/window]"
)

// podMarked is a pod whose annotation has a value.
func podMarked(value, spec string) string {
	return `{"metadata":{"annotations":{"tollgate.dev/window":"` + value + `"}},"spec":{` + spec + `}}`
}

func TestAForgedWindowGetsNoTolerationPastAPolicy(t *testing.T) {
	mallory := named("mallory")
	tolerates := `"tolerations":[` + rackWindow + `]`
	t.Run("a new toleration is none, whatever the annotation lists", func(t *testing.T) {
		review := asked(t, "pods", "", mallory, podMarked("rack=20", tolerates), podMarked("rack=20", ""))
		requireRefused(t, judgePod(t, guardedWindow(t, true), review), policy.TolerationNotGranted, "spec.tolerations[0]")
	})
	t.Run("one that stood there stays", func(t *testing.T) {
		review := asked(t, "pods", "", mallory, podMarked("rack=20", tolerates), podMarked("rack=20", tolerates))
		require.True(t, judgePod(t, guardedWindow(t, true), review).Allowed)
	})
	t.Run("in another mode a gate opens for none", func(t *testing.T) {
		review := asked(t, "pods", "", mallory, podMarked("rack=20", tolerates), podMarked("rack=20", tolerates+`,"schedulingGates":[{"name":"x"}]`))
		config := guardedWindow(t, true)
		config.Policies = holding{granting(t, map[string]string{"guard": `{taints: [{key: rack}], grants: []}`}).policies}
		require.True(t, judgePod(t, config, review).Allowed)
		config.Window = false
		requireRefused(t, judgePod(t, config, review), policy.TolerationNotGranted, "spec.tolerations[0]")
	})
	for sentence, value := range map[string]string{
		"of longer": "rack=21", "of another key": "other=20", "of more": "other=9,rack=20", "that cannot be read": "rack", "that is empty": "",
	} {
		t.Run("nor is a pod created with one "+sentence, func(t *testing.T) {
			review := asked(t, "pods", "", named("alice"), podMarked(value, ""), nil)
			requireRefused(t, judgePod(t, guardedWindow(t, true), review), policy.WindowReserved, podWindowField)
		})
	}
	t.Run("nor with any in another mode", func(t *testing.T) {
		review := asked(t, "pods", "", named("alice"), podMarked("rack=20", ""), nil)
		require.True(t, judgePod(t, guardedWindow(t, true), review).Allowed)
		requireRefused(t, judgePod(t, guardedWindow(t, false), review), policy.WindowReserved, podWindowField)
	})
}

func TestATolerationLikeAWindowIsNoneWithoutItsMark(t *testing.T) {
	exactly := `"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu","tolerations":[` + gpuWindow + `]}}]}}`
	const at = ".devices.requests[0].exactly.tolerations[0]"
	for name, tt := range map[string]struct{ resource, object, field string }{
		"pods":      {"pods", `{"metadata":{},"spec":{"tolerations":[` + rackWindow + `]}}`, "spec.tolerations[0]"},
		"claims":    {"resource.k8s.io/resourceclaims", `{"metadata":{},` + exactly + `}`, "spec" + at},
		"templates": {"resource.k8s.io/resourceclaimtemplates", `{"metadata":{"annotations":{"tollgate.dev/window":"degraded=30"}},"spec":{` + exactly + `}}`, "spec.spec" + at},
	} {
		t.Run(name, func(t *testing.T) {
			response := judgePod(t, guardedWindow(t, true), asked(t, tt.resource, "", named("mallory"), tt.object, nil))
			requireRefused(t, response, policy.TolerationNotGranted, tt.field)
			require.True(t, judgePod(t, guardedWindow(t, true), asked(t, tt.resource, "", named("alice"), tt.object, nil)).Allowed, "she may")
		})
	}
}

func TestAForgedWindowOfAClaimIsRefused(t *testing.T) {
	claim := `"metadata":{"annotations":{"tollgate.dev/window":"degraded=99"},"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"gone","uid":"u","controller":true}]},"spec":{"devices":{"requests":[]}}`
	created := func(kind string, who authenticationv1.UserInfo, object string) func(t *testing.T, on bool, field string) {
		return func(t *testing.T, on bool, field string) {
			t.Helper()
			response := judgePod(t, guardedWindow(t, on), asked(t, "resource.k8s.io/"+kind, "", who, object, nil))
			if field == "" {
				require.True(t, response.Allowed, "%v", response.Result)
				return
			}
			requireRefused(t, response, policy.WindowReserved, field)
		}
	}
	for _, on := range []bool{true, false} {
		created("resourceclaims", named("alice"), `{`+claim+`}`)(t, on, podWindowField)
		created("resourceclaimtemplates", named("alice"), `{"metadata":{},"spec":{`+claim+`}}`)(t, on, templateWindowField)
		// What is made from a template has its mark, of whenever that was.
		created("resourceclaims", controllerNamed("resource-claim-controller"), `{`+claim+`}`)(t, on, "")
	}
}

func TestABindingBringsNoWindow(t *testing.T) {
	binding := `{"metadata":{"name":"p","annotations":{"a":"b","tollgate.dev/window":"rack=20"}},"target":{"kind":"Node","name":"none"}}`
	for _, resource := range []struct{ name, subresource string }{{"pods", "binding"}, {"bindings", ""}} {
		for _, on := range []bool{true, false} {
			review := asked(t, resource.name, resource.subresource, named("alice"), binding, nil)
			requireRefused(t, judgePod(t, guardedWindow(t, on), review), policy.WindowReserved, podWindowField)
			review = asked(t, resource.name, resource.subresource, named("alice"), strings.ReplaceAll(binding, `,"tollgate.dev/window":"rack=20"`, ""), nil)
			require.True(t, judgePod(t, guardedWindow(t, on), review).Allowed)
		}
	}
}

func TestTheStatusOfAPodBringsNoWindow(t *testing.T) {
	bare := `{"metadata":{"annotations":{"a":"b"}},"spec":{},"status":{"phase":"Running"}}`
	for _, on := range []bool{true, false} {
		for _, tt := range []struct{ old, now string }{
			{bare, podMarked("rack=20", "")}, {podMarked("rack=20", ""), bare}, {podMarked("rack=20", ""), podMarked("rack=21", "")},
		} {
			response := judgePod(t, guardedWindow(t, on), asked(t, "pods", "status", named("alice"), tt.now, tt.old))
			requireRefused(t, response, policy.WindowReserved, podWindowField)
		}
		require.True(t, judgePod(t, guardedWindow(t, on), asked(t, "pods", "status", named("alice"), podMarked("rack=20", ""), podMarked("rack=20", ""))).Allowed)
		require.True(t, judgePod(t, guardedWindow(t, on), asked(t, "pods", "status", named("alice"), bare, `{"metadata":{},"spec":{}}`)).Allowed)
	}
}

func TestTheAPIServerCallsOutForTheStatusOfAPodBecauseOfItsWindowAlone(t *testing.T) {
	all, kind := entries(t), corev1.SchemeGroupVersion.WithKind("Pod")
	pending := `{"metadata":{"annotations":{"a":"b"}},"spec":{},"status":{"phase":"Pending"}}`
	running := `{"metadata":{"annotations":{"a":"c"}},"spec":{"tolerations":[` + rackWindow + `]},"status":{"phase":"Running"}}`
	for sentence, tt := range map[string]struct {
		old, now string
		called   bool
	}{
		"a heartbeat": {pending, running, false}, "one of a pod with a window": {podMarked("rack=20", ""), podMarked("rack=20", ""), false},
		"it is added": {pending, podMarked("rack=20", ""), true}, "it is changed": {podMarked("rack=20", ""), podMarked("rack=21", ""), true},
		"it is removed": {podMarked("rack=20", ""), pending, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			called := calls(t, all, seenBy(t, kind, "pods", "status", tt.now, tt.old, "system:node:n1"))
			if tt.called {
				require.Equal(t, []string{"validate.tollgate.dev"}, called)
			} else {
				require.Empty(t, called)
			}
		})
	}
	require.NotEmpty(t, calls(t, all, seenBy(t, kind, "pods", "", running, pending, "alice")), "tolerations of a pod are judged as before")
}
