package webhook

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxElements bounds the values inside a field that is decoded: this many, and
// one more for every forty bytes. A list of empty objects takes three bytes an
// entry in JSON and eighty in memory, and a map with short keys is worse.
const maxElements = 10_000

// podFields are the fields of a pod that admission looks at. Decoding these and
// no others costs a third of decoding a pod, and nothing that a newer API server
// adds to pods can matter.
type podFields struct {
	Metadata struct {
		Annotations struct {
			Mirror *string `json:"kubernetes.io/config.mirror"`
		} `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		NodeName         string          `json:"nodeName"`
		HostNetwork      bool            `json:"hostNetwork"`
		RuntimeClassName *string         `json:"runtimeClassName"`
		Tolerations      json.RawMessage `json:"tolerations"`
		SchedulingGates  json.RawMessage `json:"schedulingGates"`
		NodeSelector     json.RawMessage `json:"nodeSelector"`
		Affinity         json.RawMessage `json:"affinity"`
	} `json:"spec"`
}

// decodePod returns what admission knows of a pod: the fields of podFields. All
// others are zero.
func decodePod(raw []byte) (*corev1.Pod, error) {
	var fields podFields
	if err := unmarshal(raw, &fields); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode pod: %w", err)}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		NodeName: fields.Spec.NodeName, HostNetwork: fields.Spec.HostNetwork, RuntimeClassName: fields.Spec.RuntimeClassName,
	}}
	if mirror := fields.Metadata.Annotations.Mirror; mirror != nil {
		pod.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: *mirror}}
	}
	err := errors.Join(
		decodeField(fields.Spec.Tolerations, "spec.tolerations", &pod.Spec.Tolerations),
		decodeField(fields.Spec.SchedulingGates, "spec.schedulingGates", &pod.Spec.SchedulingGates),
		decodeField(fields.Spec.NodeSelector, "spec.nodeSelector", &pod.Spec.NodeSelector),
		decodeField(fields.Spec.Affinity, "spec.affinity", &pod.Spec.Affinity),
	)
	if err != nil {
		return nil, &badReviewError{err}
	}
	return pod, nil
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
	if n, limit := countElements(raw), most+len(raw)/40; n > limit {
		return fmt.Errorf("%s holds %d values in %d bytes, at most %d are read", path, n, len(raw), limit)
	}
	if err := unmarshal(raw, into); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}
