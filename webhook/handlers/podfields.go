package handlers

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// podFields is a pod, or the template of pods in a workload, with the fields that admission looks at.
// To read these and decode no others costs a tenth of decoding a pod, and nothing that a newer
// API server adds to pods can matter.
type podFields struct {
	// mirror says that it has the annotation of mirrors, and Spec has nodeName, hostNetwork,
	// runtimeClassName, tolerations, schedulingGates, nodeSelector and affinity. All else is zero,
	// but for what readPlacedPod adds.
	mirror             bool
	Labels             map[string]string
	Name, GenerateName string
	Spec               corev1.PodSpec

	value, metadata, spec review.Value
}

func readPod(f *review.Fields, v review.Value) *podFields {
	p := &podFields{value: v, metadata: f.At(v, "metadata"), spec: f.At(v, "spec")}
	in := &p.Spec
	in.NodeName = f.Text(p.spec, "nodeName")
	in.HostNetwork = f.Bool(p.spec, "hostNetwork")
	if class := f.At(p.spec, "runtimeClassName"); !class.IsNull() {
		in.RuntimeClassName = new(f.Text(class))
	}
	in.Tolerations = readTolerations(f, f.At(p.spec, "tolerations"))
	f.Into(&in.SchedulingGates, p.spec, "schedulingGates")
	in.NodeSelector = f.Texts(p.spec, "nodeSelector")
	f.Into(&in.Affinity, p.spec, "affinity")
	mirror := f.At(p.metadata, "annotations", corev1.MirrorPodAnnotationKey)
	p.mirror = !mirror.IsNull()
	_ = f.Text(mirror) // It is checked, as all fields are.
	return p
}

// readTolerations returns a list of tolerations, of bounded size.
func readTolerations(f *review.Fields, v review.Value) []corev1.Toleration {
	if !f.Fits(v) {
		return nil
	}
	// Most have three fields or four, which are values too.
	all := slices.Grow([]corev1.Toleration(nil), v.Size()/4)
	for _, item := range f.Items(v) {
		all = append(all, corev1.Toleration{
			Key:               f.Text(item, "key"),
			Operator:          corev1.TolerationOperator(f.Text(item, "operator")),
			Value:             f.Text(item, "value"),
			Effect:            corev1.TaintEffect(f.Text(item, "effect")),
			TolerationSeconds: f.Integer(item, "tolerationSeconds"),
		})
	}
	return all
}

// readPlacedPod is readPod with the fields that placement looks at: names, labels and spread.
func readPlacedPod(f *review.Fields, v review.Value) *podFields {
	p := readPod(f, v)
	p.Name, p.GenerateName = f.Text(p.metadata, "name"), f.Text(p.metadata, "generateName")
	p.Labels = f.Texts(p.metadata, "labels")
	f.Into(&p.Spec.TopologySpreadConstraints, p.spec, "topologySpreadConstraints")
	return p
}

// requests yields the names and the amounts of the resources that the containers of the pod
// request, and where whole is true also those that the pod requests as a whole. The API server
// has made requests of limits by then.
func (p *podFields) requests(f *review.Fields, whole bool, take func(name string, amount *quantity.Quantity)) {
	read := func(v review.Value) {
		for name, text := range f.Members(v, "resources", "requests") {
			var amount quantity.Quantity
			f.Into(&amount, text)
			take(name, &amount)
		}
	}
	for _, list := range []string{"containers", "initContainers"} {
		for _, container := range f.Items(p.spec, list) {
			read(container)
		}
	}
	if whole {
		read(p.spec)
	}
}

// requested returns the names of the resources that the pod requests: by any of its containers,
// or as a whole. A request of nothing is none.
func (p *podFields) requested() ([]string, error) {
	var f review.Fields
	names := sets.Set[string]{}
	p.requests(&f, true, func(name string, amount *quantity.Quantity) {
		if !amount.IsZero() {
			names.Insert(name)
		}
	})
	return sets.List(names), f.Err()
}

// sent returns a field of the spec as it was sent, which was read without an error.
func (p *podFields) sent(path ...string) json.RawMessage {
	var f review.Fields
	return f.At(p.spec, path...).Raw()
}

// mark is the annotation that lists windows, in the metadata of an object, or of the claims
// of a template.
type mark struct {
	// pointer is that of the metadata.
	pointer               string
	metadata, annotations review.Value
	value                 string
	there                 bool
}

// markOf reads the annotation of the object of a request; that which the claims of a
// ResourceClaimTemplate get.
func (r request) markOf(v review.Value) mark {
	m := mark{pointer: "/metadata"}
	if r.ofTemplate() {
		m.pointer, v = "/spec/metadata", r.At(v, "spec")
	}
	m.metadata = r.At(v, "metadata")
	m.annotations = r.At(m.metadata, "annotations")
	value := r.At(m.annotations, v1alpha1.AnnotationWindow)
	m.there, m.value = value.Exists(), r.Text(value)
	return m
}
