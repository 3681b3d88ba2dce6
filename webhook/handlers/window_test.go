package handlers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// windowPolicy gives pods, or claims, time of the taints with a key.
func windowPolicy(name string, target v1alpha1.TaintTarget, key string, seconds int64) v1alpha1.EvictionPolicy {
	return v1alpha1.EvictionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1alpha1.EvictionPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Target: target, Key: key}}, Inject: &v1alpha1.EvictionInjection{Seconds: seconds},
		},
	}
}

// windowPolicies give pods 20 seconds of rack, those of the namespace banana with the
// label app=web 60 seconds of tor, and claims 30 seconds of degraded.
func windowPolicies() placing {
	labelled := windowPolicy("tor", v1alpha1.TaintTargetNode, "tor", 60)
	labelled.Spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	labelled.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "banana"}}
	elsewhere := windowPolicy("elsewhere", v1alpha1.TaintTargetNode, "power", 60)
	elsewhere.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "apple"}}
	return placing{policyset.None().WithEvictions([]v1alpha1.EvictionPolicy{
		windowPolicy("rack", v1alpha1.TaintTargetNode, "rack", 20), labelled, elsewhere,
		windowPolicy("degraded", v1alpha1.TaintTargetDevice, "degraded", 30),
	})}
}

func inWindow() *reviewer {
	r := testPlacer()
	r.Window = true
	return r
}

const (
	rackWindow = `{"key":"rack","operator":"Exists","effect":"NoExecute","tolerationSeconds":20}`
	torWindow  = `{"key":"tor","operator":"Exists","effect":"NoExecute","tolerationSeconds":60}`
	gpuWindow  = `{"key":"degraded","operator":"Exists","effect":"NoExecute","tolerationSeconds":30}`
)

func TestPodsAreGivenWindows(t *testing.T) {
	giver := by(inWindow(), windowPolicies()).mutating(request.mutatePod)
	tests := map[string]struct{ pod, want string }{
		"a bare pod": {
			`{"metadata":{"name":"p"},"spec":{}}`,
			`{"metadata":{"name":"p","annotations":{"tollgate.dev/window":"rack=20"}},"spec":{"tolerations":[` + rackWindow + `]}}`,
		},
		"behind its own tolerations, of which the first that matches counts (NE-04)": {
			`{"metadata":{"annotations":{"a":"b"},"labels":{"app":"web"}},"spec":{"tolerations":[{"key":"rack","value":"7","effect":"NoExecute"},{"key":"x","operator":"Exists"}]}}`,
			`{"metadata":{"annotations":{"a":"b","tollgate.dev/window":"rack=20,tor=60"},"labels":{"app":"web"}},"spec":{"tolerations":[{"key":"rack","value":"7","effect":"NoExecute"},{"key":"x","operator":"Exists"},` + rackWindow + `,` + torWindow + `]}}`,
		},
		"one that tolerates the key for a while keeps its own time": {
			`{"metadata":{},"spec":{"tolerations":[{"key":"rack","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]}}`,
			`{"metadata":{},"spec":{"tolerations":[{"key":"rack","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]}}`,
		},
		"one that tolerates it exactly as long has chosen that": {
			`{"metadata":{},"spec":{"tolerations":[` + rackWindow + `]}}`, `{"metadata":{},"spec":{"tolerations":[` + rackWindow + `]}}`,
		},
		"one that tolerates everything needs none": {
			`{"metadata":{},"spec":{"tolerations":[{"operator":"Exists"}]}}`, `{"metadata":{},"spec":{"tolerations":[{"operator":"Exists"}]}}`,
		},
		"one that tolerates every effect of it neither": {
			`{"metadata":{},"spec":{"tolerations":[{"key":"rack","operator":"Exists"}]}}`, `{"metadata":{},"spec":{"tolerations":[{"key":"rack","operator":"Exists"}]}}`,
		},
		"one that tolerates another effect does": {
			`{"metadata":{},"spec":{"tolerations":[{"key":"rack","operator":"Exists","effect":"NoSchedule"}]}}`,
			`{"metadata":{"annotations":{"tollgate.dev/window":"rack=20"}},"spec":{"tolerations":[{"key":"rack","operator":"Exists","effect":"NoSchedule"},` + rackWindow + `]}}`,
		},
		"a user's annotation is overruled": {
			`{"metadata":{"annotations":{"tollgate.dev/window":"rack=3600,other=9"}},"spec":{"tolerations":[{"key":"other","operator":"Exists","effect":"NoExecute","tolerationSeconds":9}]}}`,
			`{"metadata":{"annotations":{"tollgate.dev/window":"rack=20"}},"spec":{"tolerations":[{"key":"other","operator":"Exists","effect":"NoExecute","tolerationSeconds":9},` + rackWindow + `]}}`,
		},
		"also where nothing is given": {
			`{"metadata":{"annotations":{"tollgate.dev/window":"rack=5"}},"spec":{"tolerations":[{"key":"rack","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]}}`,
			`{"metadata":{"annotations":{}},"spec":{"tolerations":[{"key":"rack","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]}}`,
		},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			got := placedBy(t, giver, tt.pod)
			require.JSONEq(t, tt.want, got)
			require.JSONEq(t, got, placedBy(t, giver, got), "a second look adds nothing")
		})
	}
}

