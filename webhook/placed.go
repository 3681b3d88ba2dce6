package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/placement"
)

// placedPod is a pod as placement looks at it. What is large stays undecoded until a
// policy asks for it.
type placedPod struct {
	// pod has the fields that are looked at: of the metadata the names, the labels and
	// the annotation of mirrors, and of the spec those of raw up to gates.
	pod corev1.Pod
	raw rawPodSpec
	// mark is the annotation that says which tolerations are windows.
	mark mark
}

// rawPodSpec holds the fields of a pod's spec that placement looks at, as they were
// sent.
type rawPodSpec struct {
	nodeName, tolerations, nodeSelector, affinity, spread, gates json.RawMessage

	nodeAffinity                                  json.RawMessage // of affinity
	containers, initContainers, resources, claims json.RawMessage
}

// decodePlacedPod decodes the fields of a pod that placement looks at.
func decodePlacedPod(raw []byte) (*placedPod, error) {
	pod := &placedPod{}
	err := errors.Join(pod.decodeMetadata(raw), pod.decodeSpec(raw))
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode pod: %w", err)}
	}
	pod.mark, err = markOf(raw, false)
	return pod, err
}

func (p *placedPod) decodeMetadata(raw []byte) error {
	var metadata, name, generateName, labels, annotations, mirror json.RawMessage
	if err := findMembers(raw, member{"metadata", &metadata}); err != nil {
		return err
	}
	err := findMembers(metadata, member{"name", &name}, member{"generateName", &generateName},
		member{"labels", &labels}, member{"annotations", &annotations})
	if err != nil {
		return err
	}
	if err := findMembers(annotations, member{corev1.MirrorPodAnnotationKey, &mirror}); err != nil {
		return err
	}
	if mirror != nil {
		p.pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
	}
	p.pod.Name, err = decodeString(name)
	if err != nil {
		return err
	}
	p.pod.GenerateName, err = decodeString(generateName)
	return errors.Join(err, decodeField(labels, "metadata.labels", &p.pod.Labels))
}

func (p *placedPod) decodeSpec(raw []byte) error {
	var spec json.RawMessage
	if err := findMembers(raw, member{"spec", &spec}); err != nil {
		return err
	}
	r := &p.raw
	err := findMembers(spec,
		member{"nodeName", &r.nodeName}, member{"tolerations", &r.tolerations},
		member{"nodeSelector", &r.nodeSelector}, member{"affinity", &r.affinity},
		member{"topologySpreadConstraints", &r.spread}, member{"schedulingGates", &r.gates},
		member{"containers", &r.containers}, member{"initContainers", &r.initContainers},
		member{"resources", &r.resources}, member{"resourceClaims", &r.claims})
	if err != nil {
		return err
	}
	name, err := decodeString(r.nodeName)
	p.pod.Spec.NodeName = name
	return errors.Join(err,
		findMembers(r.affinity, member{"nodeAffinity", &r.nodeAffinity}),
		decodeField(r.tolerations, "spec.tolerations", &p.pod.Spec.Tolerations),
		decodeField(r.nodeSelector, "spec.nodeSelector", &p.pod.Spec.NodeSelector),
		decodeField(r.affinity, "spec.affinity", &p.pod.Spec.Affinity),
		decodeField(r.spread, "spec.topologySpreadConstraints", &p.pod.Spec.TopologySpreadConstraints),
		decodeField(r.gates, "spec.schedulingGates", &p.pod.Spec.SchedulingGates),
	)
}

// resourcesFields are the resources of a container, or of a pod as a whole.
type resourcesFields struct {
	Requests map[string]quantity.Quantity `json:"requests"`
}

type containerResources struct {
	Resources resourcesFields `json:"resources"`
}

