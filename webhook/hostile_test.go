package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// hostile are objects with as long a list as a client likes. The first string is what comes
// before the list, the second an element, where # is its number, and the third what follows.
// Elements are long, because a list with many elements for its bytes is refused at once.
var hostile = map[string]struct {
	resource                resource
	before, element, behind string
}{
	"tolerations of a pod": {
		pods, `{"metadata":{"name":"p"},"spec":{"tolerations":[`, `{"key":"dedicated","value":"#","operator":"Equal"` + padding + `}`, `]}}`,
	},
	"gates of a pod": {
		pods, `{"metadata":{"name":"p"},"spec":{"schedulingGates":[`, `{"name":"a.b/#"` + padding + `}`, `]}}`,
	},
	"affinity of a pod": {
		pods,
		`{"metadata":{"name":"p"},"spec":{"schedulingGates":[{"name":"a"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[`,
		`{"matchExpressions":[{"key":"k#","operator":"In","values":["v"]` + padding + `}]}`, `]}}}}}`,
	},
	"claims of a pod": {
		pods, `{"metadata":{"name":"p"},"spec":{"resourceClaims":[`, `{"name":"c#","resourceClaimName":"#"` + padding + `}`, `]}}`,
	},
	"spread of a pod": {
		pods, `{"metadata":{"name":"p"},"spec":{"topologySpreadConstraints":[`,
		`{"maxSkew":1,"topologyKey":"k#","whenUnsatisfiable":"DoNotSchedule"` + padding + `}`, `]}}`,
	},
	"taints of a node": {
		resource{"", "nodes", ""}, `{"metadata":{"name":"p"},"spec":{"taints":[`, `{"key":"k#` + strings.Repeat("x", 100) + `","effect":"NoSchedule"}`, `]}}`,
	},
	"labels of a namespace": {
		resource{"", "namespaces", ""}, `{"metadata":{"name":"p","labels":{`, `"k#":"` + strings.Repeat("v", 60) + `"`, `}}}`,
	},
	"owners of a rule": {
		resource{"resource.k8s.io", "devicetaintrules", ""},
		`{"metadata":{"name":"p","labels":{"tollgate.dev/resource-slice-patch":"x"},"ownerReferences":[`,
		`{"uid":"#","name":"x","kind":"k","apiVersion":"v"` + padding + `}`, `]},"spec":{"taint":{"key":"a","effect":"None"}}}`,
	},
	"devices of a slice": {
		resource{"resource.k8s.io", "resourceslices", ""},
		`{"metadata":{"name":"p"},"spec":{"driver":"d","pool":{"name":"p"},"devices":[`,
		`{"name":"d#","taints":[{"key":"k#","effect":"NoSchedule"}]` + padding + `}`, `]}}`,
	},
	"taints of a device": {
		resource{"resource.k8s.io", "resourceslices", ""},
		`{"metadata":{"name":"p"},"spec":{"driver":"d","pool":{"name":"p"},"devices":[{"name":"d","taints":[`,
		`{"key":"k#","effect":"NoSchedule"` + padding + `}`, `]}]}}`,
	},
	"tolerations of a claim": {
		resource{"resource.k8s.io", "resourceclaims", ""},
		`{"metadata":{"name":"p"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","tolerations":[`,
		`{"key":"k#","operator":"Exists"` + padding + `}`, `]}}]}}}`,
	},
	"reservations of a claim": {
		resource{"resource.k8s.io", "resourceclaims", "status"},
		`{"metadata":{"name":"p"},"status":{"allocation":{"devices":{"results":[]}},"reservedFor":[`,
		`{"resource":"pods","name":"#","uid":"#"` + padding + `}`, `]}}`,
	},
	"taints of a patch": {
		resource{v1alpha1.GroupVersion.Group, "resourceslicepatches", ""},
		`{"metadata":{"name":"p"},"spec":{"devices":{"taints":[`,
		`{"key":"k#","effect":"NoSchedule"` + padding + `}`, `]}}}`,
	},
	"taints of a policy": {
		resource{v1alpha1.GroupVersion.Group, "tolerationpolicies", ""}, `{"metadata":{"name":"p"},"spec":{"taints":[`, `{"key":"k#"` + padding + `}`, `]}}`,
	},
}

var padding = `,"zz":"` + strings.Repeat("x", 100) + `"`

// Whatever an object has many of, judging it takes no more than in proportion to its bytes:
// four times the list takes four times as long, and not sixteen times.
func TestReviewsTakeNoMoreThanInProportionToTheirBytes(t *testing.T) {
	const (
		n      = 2000
		times  = 4
		atMost = 2.5 * times
	)
	config := testConfig()
	config.Preview = newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))})).preview
	for name, tt := range hostile {
		for path, endpoint := range map[string]*Endpoint{"mutate": Mutate(config), "validate": Validate(config)} {
			if _, judged := endpoint.judges[tt.resource]; !judged {
				continue
			}
			t.Run(name+" by "+path, func(t *testing.T) {
				object := func(n int, reverse bool) []byte {
					list := make([]string, n)
					for i := range list {
						list[i] = strings.ReplaceAll(tt.element, "#", fmt.Sprintf("%06d", i))
					}
					if reverse {
						slices.Reverse(list)
					}
					return []byte(tt.before + strings.Join(list, ",") + tt.behind)
				}
				update := func(n int) admission.Request {
					return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
						UID: "1", Operation: admissionv1.Update, Name: "p", Namespace: "apple", UserInfo: authenticationv1.UserInfo{Username: "x"},
						Resource:    metav1.GroupVersionResource{Group: tt.resource.group, Version: "v1", Resource: tt.resource.name},
						SubResource: tt.resource.subresource,
						Object:      runtime.RawExtension{Raw: object(n, true)}, OldObject: runtime.RawExtension{Raw: object(n, false)},
					}}
				}
				few, many := update(n), update(times*n)
				var ratio float64
				// The machine may have something else to do: what counts is the best of some tries.
				for range 5 {
					ratio = float64(fastest(t, endpoint, many)) / float64(fastest(t, endpoint, few)+time.Millisecond)
					if ratio <= atMost {
						return
					}
				}
				require.LessOrEqual(t, ratio, float64(atMost), "%d of them took so many times as long as %d", times*n, n)
			})
		}
	}
}

// fastest returns the shortest of some reviews of the same request.
func fastest(t *testing.T, endpoint *Endpoint, req admission.Request) time.Duration {
	t.Helper()
	best := time.Duration(1<<63 - 1)
	for range 3 {
		start := time.Now()
		_, _, _ = endpoint.Review(context.WithoutCancel(t.Context()), req)
		best = min(best, time.Since(start))
	}
	return best
}
