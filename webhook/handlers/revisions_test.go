package handlers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/policy"
)

// revisionNamed returns a revision of a StatefulSet with a UID, with the template that
// the set had.
func revisionNamed(name, set, data string) *appsv1.ControllerRevision {
	revision := &appsv1.ControllerRevision{ObjectMeta: metaOf(name, name), Data: runtime.RawExtension{Raw: []byte(data)}}
	revision.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: types.UID(set), Controller: new(true),
	}}
	return revision
}

const (
	wasTolerant = `{"spec":{"template":{"$patch":"replace","metadata":{},"spec":{"tolerations":[` + dedicated + `]}}}}`
	wasPlain    = `{"spec":{"template":{"$patch":"replace","spec":{"containers":[]}}}}`
)

// rolledOut is a StatefulSet in the middle of a rollout, whose pods tolerated dedicated
// before.
func rolledOut() *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metaOf("web", "sts"), Spec: appsv1.StatefulSetSpec{Template: templateWith()},
		Status: appsv1.StatefulSetStatus{CurrentRevision: "web-1", UpdateRevision: "web-2"},
	}
}

// ofRevision returns a pod of the StatefulSet that says which revision it was made from.
func ofRevision(name string) string {
	return strings.Replace(ownedBy("apps/v1", "StatefulSet", "web", "sts"), `"metadata":{`, `"metadata":{"labels":{"controller-revision-hash":"`+name+`"},`, 1)
}

func TestAPodOfAStatefulSetInheritsFromTheTemplateBefore(t *testing.T) {
	current := revisionNamed("web-1", "sts", wasTolerant)
	orphan := revisionNamed("web-1", "sts", wasTolerant)
	orphan.OwnerReferences[0].Controller = nil
	controller := controllerNamed("statefulset-controller")
	tests := map[string]struct {
		who      authenticationv1.UserInfo
		pod      string
		revision *appsv1.ControllerRevision
		want     bool
	}{
		"of the current revision":                       {controller, ofRevision("web-1"), current, true},
		"by the controller manager":                     {named("system:kube-controller-manager"), ofRevision("web-1"), current, true},
		"of the revision it is rolled out to":           {controller, ofRevision("web-2"), current, false},
		"of a revision that the status does not name":   {controller, ofRevision("web-0"), revisionNamed("web-0", "sts", wasTolerant), false},
		"of a revision without the toleration":          {controller, ofRevision("web-1"), revisionNamed("web-1", "sts", wasPlain), false},
		"of a revision of another set":                  {controller, ofRevision("web-1"), revisionNamed("web-1", "other", wasTolerant), false},
		"of a revision that the set does not control":   {controller, ofRevision("web-1"), orphan, false},
		"of a revision that is gone":                    {controller, ofRevision("web-1"), revisionNamed("web-0", "sts", wasTolerant), false},
		"of a revision that holds no template":          {controller, ofRevision("web-1"), revisionNamed("web-1", "sts", `{"spec":"x"}`), false},
		"that does not say":                             {controller, ownedBy("apps/v1", "StatefulSet", "web", "sts"), current, false},
		"that a user made":                              {named("mallory"), ofRevision("web-1"), current, false},
		"of another set with the name of this one":      {controller, strings.ReplaceAll(ofRevision("web-1"), `"uid":"sts"`, `"uid":"other"`), current, false},
		"with a wider toleration than the template had": {controller, strings.ReplaceAll(ofRevision("web-1"), dedicated, `{"operator":"Exists"}`), current, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.Policies = dedicatedTo(t, byAlice)
			config.Live = storing(rolledOut(), tt.revision)
			response := judgePod(t, config, asked(t, "pods", "", tt.who, tt.pod, nil))
			if tt.want {
				require.True(t, response.Allowed)
				return
			}
			requireRefused(t, response, policy.TolerationNotGranted, "spec.tolerations[0]")
		})
	}
}

func TestWhatIsKeptOfOneRevisionIsNotInheritedFromAnother(t *testing.T) {
	config := testConfig()
	config.Policies = dedicatedTo(t, byAlice)
	config.Live = storing(rolledOut(), revisionNamed("web-1", "sts", wasTolerant))
	endpoint := Validate(config)
	for _, tt := range []struct {
		revision string
		want     bool
	}{{"web-1", true}, {"web-2", false}, {"web-1", true}} {
		req, err := readRequest(marshal(t, asked(t, "pods", "", controllerNamed("statefulset-controller"), ofRevision(tt.revision), nil)))
		require.NoError(t, err)
		response, err := answer(t.Context(), endpoint.Review, req)
		require.NoError(t, err)
		require.Equal(t, tt.want, response.Allowed, tt.revision)
	}
}

func TestATemplateInARevisionIsJudgedWhenItIsWritten(t *testing.T) {
	tolerantSet := &appsv1.StatefulSet{ObjectMeta: metaOf("web", "sts"), Spec: appsv1.StatefulSetSpec{Template: templateWith(exampleToleration)}}
	onANode := strings.Replace(wasPlain, `"containers"`, `"nodeName":"banana","containers"`, 1)
	tests := map[string]struct {
		who  authenticationv1.UserInfo
		data string
		want bool
	}{
		"by a user":                              {named("mallory"), wasTolerant, false},
		"by who may":                             {named("alice"), wasTolerant, true},
		"by the controller, of the set":          {controllerNamed("statefulset-controller"), wasTolerant, true},
		"by the controller, of none":             {controllerNamed("statefulset-controller"), strings.Replace(wasTolerant, dedicated, `{"operator":"Exists"}`, 1), false},
		"without the toleration":                 {named("mallory"), wasPlain, true},
		"that is no template":                    {named("mallory"), `{"spec":{"template":"x"}}`, true},
		"of something else":                      {named("mallory"), `{"spec":{"replicas":3}}`, true},
		"with a node, which pods are judged for": {named("mallory"), onANode, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := passConfig(t, tolerantSet)
			response := judgePod(t, config, asked(t, "apps/controllerrevisions", "", tt.who, revisionNamed("web-1", "sts", tt.data), nil))
			if tt.want {
				require.True(t, response.Allowed)
				return
			}
			requireRefused(t, response, policy.TolerationNotGranted, "data.spec.template.spec.tolerations[0]", "TolerationPolicy/dedicated")
		})
	}
}

func TestTheAPIServerCallsOutForRevisionsThatAreCreated(t *testing.T) {
	kind := appsv1.SchemeGroupVersion.WithKind("ControllerRevision")
	const later = `{"metadata":{"labels":{"a":"b"}},"data":{"spec":"x"},"revision":2}`
	all := entries(t)
	for _, data := range []string{wasTolerant, `{"spec":"x"}`, `{"spec":[]}`} {
		object := `{"metadata":{},"data":` + data + `,"revision":1}`
		require.Equal(t, []string{"validate.tollgate.dev"}, calls(t, all, seenBy(t, kind, "controllerrevisions", "", object, "", "bob")))
		require.Empty(t, calls(t, all, seenBy(t, kind, "controllerrevisions", "", later, object, "bob")), "data do not change")
	}
}
