package rulestatus

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	resourcev1ac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/dynamic"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// fieldManager owns the conditions that are written here.
const fieldManager = "tollgate"

// applier writes conditions into the status of the rule with a name and a UID, in
// the place of those that it wrote before, and returns the rule as it is then.
type applier interface {
	Apply(ctx context.Context, name string, uid types.UID, conditions []metav1.Condition) (tracker.Rule, error)
}

// Applier writes conditions by server-side apply (DE-60), in whatever version rules
// are served. The status is the same in all versions that have one.
type Applier struct {
	client dynamic.Interface
	served func() (schema.GroupVersionResource, bool)
}

// NewApplier returns an applier. It asks served at each write in which version
// rules are served with a status; false means in none.
func NewApplier(client dynamic.Interface, served func() (schema.GroupVersionResource, bool)) *Applier {
	return &Applier{client: client, served: served}
}

// Apply implements applier. It overrules others who write the same conditions,
// which are only those who evict in our place, and takes back what it once wrote
// and does not write again. The UID is part of what is applied, so that a rule that
// was created anew is not told of its predecessor.
func (a *Applier) Apply(ctx context.Context, name string, uid types.UID, conditions []metav1.Condition) (tracker.Rule, error) {
	resource, ok := a.served()
	if !ok {
		return tracker.Rule{}, errNotServed
	}
	status := resourcev1ac.DeviceTaintRuleStatus()
	for i := range conditions {
		status.WithConditions(applied(&conditions[i]))
	}
	wanted := resourcev1ac.DeviceTaintRule(name).WithAPIVersion(resource.GroupVersion().String()).WithUID(uid).WithStatus(status)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return tracker.Rule{}, fmt.Errorf("encode status of rule %s: %w", name, err)
	}
	answer, err := a.client.Resource(resource).ApplyStatus(ctx, name, &unstructured.Unstructured{Object: content},
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return tracker.Rule{}, fmt.Errorf("apply status of rule %s: %w", name, err)
	}
	return informer.RuleOf(answer)
}

func applied(c *metav1.Condition) *metav1ac.ConditionApplyConfiguration {
	return metav1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
		WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime)
}
