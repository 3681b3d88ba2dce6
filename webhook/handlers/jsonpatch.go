package handlers

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/placement"
)

// The paths below are all that placement writes to.
const (
	tolerationsPointer  = "/spec/tolerations"
	gatesPointer        = "/spec/schedulingGates"
	selectorPointer     = "/spec/nodeSelector"
	affinityPointer     = "/spec/affinity"
	nodeAffinityPointer = affinityPointer + "/nodeAffinity"
	requiredPointer     = nodeAffinityPointer + "/requiredDuringSchedulingIgnoredDuringExecution"
	spreadPointer       = "/spec/topologySpreadConstraints"
)

// jsonPatch is a JSON patch that is being written.
type jsonPatch []jsonpatch.Operation

func (p *jsonPatch) test(pointer string, value any) {
	*p = append(*p, jsonpatch.NewOperation("test", pointer, value))
}

func (p *jsonPatch) add(pointer string, value any) {
	*p = append(*p, jsonpatch.NewOperation("add", pointer, value))
}

func (p *jsonPatch) replace(pointer string, value any) {
	*p = append(*p, jsonpatch.NewOperation("replace", pointer, value))
}

func (p *jsonPatch) remove(pointer string) {
	*p = append(*p, jsonpatch.NewOperation("remove", pointer, nil))
}

// stamp writes the time of the taint at a pointer. A test of its key makes a patch that goes to
// another object than it was made for fail, and not write a time into another taint. A taint
// without a key is invalid, and a test of a field that is not there would fail.
func (p *jsonPatch) stamp(pointer, key string, at metav1.Time) {
	if key != "" {
		p.test(pointer+"/key", key)
		p.add(pointer+"/timeAdded", at.UTC().Format(time.RFC3339))
	}
}

// podPatch returns the patch that adds the additions to a pod, and lists those that are windows.
// Each part is guarded by a test of the field that it is added to, and all of it by the name of
// the pod, so that a patch that went to another object than it was made for would fail.
func podPatch(p *podFields, m *mark, additions *placement.PodAdditions, windows []v1alpha1.WindowToleration) jsonPatch {
	var marked, out jsonPatch
	m.patch(&marked, windows)
	if additions.Empty() && len(marked) == 0 {
		return nil
	}
	switch {
	case p.Name != "":
		out.test("/metadata/name", p.Name)
	case p.GenerateName != "":
		out.test("/metadata/generateName", p.GenerateName)
	}
	appendAll(&out, tolerationsPointer, p.sent("tolerations"), len(p.Spec.Tolerations), additions.Tolerations)
	appendAll(&out, gatesPointer, p.sent("schedulingGates"), len(p.Spec.SchedulingGates), additions.Gates)
	out.selector(p, additions.NodeSelector)
	out.terms(p, additions.Terms)
	out.spread(p, additions.Spread)
	return append(out, marked...)
}

// appendAll appends items to the list of length n at a pointer, after a test that it stands there
// as raw, unless that is nil. A list that is empty may not be there.
func appendAll[T any](out *jsonPatch, pointer string, raw json.RawMessage, n int, items []T) {
	switch {
	case len(items) == 0:
	case n == 0:
		out.add(pointer, items)
	default:
		if raw != nil {
			out.test(pointer, raw)
		}
		for _, item := range items {
			out.add(pointer+"/-", item)
		}
	}
}

func (p *jsonPatch) selector(pod *podFields, labels []placement.Labelled) {
	switch {
	case len(labels) == 0:
	case len(pod.Spec.NodeSelector) == 0:
		selector := make(map[string]string, len(labels))
		for _, l := range labels {
			selector[l.Key] = l.Value
		}
		p.add(selectorPointer, selector)
	default:
		p.test(selectorPointer, pod.sent("nodeSelector"))
		for _, l := range labels {
			p.add(selectorPointer+"/"+pointerToken(l.Key), l.Value)
		}
	}
}

func (p *jsonPatch) terms(pod *podFields, terms []placement.Term) {
	if len(terms) == 0 {
		return
	}
	affinity := pod.Spec.Affinity
	if affinity != nil && affinity.NodeAffinity != nil {
		p.test(nodeAffinityPointer, pod.sent("affinity", "nodeAffinity"))
	}
	for _, term := range terms {
		if term.Index < 0 {
			p.firstTerm(affinity, term.Requirements())
			continue
		}
		pointer := requiredPointer + "/nodeSelectorTerms/" + strconv.Itoa(term.Index) + "/matchExpressions"
		own := &affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[term.Index]
		appendAll(p, pointer, nil, len(own.MatchExpressions), term.Requirements())
	}
}

// firstTerm adds the first required term to the affinity of a pod, which may be nil.
func (p *jsonPatch) firstTerm(affinity *corev1.Affinity, requirements []corev1.NodeSelectorRequirement) {
	required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: requirements}}}
	nodeAffinity := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	switch {
	case affinity == nil:
		p.add(affinityPointer, &corev1.Affinity{NodeAffinity: nodeAffinity})
	case affinity.NodeAffinity == nil:
		p.add(nodeAffinityPointer, nodeAffinity)
	default:
		p.add(requiredPointer, required)
	}
}

func (p *jsonPatch) spread(pod *podFields, defaults []placement.SpreadDefault) {
	if len(defaults) == 0 {
		return
	}
	p.test(spreadPointer, pod.sent("topologySpreadConstraints"))
	for _, set := range defaults {
		pointer := spreadPointer + "/" + strconv.Itoa(set.Index)
		if set.NodeTaintsPolicy != nil {
			p.add(pointer+"/nodeTaintsPolicy", set.NodeTaintsPolicy)
		}
		if set.NodeAffinityPolicy != nil {
			p.add(pointer+"/nodeAffinityPolicy", set.NodeAffinityPolicy)
		}
	}
}

// claimPatch returns the patch that adds the additions to each alternative. Tests of the names keep
// a toleration from another request than it is for.
func claimPatch(alternatives []alternative, additions [][]resourcev1.DeviceToleration) jsonPatch {
	var out jsonPatch
	for i, a := range alternatives {
		if len(additions[i]) == 0 {
			continue
		}
		for _, name := range a.names {
			if name.value != "" {
				out.test(pointerTo(name.path), name.value)
			}
		}
		appendAll(&out, pointerTo(a.path.Child("tolerations")), nil, len(a.tolerations), additions[i])
	}
	return out
}

// pointerTo returns the JSON pointer of a field whose path has no keys of maps.
func pointerTo(path *field.Path) string { return "/" + pathSeparators.Replace(path.String()) }

// pathSeparators are those of paths, and what stands for them in JSON pointers.
var pathSeparators = strings.NewReplacer(".", "/", "[", "/", "]", "")

// pointerToken returns a name as it stands in a JSON pointer (RFC 6901).
func pointerToken(name string) string { return pointerEscapes.Replace(name) }

// pointerEscapes is made once: to build a Replacer allocates more than all else in a patch.
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