// requested returns the names of the resources that the pod requests: by any of its
// containers, or as a whole. The API server has made requests of limits by then. A
// request of nothing is none.
func (p *placedPod) requested() ([]string, error) {
	var containers, initContainers []containerResources
	var whole resourcesFields
	err := errors.Join(
		decodeField(p.raw.containers, "spec.containers", &containers),
		decodeField(p.raw.initContainers, "spec.initContainers", &initContainers),
		decodeField(p.raw.resources, "spec.resources", &whole),
	)
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode pod: %w", err)}
	}
	names := map[string]struct{}{}
	collect := func(fields *resourcesFields) {
		for name, quantity := range fields.Requests {
			if !quantity.IsZero() {
				names[name] = struct{}{}
			}
		}
	}
	collect(&whole)
	for _, container := range append(containers, initContainers...) {
		collect(&container.Resources)
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// resourceClaims returns the claims that the pod refers to.
func (p *placedPod) resourceClaims() ([]corev1.PodResourceClaim, error) {
	var found []corev1.PodResourceClaim
	if err := decodeField(p.raw.claims, "spec.resourceClaims", &found); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode pod: %w", err)}
	}
	return found, nil
}

// placedClaim is a claim, or the claim that a template is for, as placement looks at
// it.
type placedClaim struct {
	labels   map[string]string
	classes  []string
	requests []placedRequest
	// mark is the annotation that says which tolerations are windows.
	mark mark
}

// placedRequest is a request, or an alternative of one.
type placedRequest struct {
	placement.ClaimRequest

	// pointer is its own, and names are those of the request and the alternative around it.
	pointer string
	names   []pointedName
}

type pointedName struct{ pointer, value string }

// decodePlacedClaim decodes the fields of a claim or a template that placement looks at. The
// labels of a template are those that its claims get.
func decodePlacedClaim(raw []byte, template bool) (*placedClaim, error) {
	claim, err := readPlacedClaim(raw, template)
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode claim: %w", err)}
	}
	claim.mark, err = markOf(raw, template)
	return claim, err
}

func readPlacedClaim(raw []byte, template bool) (*placedClaim, error) {
	object := json.RawMessage(raw)
	path, pointer := field.NewPath("spec"), "/spec"
	if template {
		if err := findMembers(raw, member{"spec", &object}); err != nil {
			return nil, err
		}
		path, pointer = path.Child("spec"), pointer+"/spec"
	}
	var metadata, labels, spec, devices, requests json.RawMessage
	err := findMembers(object, member{"metadata", &metadata}, member{"spec", &spec})
	if err == nil {
		err = findMembers(metadata, member{"labels", &labels})
	}
	if err == nil {
		err = findMembers(spec, member{"devices", &devices})
	}
	if err == nil {
		err = findMembers(devices, member{"requests", &requests})
	}
	if err != nil {
		return nil, err
	}
	claim := &placedClaim{}
	if err := decodeField(labels, "metadata.labels", &claim.labels); err != nil {
		return nil, err
	}
	var list []requestFields
	path, pointer = path.Child("devices", "requests"), pointer+"/devices/requests"
	if err := decodeFieldWithin(requests, path.String(), maxRequestElements, &list); err != nil {
		return nil, err
	}
	for i := range list {
		claim.take(&list[i], path.Index(i), pointer+"/"+strconv.Itoa(i))
	}
	return claim, nil
}

// take reads a request. Of a kind that is not known here nothing is taken.
func (c *placedClaim) take(r *requestFields, path *field.Path, pointer string) {
	own := pointedName{pointer: pointer + "/name", value: r.Name}
	add := func(sub *subrequestFields, path *field.Path, pointer string, names ...pointedName) {
		c.classes = append(c.classes, sub.Class)
		c.requests = append(c.requests, placedRequest{
			ClaimRequest: placement.ClaimRequest{Path: path.Child("tolerations"), Tolerations: sub.Tolerations},
			pointer:      pointer,
			names:        names,
		})
	}
	if r.Exactly != nil {
		add(r.Exactly, path.Child("exactly"), pointer+"/exactly", own)
	}
	for i := range r.FirstAvailable {
		sub, at := &r.FirstAvailable[i], pointer+"/firstAvailable/"+strconv.Itoa(i)
		add(sub, path.Child("firstAvailable").Index(i), at, own, pointedName{at + "/name", sub.Name})
	}
}

// claimRequests returns the requests as policies look at them.
func (c *placedClaim) claimRequests() []placement.ClaimRequest {
	requests := make([]placement.ClaimRequest, len(c.requests))
	for i := range c.requests {
		requests[i] = c.requests[i].ClaimRequest
	}
	return requests
}
