package webhook

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// manyTolerations is a pod with as many tolerations of different taints, as kubectl would send it.
func manyTolerations(n int, key string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],"tolerations":[` +
		strings.TrimSuffix(sequence(n, `{"key":"`+key+`%05d","operator":"Exists","effect":"NoSchedule"},`), ",") + `]}}`
}

// guardingConfig has a TolerationPolicy that guards the taints of a domain and grants them to no namespace.
func guardingConfig() Config {
	config := testConfig()
	config.Handlers.Policies = fixedPolicies{policyset.None().WithTolerations([]v1alpha1.TolerationPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "guarded"},
		Spec:       v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: "guarded.example.com/*"}}},
	}})}
	return config
}

// Kubernetes has no limit for the tolerations of a pod but that of the object.
func TestPodsWithVeryManyTolerationsAreAnsweredWithinTheLimits(t *testing.T) {
	const tooMany = "decode spec.tolerations: holds %d values in"
	tests := map[string]struct {
		n       int
		key     string
		status  int
		allowed bool
		text    string
	}{
		"as many as are read":              {3000, "example.com/", http.StatusOK, true, ""},
		"as many as are read, all guarded": {3000, "guarded.example.com/", http.StatusOK, false, "more tolerations violate this policy or others than are listed"},
		"ten thousand":                     {10_000, "example.com/", http.StatusBadRequest, false, fmt.Sprintf(tooMany, 40_001)},
		"ten thousand that are guarded":    {10_000, "guarded.example.com/", http.StatusBadRequest, false, fmt.Sprintf(tooMany, 40_001)},
	}
	for name, tt := range tests {
		for path, endpoint := range map[string]*Endpoint{"mutate": Mutate(guardingConfig()), "validate": Validate(guardingConfig())} {
			t.Run(name+" by "+path, func(t *testing.T) {
				body := marshal(t, podReview(t, admissionv1.Create, manyTolerations(tt.n, tt.key), ""))
				var answer *httptest.ResponseRecorder
				allocated := allocations(func() { answer = record(t, endpoint, body) })
				text := answer.Body.String()
				// What is judged matches patterns, whose memory the race detector does not let be used again.
				if answer.Code != http.StatusOK {
					require.Less(t, allocated, uint64(10*len(body)), "bytes allocated for %d bytes", len(body))
				}
				require.Less(t, len(text), 128<<10, "the answer is bounded")
				if path == "mutate" && answer.Code == http.StatusOK {
					require.True(t, answerOf(t, text).Response.Allowed, "it refuses nothing")
					return
				}
				require.Equal(t, tt.status, answer.Code, text)
				require.Contains(t, text, tt.text)
				if tt.status == http.StatusOK {
					require.Equal(t, tt.allowed, answerOf(t, text).Response.Allowed)
				}
			})
		}
	}
}

// managedFields is the list in which an API server keeps the owners of fields, of at least so many
// bytes: each manager owns the fields of some containers, keyed by name.
func managedFields(size int) string {
	var list strings.Builder
	list.WriteByte('[')
	for i := 0; list.Len() < size; i++ {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, `{"manager":"controller-%d","operation":"Update","apiVersion":"v1","time":"2026-11-20T12:00:00Z","fieldsType":"FieldsV1","fieldsV1":`+
			`{"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/name":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"705ab4f5-6393-11e8-b7cc-42010a800002\"}":{}}},"f:spec":{"f:containers":{`, i)
		for c := range 20 {
			if c > 0 {
				list.WriteByte(',')
			}
			fmt.Fprintf(&list, `"k:{\"name\":\"container-%d\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}}},`+
				`"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}`, c)
		}
		list.WriteString(`},"f:dnsPolicy":{},"f:tolerations":{}}}}`)
	}
	list.WriteByte(']')
	return list.String()
}

func TestAMegabyteOfManagedFieldsChangesNothing(t *testing.T) {
	owned := managedFields(1 << 20)
	for toleration, allowed := range map[string]bool{"": true, `{"key":"dedicated","operator":"Exists"}`: false} {
		pod := func(managed string) string {
			return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"` + managed + `},"spec":{"containers":[{"name":"c","image":"i"}],"tolerations":[` + toleration + `]}}`
		}
		for path, endpoint := range map[string]*Endpoint{"mutate": Mutate(testConfig()), "validate": Validate(testConfig())} {
			for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
				t.Run(fmt.Sprint(path, " ", operation, " with tolerations ", toleration), func(t *testing.T) {
					old, oldPlain := "", ""
					if operation == admissionv1.Update {
						old, oldPlain = strings.Replace(pod(`,"managedFields":`+owned), toleration, "", 1), strings.Replace(pod(""), toleration, "", 1)
					}
					body := marshal(t, podReview(t, operation, pod(`,"managedFields":`+owned), old))
					var answer *httptest.ResponseRecorder
					allocated := allocations(func() { answer = record(t, endpoint, body) })
					require.Equal(t, http.StatusOK, answer.Code, answer.Body)
					require.Equal(t, allowed || path == "mutate", answerOf(t, answer.Body.String()).Response.Allowed)
					plain := record(t, endpoint, marshal(t, podReview(t, operation, pod(""), oldPlain)))
					require.Equal(t, plain.Body.String(), answer.Body.String(), "they are not looked at")
					require.Less(t, allocated, uint64(10*len(body)), "bytes allocated for %d bytes", len(body))
				})
			}
		}
	}
}