func TestPodsAreGivenNoWindows(t *testing.T) {
	pod := `{"metadata":{"name":"p"},"spec":{}}`
	marked := `{"metadata":{"annotations":{"tollgate.dev/window":"rack=20"}},"spec":{"tolerations":[` + rackWindow + `]}}`
	t.Run("in another mode, and the annotation is taken off", func(t *testing.T) {
		giver := by(testPlacer(), windowPolicies()).mutating(request.mutatePod)
		require.Equal(t, pod, placedBy(t, giver, pod))
		require.JSONEq(t, `{"metadata":{"annotations":{}},"spec":{"tolerations":[`+rackWindow+`]}}`, placedBy(t, giver, marked))
	})
	t.Run("where no policy has one", func(t *testing.T) {
		giver := by(inWindow(), placing{policyset.None()}).mutating(request.mutatePod)
		require.Equal(t, pod, placedBy(t, giver, pod))
	})
	t.Run("mirrors are left alone", func(t *testing.T) {
		mirror := `{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"nodeName":"n"}}`
		req := creating(mirror)
		req.UserInfo.Username, req.UserInfo.Groups = "system:node:n", []string{"system:nodes"}
		giver := by(inWindow(), windowPolicies()).mutating(request.mutatePod)
		response, err := answer(t.Context(), giver, req)
		require.NoError(t, err)
		require.Empty(t, response.Patches)
		require.NotEqual(t, mirror, placedBy(t, giver, mirror), "the annotation alone proves nothing")
	})
	t.Run("updates are left alone", func(t *testing.T) {
		req := creating(pod)
		req.Operation = admissionv1.Update
		response, err := answer(t.Context(), by(inWindow(), windowPolicies()).mutating(request.mutatePod), req)
		require.NoError(t, err)
		require.Empty(t, response.Patches)
	})
	t.Run("a namespace that cannot be read is a fault, and no verdict", func(t *testing.T) {
		r := by(inWindow(), windowPolicies())
		r.Namespaces = fixedNamespaces{}
		_, err := answer(t.Context(), r.mutating(request.mutatePod), creating(pod))
		require.Error(t, err)
	})
}

