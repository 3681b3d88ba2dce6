package webhook

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// maxElements bounds the values inside a field that is decoded: this many, and
// one more for every forty bytes. A list of empty objects takes three bytes an
// entry in JSON and eighty in memory, and a map with short keys is worse.
const maxElements = 10_000

// podFields are the fields of a pod, or of a template, that admission looks at. To find
// these and decode no others costs a tenth of decoding a pod, and nothing that a newer
// API server adds to pods can matter.
type podFields struct {
	metadata, spec                             json.RawMessage
	annotations, mirror                        json.RawMessage
	nodeName, hostNetwork, runtimeClassName    json.RawMessage
	tolerations, gates, nodeSelector, affinity json.RawMessage
}

func findPodFields(raw []byte) (podFields, error) {
	var f podFields
	if err := findMembers(raw, member{"metadata", &f.metadata}, member{"spec", &f.spec}); err != nil {
		return f, err
	}
	return f, errors.Join(
		findMembers(f.metadata, member{"annotations", &f.annotations}),
		findMembers(f.annotations, member{corev1.MirrorPodAnnotationKey, &f.mirror}),
		findMembers(f.spec,
			member{"nodeName", &f.nodeName}, member{"hostNetwork", &f.hostNetwork}, member{"runtimeClassName", &f.runtimeClassName},
			member{"tolerations", &f.tolerations}, member{"schedulingGates", &f.gates},
			member{"nodeSelector", &f.nodeSelector}, member{"affinity", &f.affinity}),
	)
}

// decodePod returns what admission knows of a pod: the fields of podFields. All
// others are zero.
func decodePod(raw []byte) (*corev1.Pod, error) {
	fields, err := findPodFields(raw)
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode pod: %w", err)}
	}
	pod := &corev1.Pod{}
	spec := &pod.Spec
	var mirror *string
	err = errors.Join(
		decodeStringAt(fields.nodeName, "spec.nodeName", &spec.NodeName),
		decodeField(fields.hostNetwork, "spec.hostNetwork", &spec.HostNetwork),
		decodeField(fields.runtimeClassName, "spec.runtimeClassName", &spec.RuntimeClassName),
		decodeField(fields.tolerations, "spec.tolerations", &spec.Tolerations),
		decodeField(fields.gates, "spec.schedulingGates", &spec.SchedulingGates),
		decodeStringsAt(fields.nodeSelector, "spec.nodeSelector", &spec.NodeSelector),
		decodeField(fields.affinity, "spec.affinity", &spec.Affinity),
		decodeField(fields.mirror, "metadata.annotations", &mirror),
	)
	if err != nil {
		return nil, &badReviewError{err}
	}
	if mirror != nil {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: *mirror}
	}
	return pod, nil
}

// decodeStringAt decodes a field that is a string.
func decodeStringAt(raw json.RawMessage, path string, into *string) error {
	text, err := decodeString(raw)
	if err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	*into = text
	return nil
}

// decodeStringsAt decodes a field of bounded size that is a map of strings.
func decodeStringsAt(raw json.RawMessage, path string, into *map[string]string) error {
	if err := bounded(raw, path, maxElements); err != nil {
		return err
	}
	all, err := decodeStrings(raw)
	if err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	*into = all
	return nil
}

// decodeField decodes one field of bounded size.
func decodeField(raw json.RawMessage, path string, into any) error {
	return decodeFieldWithin(raw, path, maxElements, into)
}

// decodeFieldWithin decodes one field that may hold most values, and one more for
// every forty bytes.
func decodeFieldWithin(raw json.RawMessage, path string, most int, into any) error {
	if isNull(raw) {
		return nil
	}
	if err := bounded(raw, path, most); err != nil {
		return err
	}
	if err := unmarshal(raw, into); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}

func bounded(raw json.RawMessage, path string, most int) error {
	if n, limit := countElements(raw), most+len(raw)/40; n > limit {
		return fmt.Errorf("%s holds %d values in %d bytes, at most %d are read", path, n, len(raw), limit)
	}
	return nil
}
