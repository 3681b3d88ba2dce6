package cel

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func toleration() corev1.Toleration {
	return corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

func TestExpressionsSeeTheRequestAndWhatIsJudged(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		"object.metadata.name == 'web-0'":                                           true,
		"object.spec.terminationGracePeriodSeconds == 30":                           true,
		"object.spec.terminationGracePeriodSeconds / 4 == 7":                        true, // an int, as upstream
		"object.spec.containers[0].resources.requests.cpu == '1'":                   true, // quantities are text
		"quantity(object.spec.containers[0].resources.requests.memory).isInteger()": true,
		"oldObject == null": true,
		"claim == null":     true,
		"pod.metadata.?labels[?'maintenance'].orValue('') == 'true'":  true,
		"pod.metadata.?labels[?'nothing'].orValue('') == 'true'":      false,
		"pod.metadata.?annotations[?'nothing'].orValue('') == 'true'": false,
		"pod == object": true,
		"toleration.key == 'gpu' && toleration.operator == 'Exists'":                     true,
		"toleration.effect in ['NoSchedule']":                                            true,
		"has(toleration.value) || has(toleration.tolerationSeconds)":                     false,
		"toleration.value == ''":                                                         true,
		"toleration.?tolerationSeconds.orValue(0) == 0":                                  true,
		"object.spec.tolerations.exists(t, t.key == toleration.key)":                     true,
		"request.userInfo.username == 'anna' && 'team-a' in request.userInfo.groups":     true,
		"request.userInfo.extra['example.com/ticket'] == ['T-1']":                        true,
		"request.operation == 'CREATE' && request.dryRun":                                true,
		"request.resource.resource == 'pods' && request.kind.kind == 'Pod'":              true,
		"request.namespace == namespaceObject.metadata.name":                             true,
		"request.options.fieldManager == 'kubectl'":                                      true,
		"request.?subResource.orValue('') == ''":                                         true,
		"dyn(request).uid == '0f1e' || dyn(request).?object.?spec.hasValue()":            false,
		"namespaceObject.metadata.labels['team'] == 'a'":                                 true,
		"authorizer.group('').resource('pods').namespace('shop').check('get').allowed()": false,
		"authorizer.requestResource.check('create').reason() == 'nobody said so'":        true,
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			got, err := mustCompile(t, OfToleration, text).Bool(t.Context(), review("anna"), judged(toleration()))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestTolerationsAndTaintsReadAlikeForNodesAndDevices(t *testing.T) {
	t.Parallel()
	added := metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	tests := map[string]struct {
		place  Place
		judged Judged
		holds  []string
		fails  []string
	}{
		"a wildcard toleration": {
			OfToleration,
			Judged{Toleration: &corev1.Toleration{Operator: corev1.TolerationOpExists}},
			[]string{"toleration.key == ''", "!has(toleration.key)", "toleration.effect == ''", "!has(toleration.effect)", "has(toleration.operator)"},
			[]string{"toleration.tolerationSeconds > 5"},
		},
		"an operator that is left out is Equal": {
			OfToleration,
			Judged{Toleration: &corev1.Toleration{Key: "a", Value: "b"}},
			[]string{"toleration.operator == 'Equal'", "!has(toleration.operator)", "toleration.value == 'b'", "toleration == toleration"},
			[]string{"dyn(toleration).timeAdded != null", "dyn(toleration)[0] == 1"},
		},
		"a toleration of a device": {
			OfToleration,
			Judged{Toleration: &corev1.Toleration{Key: "a", TolerationSeconds: new(int64(30)), Effect: corev1.TaintEffectNoExecute}},
			[]string{"toleration.tolerationSeconds <= 60", "has(toleration.tolerationSeconds)", "toleration.effect == 'NoExecute'", "pod == null"},
			nil,
		},
		"no toleration": {
			OfToleration,
			Judged{},
			[]string{"toleration == null", "pod == null && claim == null"},
			[]string{"toleration.key == ''"},
		},
		"a claim": {
			OfToleration,
			Judged{Claim: json.RawMessage(`{"metadata":{},"spec":{"devices":{"requests":[]}}}`)},
			[]string{"claim.spec.devices.requests.size() == 0", "pod == null"},
			[]string{"claim.spec.controller == 'x'"},
		},
		"a taint of a node": {
			OfTaint,
			Judged{Taint: &corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}, Operation: "Add"},
			[]string{"operation == 'Add'", "taint.timeAdded == timestamp('2026-05-01T12:00:00Z')", "taint.value == '' && !has(taint.value)"},
			nil,
		},
		"a taint of a device": {
			OfTaint,
			Judged{Taint: &corev1.Taint{Key: "a", Value: "b", Effect: "None"}, Operation: "Remove"},
			[]string{"operation == 'Remove'", "taint.effect == 'None'", "!has(taint.timeAdded)"},
			[]string{"taint.timeAdded < timestamp('2026-05-01T12:00:00Z')"},
		},
		"no taint": {OfTaint, Judged{}, []string{"taint == null", "operation == ''"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range tt.holds {
				got, err := mustCompile(t, tt.place, text).Bool(t.Context(), review("anna"), &tt.judged)
				require.NoError(t, err, text)
				require.True(t, got, text)
			}
			for _, text := range tt.fails {
				_, err := mustCompile(t, tt.place, text).Bool(t.Context(), review("anna"), &tt.judged)
				require.ErrorAs(t, err, new(*FailedError), text)
			}
		})
	}
}

func TestWhatIsNotThereIsNull(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*Review{"no review": nil, "a review of nothing": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := mustCompile(t, OfRequest, "object == null && oldObject == null && request == null && namespaceObject == null").Bool(t.Context(), r, nil)
			require.NoError(t, err)
			require.True(t, got)
		})
	}
}