func TestWindowsComeBehindWhatPlacementGives(t *testing.T) {
	policies := windowPolicies().policies.WithPlacement([]v1alpha1.PlacementPolicy{givingPods("a", v1alpha1.PodPlacement{
		Tolerations: []corev1.Toleration{
			{Key: "dedicated", Operator: corev1.TolerationOpExists},
			{Key: "tor", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		},
	})})
	giver := by(inWindow(), placing{policies}).mutating(request.mutatePod)
	placed := placedBy(t, giver, `{"metadata":{"labels":{"app":"web"}},"spec":{}}`)
	require.JSONEq(t, `{"metadata":{"labels":{"app":"web"},"annotations":{"tollgate.dev/window":"rack=20"}},"spec":{"tolerations":[
		{"key":"dedicated","operator":"Exists"},{"key":"tor","operator":"Exists","effect":"NoExecute"},`+rackWindow+`]}}`, placed)
	require.JSONEq(t, placed, placedBy(t, giver, placed))
}

func TestClaimsAreGivenWindows(t *testing.T) {
	claim := func(metadata, requests string) string {
		return `{"metadata":{` + metadata + `},"spec":{"devices":{"requests":[` + requests + `]}}}`
	}
	template := func(inner string) string { return `{"metadata":{"name":"t"},"spec":` + inner + `}` }
	annotated := `"annotations":{"tollgate.dev/window":"degraded=30"}`
	bare := `{"name":"r","exactly":{"deviceClassName":"gpu"}},{"name":"s","firstAvailable":[{"name":"a","deviceClassName":"gpu"},{"name":"b","deviceClassName":"gpu","tolerations":[{"key":"x","operator":"Exists"}]}]}`
	given := `{"name":"r","exactly":{"deviceClassName":"gpu","tolerations":[` + gpuWindow + `]}},{"name":"s","firstAvailable":[{"name":"a","deviceClassName":"gpu","tolerations":[` + gpuWindow + `]},{"name":"b","deviceClassName":"gpu","tolerations":[{"key":"x","operator":"Exists"},` + gpuWindow + `]}]}`
	own := func(toleration string) string {
		return `{"name":"r","exactly":{"deviceClassName":"gpu","tolerations":[` + toleration + `]}}`
	}
	tests := map[string]struct{ requests, want, annotation string }{
		"each request and each alternative": {bare, given, annotated},
		"but one that is about the key, whose time ours could shorten (DE-23)": {
			own(`{"key":"degraded","operator":"Equal","value":"v","effect":"NoExecute","tolerationSeconds":600}`),
			own(`{"key":"degraded","operator":"Equal","value":"v","effect":"NoExecute","tolerationSeconds":600}`), "",
		},
		"nor one that tolerates everything": {own(`{"operator":"Exists"}`), own(`{"operator":"Exists"}`), ""},
		"one that tolerates NoSchedule of the key does": {
			own(`{"key":"degraded","operator":"Exists","effect":"NoSchedule"}`),
			own(`{"key":"degraded","operator":"Exists","effect":"NoSchedule"},` + gpuWindow), annotated,
		},
		"one request that is left out leaves the others theirs": {
			own(`{"operator":"Exists"}`) + `,{"name":"s","exactly":{"deviceClassName":"gpu"}}`,
			own(`{"operator":"Exists"}`) + `,{"name":"s","exactly":{"deviceClassName":"gpu","tolerations":[` + gpuWindow + `]}}`, annotated,
		},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			giver := by(inWindow(), windowPolicies()).mutating(request.mutateClaim)
			got := placedBy(t, giver, claim("", tt.requests))
			require.JSONEq(t, claim(tt.annotation, tt.want), got)
			require.JSONEq(t, got, placedBy(t, giver, got), "a second look adds nothing")

			giver = ofTemplates(giver)
			for _, inner := range []string{claim("", tt.requests), `{"spec":{"devices":{"requests":[` + tt.requests + `]}}}`} {
				want := inner
				if tt.annotation != "" {
					want = claim(tt.annotation, tt.want)
				}
				got = placedBy(t, giver, template(inner))
				require.JSONEq(t, template(want), got, "the claims of a template get its annotations")
				require.JSONEq(t, got, placedBy(t, giver, got))
			}
		})
	}
	t.Run("a request that is full is given none (AV-11)", func(t *testing.T) {
		var full []string
		for i := range 16 {
			full = append(full, fmt.Sprintf(`{"key":"k%d","operator":"Exists"}`, i))
		}
		requests := own(strings.Join(full, ","))
		giver := by(inWindow(), windowPolicies()).mutating(request.mutateClaim)
		require.JSONEq(t, claim("", requests), placedBy(t, giver, claim("", requests)))
	})
}

func TestClaimsFromTemplatesKeepWhatTheirTemplateWasGiven(t *testing.T) {
	object := `{"metadata":{"annotations":{"tollgate.dev/window":"degraded=99"},"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true}]},
		"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu","tolerations":[{"key":"degraded","operator":"Exists","effect":"NoExecute","tolerationSeconds":99}]}}]}}}`
	giver := by(inWindow(), windowPolicies()).mutating(request.mutateClaim)
	req := creating(object)
	req.UserInfo.Username = resourceClaimControllers[0]
	response, err := answer(t.Context(), giver, req)
	require.NoError(t, err)
	require.Empty(t, response.Patches, "the window was longer when the template was created")
	require.NotEqual(t, object, placedBy(t, giver, object), "a user's annotation counts for nothing")
}

