package tracker

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Origin is what of a pod is the same, as a rule, for all replicas of a workload. It
// is shared between them and must not be written to.
type Origin struct {
	Labels         Labels
	ServiceAccount string
	// OwnerKind is the kind of the pod's controller, empty for a pod that nobody would
	// create anew.
	OwnerKind string
	// OwnerUID is the UID of that controller.
	OwnerUID          types.UID
	PriorityClassName string
}

func originOf(pod *corev1.Pod) *Origin {
	origin := &Origin{
		Labels: LabelsOf(pod.Labels), ServiceAccount: pod.Spec.ServiceAccountName, PriorityClassName: pod.Spec.PriorityClassName,
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		origin.OwnerKind, origin.OwnerUID = owner.Kind, owner.UID
	}
	return origin
}

// Labels returns the labels of the pod.
func (p *Pod) Labels() Labels {
	if p.Origin == nil {
		return nil
	}
	return p.Origin.Labels
}

// PriorityClassName returns the name of the pod's priority class, empty for none.
func (p *Pod) PriorityClassName() string {
	if p.Origin == nil {
		return ""
	}
	return p.Origin.PriorityClassName
}

// Labels are the labels of an object, sorted by key. Selectors take them as they
// are.
type Labels []Label

// Label is one label.
type Label struct{ Key, Value string }

// LabelsOf returns labels as they are kept.
func LabelsOf(labels map[string]string) Labels {
	if len(labels) == 0 {
		return nil
	}
	kept := make(Labels, 0, len(labels))
	for key, value := range labels {
		kept = append(kept, Label{Key: key, Value: value})
	}
	slices.SortFunc(kept, func(a, b Label) int { return cmp.Compare(a.Key, b.Key) })
	return kept
}

// Map returns the labels as the API has them.
func (l Labels) Map() map[string]string {
	labels := make(map[string]string, len(l))
	for _, label := range l {
		labels[label.Key] = label.Value
	}
	return labels
}

// Has implements labels.Labels.
func (l Labels) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

// Get implements labels.Labels.
func (l Labels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// Lookup implements labels.Labels.
func (l Labels) Lookup(key string) (value string, exists bool) {
	at, found := slices.BinarySearchFunc(l, key, func(label Label, key string) int { return cmp.Compare(label.Key, key) })
	if !found {
		return "", false
	}
	return l[at].Value, true
}