func TestAFailureSaysWhatAndWhere(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"object.spec.hostNetwork == true":                                   "no such key: hostNetwork (line 1, column 12)",
		"true &&\n object.spec.containers[7].name == 'a'":                   "index out of bounds: 7 (line 2, column 27)",
		"object.metadata.name > 5":                                          "no such overload (line 1, column 22)",
		"toleration.tolerationSeconds > 5":                                  "no such key: tolerationSeconds (line 1, column 11)",
		"1 / (object.spec.terminationGracePeriodSeconds - 30) == 1":         "division by zero (line 1, column 3)",
		"object['" + strings.Repeat("x", 400) + "'] == 1":                   "no such key: " + strings.Repeat("x", 287) + "... (line 1, column 7)",
		"authorizer.group('').resource('').check('get').allowed()":          "resource must not be empty (line 1, column 30)",
		"authorizer.serviceAccount('', 'a').path('/').check('g').allowed()": "Invalid service account namespace (line 1, column 26)",
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			got, err := mustCompile(t, OfToleration, text).Bool(t.Context(), review("anna"), judged(toleration()))
			require.False(t, got)
			require.ErrorAs(t, err, new(*FailedError))
			require.EqualError(t, err, want)
		})
	}
}

func TestTextIsOneLineAsInAMessageExpression(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want, failure string }{
		"a text":              {"'ask the owner of ' + toleration.key", "ask the owner of gpu", ""},
		"spaces around it":    {"'  wait '", "wait", ""},
		"an empty one":        {"' '", "", "the text is empty"},
		"two lines":           {`'a\nb'`, "", "the text has more than one line"},
		"more than 5 KiB":     {"[" + strings.Repeat("'"+strings.Repeat("x", 100)+"',", 52) + "].join()", "", "the text is longer than 5120 bytes"},
		"one that fails":      {"object.spec.nodeName", "", "no such key: nodeName (line 1, column 12)"},
		"one that is no text": {"string(object.spec.containers)", "", "no such overload: string(list) (line 1, column 7)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := tt.text
			if name == "one that fails" {
				text = "string(" + text + ")"
				tt.failure = "no such key: nodeName (line 1, column 19)"
			}
			program, err := Compile(OfToleration, text, String)
			require.NoError(t, err)
			got, err := program.Text(t.Context(), review("anna"), judged(toleration()))
			require.Equal(t, tt.want, got)
			if tt.failure == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, new(*FailedError))
			require.EqualError(t, err, tt.failure)
		})
	}
}