func TestTheWindowAnnotationStaysAsItIs(t *testing.T) {
	with := func(value string) string {
		if value == "" {
			return `{"metadata":{"name":"p","annotations":{"a":"b"}},"spec":{}}`
		}
		return `{"metadata":{"name":"p","annotations":{"tollgate.dev/window":"` + value + `"}},"spec":{}}`
	}
	r := by(inWindow(), windowPolicies())
	for name, handle := range map[string]Handler{
		"pods": r.judging(request.judgePod), "claims": r.judging(request.judgeClaim),
	} {
		for sentence, tt := range map[string]struct {
			old, now string
			allowed  bool
		}{
			"as it was": {"rack=20", "rack=20", true}, "none before or after": {"", "", true},
			"changed": {"rack=20", "rack=1", false}, "added": {"", "rack=20", false}, "removed": {"rack=20", "", false},
		} {
			t.Run(name+", "+sentence, func(t *testing.T) {
				req := creating(with(tt.now))
				req.Operation, req.Old = admissionv1.Update, parsed(t, []byte(with(tt.old)))
				response, err := answer(t.Context(), handle, req)
				require.NoError(t, err)
				require.Equal(t, tt.allowed, response.Allowed)
				if !tt.allowed {
					require.Contains(t, response.Result.Message, "metadata.annotations[tollgate.dev/window]")
					require.Contains(t, response.Result.Message, "leave the annotation as it is")
				}
			})
		}
	}
}

// TestWindowsHoldToTheModel gives random pods windows, and holds what comes of it to how
// Kubernetes reads tolerations.
func TestWindowsHoldToTheModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"", "rack", "tor", "x"}
	operators := []corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpGt}
	effects := []corev1.TaintEffect{"", corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule}
	wanted := []v1alpha1.WindowToleration{{Key: "rack", Seconds: 20}, {Key: "tor", Seconds: 60}}
	for range 5000 {
		var have []corev1.Toleration
		for range random.IntN(5) {
			one := corev1.Toleration{Key: keys[random.IntN(4)], Operator: operators[random.IntN(4)], Effect: effects[random.IntN(3)]}
			if one.Operator != corev1.TolerationOpExists {
				one.Value = []string{"7", "8"}[random.IntN(2)]
			}
			if random.IntN(2) == 0 {
				one.TolerationSeconds = new([]int64{20, 60, 0, 600}[random.IntN(4)])
			}
			have = append(have, one)
		}
		added, given := podWindows.add(have, wanted, nil)
		after := slices.Concat(have, added)
		for _, w := range wanted {
			for _, value := range []string{"7", "8", "9"} {
				before, now := firstFor(have, w.Key, value), firstFor(after, w.Key, value)
				if before != nil {
					require.Equal(t, before, now, "its own toleration counts as it did: %v", have)
				} else {
					require.NotNil(t, now)
					require.Equal(t, w.Seconds, *now.TolerationSeconds)
					require.Contains(t, given, w)
				}
			}
		}
		again, still := podWindows.add(after, wanted, given)
		require.Empty(t, again)
		require.Equal(t, given, still)
		require.Subset(t, after, withoutWindows(after, given))
		for i := range added {
			require.NotContains(t, withoutWindows(after, given), added[i])
		}
	}
}

// firstFor returns the toleration that counts for a NoExecute taint, by the words of
// NE-04; comparisons of numbers are off.
func firstFor(list []corev1.Toleration, key, value string) *corev1.Toleration {
	for i := range list {
		t := &list[i]
		switch {
		case t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute, t.Key != "" && t.Key != key:
			continue
		case t.Operator == corev1.TolerationOpExists,
			t.Key != "" && (t.Operator == "" || t.Operator == corev1.TolerationOpEqual) && t.Value == value:
			return t
		}
	}
	return nil
}
