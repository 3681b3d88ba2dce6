package handlers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// hostileObject is an object with as long a list as a client likes, or two.
type hostileObject struct {
	resource Resource
	// before is what comes before the list, element an element of it, where # is its number,
	// and behind what follows. Elements are long, because a list with many elements for its
	// bytes is refused at once.
	before, element, behind string
	// second is an element of a second list, and end what follows that.
	second, end string
}

var hostile = map[string]hostileObject{
	"tolerations of a pod": {
		pods, `{"metadata":{"name":"p"},"spec":{"tolerations":[`, `{"key":"dedicated","value":"#","operator":"Equal"` + padding + `}`, `]}}`, "", "",
	},
	"gates of a pod": {
		pods, `{"metadata":{"name":"p"},"spec":{"schedulingGates":[`, `{"name":"a.b/#"` + padding + `}`, `]}}`, "", "",
	},
	"affinity of a pod": {
		pods,
		`{"metadata":{"name":"p"},"spec":{"schedulingGates":[{"name":"a"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[`,
		`{"matchExpressions":[{"key":"k#","operator":"In","values":["v"]` + padding + `}]}`, `]}}}}}`, "", "",
	},
	"claims of a pod": {
		pods, `{"metadata":{"name":"p"},"spec":{"resourceClaims":[`, `{"name":"c#","resourceClaimName":"#"` + padding + `}`, `]}}`, "", "",
	},
	"spread of a pod": {
		pods, `{"metadata":{"name":"p"},"spec":{"topologySpreadConstraints":[`,
		`{"maxSkew":1,"topologyKey":"k#","whenUnsatisfiable":"DoNotSchedule"` + padding + `}`, `]}}`, "", "",
	},
	"taints of a node": {
		Resource{"", "nodes", ""}, `{"metadata":{"name":"p"},"spec":{"taints":[`, `{"key":"k#` + strings.Repeat("x", 100) + `","effect":"NoSchedule"}`, `]}}`, "", "",
	},
	"labels of a namespace": {
		Resource{"", "namespaces", ""}, `{"metadata":{"name":"p","labels":{`, `"k#":"` + strings.Repeat("v", 60) + `"`, `}}}`, "", "",
	},
	"owners of a rule": {
		Resource{"resource.k8s.io", "devicetaintrules", ""},
		`{"metadata":{"name":"p","labels":{"tollgate.dev/resource-slice-patch":"x"},"ownerReferences":[`,
		`{"uid":"#","name":"x","kind":"k","apiVersion":"v"` + padding + `}`, `]},"spec":{"taint":{"key":"a","effect":"None"}}}`, "", "",
	},
	"devices of a slice": {
		Resource{"resource.k8s.io", "resourceslices", ""},
		`{"metadata":{"name":"p"},"spec":{"driver":"d","pool":{"name":"p"},"devices":[`,
		`{"name":"d#","taints":[{"key":"k#","effect":"NoSchedule"}]` + padding + `}`, `]}}`, "", "",
	},
	"taints of a device": {
		Resource{"resource.k8s.io", "resourceslices", ""},
		`{"metadata":{"name":"p"},"spec":{"driver":"d","pool":{"name":"p"},"devices":[{"name":"d","taints":[`,
		`{"key":"k#","effect":"NoSchedule"` + padding + `}`, `]}]}}`, "", "",
	},
	"tolerations of a claim": {
		Resource{"resource.k8s.io", "resourceclaims", ""},
		`{"metadata":{"name":"p"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","tolerations":[`,
		`{"key":"k#","operator":"Exists"` + padding + `}`, `]}}]}}}`, "", "",
	},
	"reservations of a claim": {
		Resource{"resource.k8s.io", "resourceclaims", "status"},
		`{"metadata":{"name":"p"},"status":{"allocation":{"devices":{"results":[]}},"reservedFor":[`,
		`{"resource":"pods","name":"#","uid":"#"` + padding + `}`, `]}}`, "", "",
	},
	"taints of a patch": {
		Resource{v1alpha1.GroupVersion.Group, "resourceslicepatches", ""},
		`{"metadata":{"name":"p"},"spec":{"devices":{"taints":[`,
		`{"key":"k#","effect":"NoSchedule"` + padding + `}`, `]}}}`, "", "",
	},
	"resources and tolerations of a pod": {
		pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"resources":{"requests":{`, `"example.com/#` + strings.Repeat("x", 40) + `":1`,
		`}}}],"tolerations":[`, `{"key":"example.com/#` + strings.Repeat("x", 40) + `","operator":"Exists","effect":"NoSchedule"` + padding + `}`, `]}}`,
	},
	"tolerations of a pod of a RuntimeClass": {
		pods, `{"metadata":{"name":"p"},"spec":{"runtimeClassName":"many","tolerations":[`,
		`{"key":"many","operator":"Equal","value":"x#","effect":"NoSchedule"` + padding + `}`, `]}}`, "", "",
	},
	"taints of a policy": {
		Resource{v1alpha1.GroupVersion.Group, "tolerationpolicies", ""}, `{"metadata":{"name":"p"},"spec":{"taints":[`, `{"key":"k#"` + padding + `}`, `]}}`, "", "",
	},
}

var padding = `,"zz":"` + strings.Repeat("x", 100) + `"`

// list returns a list of n elements.
func (h *hostileObject) list(element string, n int, reverse bool) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strings.ReplaceAll(element, "#", fmt.Sprintf("%06d", i))
	}
	if reverse {
		slices.Reverse(list)
	}
	return strings.Join(list, ",")
}

func (h *hostileObject) object(n int, reverse bool) []byte {
	object := h.before + h.list(h.element, n, reverse) + h.behind
	if h.second != "" {
		object += h.list(h.second, n, reverse) + h.end
	}
	return []byte(object)
}

// update returns a request that puts a list of n elements into another order.
func (h *hostileObject) update(n int) *review.Request {
	return h.request(admissionv1.Update, h.object(n, false), h.object(n, true))
}

func (h *hostileObject) create(n int) *review.Request {
	return h.request(admissionv1.Create, h.object(n, false), nil)
}

func (h *hostileObject) request(operation admissionv1.Operation, object, old []byte) *review.Request {
	req, err := review.Of(&admissionv1.AdmissionRequest{
		UID: "1", Operation: operation, Name: "p", Namespace: "apple", UserInfo: authenticationv1.UserInfo{Username: "x"},
		Resource:    metav1.GroupVersionResource{Group: h.resource.Group, Version: "v1", Resource: h.resource.Name},
		SubResource: h.resource.Subresource,
		Object:      runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old},
	})
	if err != nil {
		panic(err)
	}
	return req
}

// hostileConfig judges with all that costs time, by the settings that an administrator can make.
func hostileConfig(t *testing.T) Config {
	t.Helper()
	config := testConfig()
	config.Preview = newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))})).preview
	config.ExtendedResourceToleration, config.PodTolerationRestriction = true, true
	ofClass := make([]corev1.Toleration, 2000)
	for i := range ofClass {
		ofClass[i] = corev1.Toleration{Key: "many", Value: strconv.Itoa(i), Effect: corev1.TaintEffectNoSchedule}
	}
	config.RuntimeClasses = fixedRuntimeClasses{"many": ofClass}
	return config
}

// Whatever an object has many of, judging it takes no more than in proportion to its bytes:
// four times the list takes four times as long, and not sixteen times.
func TestReviewsTakeNoMoreThanInProportionToTheirBytes(t *testing.T) {
	const (
		n      = 2000
		margin = 2.5
	)
	config := hostileConfig(t)
	for name, tt := range hostile {
		for path, endpoint := range map[string]*Endpoint{"mutate": Mutate(config), "validate": Validate(config)} {
			if _, judged := endpoint.handlers[tt.resource]; !judged {
				continue
			}
			for operation, request := range map[string]func(n int) *review.Request{"create": tt.create, "update": tt.update} {
				t.Run(name+" by "+path+" at "+operation, func(t *testing.T) {
					few := request(n)
					for _, times := range []int{2, 4} {
						many, atMost := request(times*n), margin*float64(times)
						var ratio float64
						// The machine may have something else to do: what counts is the best of some tries.
						for range 5 {
							ratio = float64(fastest(t, endpoint, many)) / float64(fastest(t, endpoint, few)+time.Millisecond)
							if ratio <= atMost {
								break
							}
						}
						require.LessOrEqual(t, ratio, atMost, "%d of them took so many times as long as %d", times*n, n)
					}
				})
			}
		}
	}
}

// fastest returns the shortest of some reviews of the same request.
func fastest(t *testing.T, endpoint *Endpoint, req *review.Request) time.Duration {
	t.Helper()
	best := time.Duration(1<<63 - 1)
	for range 3 {
		start := time.Now()
		_, _ = endpoint.Review(context.WithoutCancel(t.Context()), req)
		best = min(best, time.Since(start))
	}
	return best
}

// ending is the context of a review that is over once it was looked at so often.
type ending struct {
	context.Context //nolint:containedctx // It is one.

	after, looks int
	end          context.CancelFunc
}

func (e *ending) Err() error {
	if e.looks++; e.looks > e.after {
		e.end()
	}
	return e.Context.Err()
}

func TestAReviewThatIsOverEnds(t *testing.T) {
	const (
		n    = 4000
		more = 10
	)
	config := hostileConfig(t)
	config.Policies = currentPolicies{(&policyset.Set{Tolerations: guarding(t, "*")}).WithTaints([]v1alpha1.TaintPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec: v1alpha1.TaintPolicySpec{
			Taints: []v1alpha1.TaintSelector{
				{Target: v1alpha1.TaintTargetNode, Key: "*"}, {Target: v1alpha1.TaintTargetDevice, Key: "*"},
			},
			Setters:           []v1alpha1.TaintSetter{{Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "x"}}}},
			ValidationActions: []v1alpha1.ValidationAction{v1alpha1.Deny},
		},
	}})}
	for name, tt := range hostile {
		for path, endpoint := range map[string]*Endpoint{"mutate": Mutate(config), "validate": Validate(config)} {
			if _, judged := endpoint.handlers[tt.resource]; !judged {
				continue
			}
			for operation, request := range map[string]func(n int) *review.Request{"create": tt.create, "update": tt.update} {
				for _, after := range []int{0, 3} {
					t.Run(fmt.Sprintf("%s by %s at %s, over after %d looks", name, path, operation, after), func(t *testing.T) {
						ctx, end := context.WithCancel(t.Context())
						defer end()
						over := &ending{Context: ctx, after: after, end: end}
						_, err := endpoint.Review(over, request(n))
						require.LessOrEqual(t, over.looks, after+more, "it goes on with what the client sent")
						if over.looks > after {
							require.Error(t, err, "no verdict comes too late")
						}
					})
				}
			}
		}
	}
}
