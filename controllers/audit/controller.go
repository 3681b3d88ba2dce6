package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

const (
	// scanPause is between two looks, and writePause the least between two writes of
	// one status.
	scanPause  = 30 * time.Second
	writePause = 30 * time.Second
	// soonPause is how soon a change of policies is looked at, at the earliest; and as
	// much later that no more than a twentieth of the time is spent looking, within
	// latePause.
	soonPause = 2 * time.Second
	latePause = 15 * time.Second
	share     = 20
	// writeFor is for how long statuses are written although policies have changed.
	writeFor = 5 * time.Second
)

// objects reads from a cache.
type objects interface {
	reader
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

// statuses writes the status of policies.
type statuses interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error
}

// policies hands out those in force, and says when they changed.
type policies interface {
	Current() *policyset.Set
	Subscribe() (changed <-chan struct{}, stop func())
}

// Options are what a Controller works with. All of them are required.
type Options struct {
	// Pods are those on nodes, and Synced says whether all of them are known.
	Pods   pods
	Synced func() bool
	// Cache holds namespaces, RuntimeClasses and policies.
	Cache objects
	// Namespace is that of Tollgate, whose pods admission never judges, as those of
	// kube-system.
	Namespace string
	// Status writes the status of policies.
	Status   statuses
	Policies policies
	// DefaultSeconds are those of the API server's DefaultTolerationSeconds.
	DefaultSeconds toleration.DefaultSeconds
	// Local is the clock of this machine.
	Local clock.WithTicker
	Leads func() bool
	// Timeout bounds a write.
	Timeout time.Duration
	Metrics *Metrics
}

// Controller counts violations.
type Controller struct {
	options Options
	// written is when the status of a policy was written lately. It is Start's.
	written map[types.UID]time.Time
}

// New returns a controller. It starts nothing: that is what Start does.
func New(options Options) *Controller { return &Controller{options: options} }

// Start works until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	c.written = map[types.UID]time.Time{}
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	defer c.options.Metrics.violations.Set(0) // The next leader says how many.

	failures := 0 // in a row
	for {
		var took time.Duration
		looked := false
		if current := c.options.Policies.Current(); current != nil && c.options.Synced() && c.options.Leads() {
			var err error
			took, err = c.look(ctx, current, changed)
			looked, failures = err == nil, c.tell(ctx, err, failures)
		}
		if !c.pause(ctx, max(min(max(soonPause, share*took), latePause), retryPause(failures)), nil) {
			return nil
		}
		if looked && !c.pause(ctx, scanPause, changed) {
			return nil
		}
	}
}

// tell says that a look failed, aloud where it is the first in a row. It returns how many
// there are now.
func (c *Controller) tell(ctx context.Context, err error, failures int) int {
	if err == nil || ctx.Err() != nil {
		return 0 // What ends with the process is no failure.
	}
	failures++
	log, again := logr.FromContextOrDiscard(ctx), retryPause(failures).String()
	if failures == 1 {
		log.Error(err, "cannot say what violates policies", "again", again)
	} else {
		log.V(1).Info("still cannot say what violates policies", "reason", err.Error(), "again", again)
	}
	return failures
}

// retryPause is how long to wait after so many failures in a row: twice as long each
// time, since each look is at all pods, and what is not permitted stays so for long.
func retryPause(failures int) time.Duration {
	pause := time.Duration(0)
	for range failures {
		pause = min(max(soonPause, 2*pause), scanPause)
	}
	return pause
}

// pause returns true after d, or as soon as there is something in early; false when ctx
// is done.
func (c *Controller) pause(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-early:
		return true
	case <-c.options.Local.After(d):
		return true
	}
}

// look looks at all pods, writes what changed, and returns how long the looking took.
func (c *Controller) look(ctx context.Context, current *policyset.Set, changed <-chan struct{}) (took time.Duration, err error) {
	began := c.options.Local.Now()
	found, err := c.scan(ctx, current.Tolerations)
	if err != nil {
		return 0, fmt.Errorf("look for violations: %w", err)
	}
	took = c.options.Local.Since(began)
	c.options.Metrics.duration.Set(took.Seconds())
	total := 0
	for _, violations := range found {
		total += int(violations.Count)
	}
	c.options.Metrics.violations.Set(float64(total))
	return took, c.write(ctx, current, found, changed)
}

func (c *Controller) scan(ctx context.Context, set judge) (map[string]*v1alpha1.TolerationViolations, error) {
	var classes nodev1.RuntimeClassList
	if err := c.options.Cache.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("list runtime classes: %w", err)
	}
	var added []corev1.Toleration
	for i := range classes.Items {
		if scheduling := classes.Items[i].Scheduling; scheduling != nil {
			added = append(added, scheduling.Tolerations...)
		}
	}
	s := &scan{judge: set, tollgate: c.options.Namespace, namespaces: c.options.Cache, defaults: c.options.DefaultSeconds, added: added}
	return s.run(ctx, c.options.Pods)
}

// write writes what was found into the status of the policies that say otherwise. Where
// there are many and policies change meanwhile, the rest is left to the next look. One that
// is refused keeps none of the others.
func (c *Controller) write(ctx context.Context, current *policyset.Set, found map[string]*v1alpha1.TolerationViolations, changed <-chan struct{}) error {
	var list v1alpha1.TolerationPolicyList
	if err := c.options.Cache.List(ctx, &list); err != nil {
		return fmt.Errorf("list policies: %w", err)
	}
	// Whoever made a policy just now is waiting for what it finds.
	slices.SortStableFunc(list.Items, func(a, b v1alpha1.TolerationPolicy) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	now := c.options.Local.Now()
	maps.DeleteFunc(c.written, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= writePause })
	var errs []error
	for i := range list.Items {
		object := &list.Items[i]
		if !current.Holds(object.UID, object.Generation) {
			continue // What was found is about another spec.
		}
		violations := found[object.Name]
		if violations == nil {
			violations = &v1alpha1.TolerationViolations{}
		}
		if object.Status.Violations != nil && equality.Semantic.DeepEqual(object.Status.Violations, violations) {
			continue
		}
		if _, ok := c.written[object.UID]; ok {
			continue
		}
		err := c.writeOne(ctx, object, violations)
		errs = append(errs, err)
		if err == nil {
			c.written[object.UID] = now
		} else if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			break // Who does not answer would not for the rest either.
		}
		if len(changed) > 0 && c.options.Local.Since(now) > writeFor {
			break
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) writeOne(ctx context.Context, object *v1alpha1.TolerationPolicy, violations *v1alpha1.TolerationViolations) error {
	if !c.options.Leads() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	// The sample is written even where it is empty, or that of before would stay. The
	// UID is tested, so that a policy that was made anew is not told of another.
	type status struct {
		Count  int32                          `json:"count"`
		Sample []v1alpha1.TolerationViolation `json:"sample"`
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": object.UID},
		"status":   map[string]any{"violations": status{violations.Count, violations.Sample}},
	})
	if err != nil {
		return fmt.Errorf("encode violations: %w", err)
	}
	err = c.options.Status.Patch(ctx, object, client.RawPatch(types.MergePatchType, body))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write violations of TolerationPolicy %s: %w", object.Name, err)
	}
	return nil
}
