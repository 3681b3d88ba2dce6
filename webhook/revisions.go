package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A StatefulSet that is rolled out with a partition, or has not finished, makes some of
// its pods anew from the template that it had before. Kubernetes keeps that template in
// a ControllerRevision, and writes its name on the pods and into the set's status. Pods
// of a DaemonSet are always made from its present template.

// templateOfRevision is where the data of a ControllerRevision have the template.
var templateOfRevision = []string{"spec", "template"}

// ofRevision returns the tolerations in the template that the set had before. Whoever
// writes revisions is judged for the template in them when they are created
// (templateJudge), and their data never changes; so it is enough that the revision is
// the set's own.
func (l *live) ofRevision(ctx context.Context, set *appsv1.StatefulSet) ([]corev1.Toleration, error) {
	var revision appsv1.ControllerRevision
	found, err := l.read(ctx, set.Namespace, set.Status.CurrentRevision, &revision)
	if err != nil || !found || !metav1.IsControlledBy(&revision, set) {
		return nil, err
	}
	return templateWithin(revision.Data.Raw, templateOfRevision).pod.Spec.Tolerations, nil
}

// decodeRevision returns which revision of its StatefulSet a pod says it was made from.
func decodeRevision(raw []byte) (string, error) {
	var metadata, labels, revision json.RawMessage
	err := errors.Join(
		findMembers(raw, member{"metadata", &metadata}),
		findMembers(metadata, member{"labels", &labels}),
		findMembers(labels, member{appsv1.StatefulSetRevisionLabel, &revision}),
	)
	if err != nil {
		return "", &badReviewError{fmt.Errorf("decode object: %w", err)}
	}
	name, err := decodeString(revision)
	if err != nil {
		return "", &badReviewError{fmt.Errorf("decode metadata.labels: %w", err)}
	}
	return name, nil
}