func TestChecksAreOfTheRequesterAndTheResourceAskedForC19(t *testing.T) {
	t.Parallel()
	type question struct{ user, verb, group, resource, subresource, namespace, name string }
	tests := map[string]struct {
		text string
		want question
	}{
		"a check that is spelt out": {
			"authorizer.group('apps').resource('deployments').subresource('scale').namespace('a').name('b').check('update').allowed()",
			question{"anna", "update", "apps", "deployments", "scale", "a", "b"},
		},
		"the resource of the request, as it was asked for": {
			"authorizer.requestResource.check('taint').allowed()",
			question{"anna", "taint", "extensions", "pods", "status", "shop", "web-0"},
		},
		"a service account": {
			"authorizer.serviceAccount('shop', 'bot').group('').resource('pods').check('get').allowed()",
			question{"system:serviceaccount:shop:bot", "get", "", "pods", "", "", ""},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := review("anna")
			r.Request.RequestResource = &metav1.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "pods"}
			r.Request.RequestSubResource = "status"
			var got question
			r.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				got = question{a.GetUser().GetName(), a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName()}
				return authorizer.DecisionAllow, "", nil
			})
			allowed, err := mustCompile(t, OfRequest, tt.text).Bool(t.Context(), r, nil)
			require.NoError(t, err)
			require.True(t, allowed)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestAFaultIsNeverAResult(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection refused")
	failing := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionDeny, "", broken
	})
	const check = "authorizer.group('').resource('pods').check('get')"
	tests := map[string]struct {
		text string
		with func(*Review)
		want error
	}{
		"the authorizer cannot be asked":            {check + ".allowed()", func(r *Review) { r.Authorizer = failing }, broken},
		"not even if the expression would not mind": {check + ".allowed() || true", func(r *Review) { r.Authorizer = failing }, broken},
		"or looks at the error":                     {check + ".errored()", func(r *Review) { r.Authorizer = failing }, broken},
		"or fails for it":                           {check + ".error() == object.nothing", func(r *Review) { r.Authorizer = failing }, broken},
		"there is no authorizer":                    {check + ".allowed()", func(r *Review) { r.Authorizer = nil }, errNoAuthorizer},
		"an object that is no JSON":                 {"object == null || true", func(r *Review) { r.Request.Object.Raw = []byte("{") }, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := review("anna")
			tt.with(r)
			got, err := mustCompile(t, OfRequest, tt.text).Bool(t.Context(), r, nil)
			require.False(t, got)
			require.Error(t, err)
			require.NotErrorAs(t, err, new(*FailedError))
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
		})
	}
}

func TestEvaluationEndsWithItsContextD01(t *testing.T) {
	t.Parallel()
	t.Run("one that has ended is not even begun", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := mustCompile(t, OfRequest, "true").Bool(ctx, review("anna"), nil)
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("a loop ends when it does", func(t *testing.T) {
		t.Parallel()
		late := errors.New("the time is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		r := review("anna")
		asked := 0
		r.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			if asked++; asked == 3 {
				cancel(late)
			}
			return authorizer.DecisionAllow, "", nil
		})
		_, err := mustCompile(t, OfRequest, "lists.range(40).all(i, authorizer.path('/x').check('get').allowed())").Bool(ctx, r, nil)
		require.ErrorIs(t, err, late)
		require.NotErrorAs(t, err, new(*FailedError))
		require.Less(t, asked, 3+checkFrequency)
	})
	t.Run("the authorizer is given that context", func(t *testing.T) {
		t.Parallel()
		type key struct{}
		r := review("anna")
		r.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
			require.Equal(t, "here", ctx.Value(key{}))
			return authorizer.DecisionAllow, "", nil
		})
		_, err := mustCompile(t, OfRequest, "authorizer.path('/x').check('get').allowed()").Bool(context.WithValue(t.Context(), key{}, "here"), r, nil)
		require.NoError(t, err)
	})
}

func TestAnObjectIsDecodedOnce(t *testing.T) {
	t.Parallel()
	raw := []byte(podJSON)
	r := &Review{Request: &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: raw}}}
	for _, text := range []string{"true", "object == pod && oldObject == null", "object.kind == 'Pod'", "pod.metadata.name != ''"} {
		_, err := mustCompile(t, OfToleration, text).Bool(t.Context(), r, &Judged{Pod: raw})
		require.NoError(t, err)
	}
	require.Len(t, r.seen.documents, 1)

	other := []byte(strings.ReplaceAll(podJSON, "Pod", "Job")) // as long
	got, err := mustCompile(t, OfToleration, "pod.kind == 'Job' && object.kind == 'Pod'").Bool(t.Context(), r, &Judged{Pod: other})
	require.NoError(t, err)
	require.True(t, got)
	require.Len(t, r.seen.documents, 2)
}

func TestAProgramIsSharedByReviews(t *testing.T) {
	t.Parallel()
	program := mustCompile(t, OfToleration, "pod.metadata.labels.app == 'web' && request.userInfo.username == 'anna' && toleration.key.matches('^g')")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				got, err := program.Bool(t.Context(), review("anna"), judged(toleration()))
				if err != nil || !got {
					t.Errorf("got %v, %v", got, err)
				}
			}
		})
	}
	all.Wait()
}
