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
	// scanPause is the delay between two scans, and writePause the minimum between two
	// writes of one status.
	scanPause  = 30 * time.Second
	writePause = 30 * time.Second
	// soonPause is the minimum delay until a change of policies is scanned. It grows up to
	// latePause, so that scans take at most a twentieth of the time.
	soonPause = 2 * time.Second
	latePause = 15 * time.Second
	share     = 20
	// writeFor is how long statuses are written although policies have changed.
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

// policies returns the policies in force, and signals changes.
type policies interface {
	Current() *policyset.Set
	Subscribe() (changed <-chan struct{}, stop func())
}

// Options configures a Controller. All fields are required.
type Options struct {
	// Pods returns the pods on nodes, and Synced reports whether it has all of them.
	Pods   pods
	Synced func() bool
	// Cache holds namespaces, RuntimeClasses and policies.
	Cache objects
	// Namespace is the namespace of Tollgate. Admission evaluates neither its pods nor
	// those of kube-system.
	Namespace string
	// Status writes the status of policies.
	Status   statuses
	Policies policies
	// DefaultSeconds configures the API server's DefaultTolerationSeconds.
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
	// lastWrites are the times of recent status writes. Only Start uses them.
	lastWrites map[types.UID]time.Time
}

// New returns a controller; Start starts it.
func New(options Options) *Controller { return &Controller{options: options} }

// Start runs the controller until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	c.lastWrites = map[types.UID]time.Time{}
	changed, unsubscribe := c.options.Policies.Subscribe()
	defer unsubscribe()
	defer c.options.Metrics.violations.Set(0) // The next leader exports the metric.

	failures := 0 // in a row
	for {
		var duration time.Duration
		done := false
		if current := c.options.Policies.Current(); current != nil && c.options.Synced() && c.options.Leads() {
			var err error
			duration, err = c.audit(ctx, current, changed)
			done, failures = err == nil, c.logFailure(ctx, err, failures)
		}
		if !c.pause(ctx, max(min(max(soonPause, share*duration), latePause), retryPause(failures)), nil) {
			return nil
		}
		if done && !c.pause(ctx, scanPause, changed) {
			return nil
		}
	}
}

// logFailure logs a failed scan, at a higher level for the first in a row. It returns the
// number of failures in a row.
func (c *Controller) logFailure(ctx context.Context, err error, failures int) int {
	if err == nil || ctx.Err() != nil {
		return 0 // The end of the context is no failure.
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

// retryPause returns the delay after a number of failures in a row. It doubles with each,
// because a scan visits all pods and a missing permission lasts.
func retryPause(failures int) time.Duration {
	pause := time.Duration(0)
	for range failures {
		pause = min(max(soonPause, 2*pause), scanPause)
	}
	return pause
}

// pause waits for d or a value in early and returns true; it returns false when ctx is
// done.
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

// audit scans all pods, writes changed statuses, and returns the duration of the scan.
func (c *Controller) audit(ctx context.Context, current *policyset.Set, changed <-chan struct{}) (duration time.Duration, err error) {
	began := c.options.Local.Now()
	found, err := c.scan(ctx, current.Tolerations)
	if err != nil {
		return 0, fmt.Errorf("look for violations: %w", err)
	}
	duration = c.options.Local.Since(began)
	c.options.Metrics.duration.Set(duration.Seconds())
	total := 0
	for _, violations := range found {
		total += int(violations.Count)
	}
	c.options.Metrics.violations.Set(float64(total))
	return duration, c.write(ctx, current, found, changed)
}

func (c *Controller) scan(ctx context.Context, set auditor) (map[string]*v1alpha1.TolerationViolations, error) {
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
	s := &scan{auditor: set, tollgate: c.options.Namespace, namespaces: c.options.Cache, defaults: c.options.DefaultSeconds, added: added}
	return s.run(ctx, c.options.Pods)
}

// write writes the violations into the statuses that differ. If that takes longer than
// writeFor and policies changed meanwhile, the next audit writes the rest. A refused write
// does not stop the others.
func (c *Controller) write(ctx context.Context, current *policyset.Set, found map[string]*v1alpha1.TolerationViolations, changed <-chan struct{}) error {
	var list v1alpha1.TolerationPolicyList
	if err := c.options.Cache.List(ctx, &list); err != nil {
		return fmt.Errorf("list policies: %w", err)
	}
	// Newest first: the author of a new policy waits for its result.
	slices.SortStableFunc(list.Items, func(a, b v1alpha1.TolerationPolicy) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	now := c.options.Local.Now()
	maps.DeleteFunc(c.lastWrites, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= writePause })
	var errs []error
	for i := range list.Items {
		object := &list.Items[i]
		if !current.Holds(object.UID, object.Generation) {
			continue // The violations belong to another generation.
		}
		violations := found[object.Name]
		if violations == nil {
			violations = &v1alpha1.TolerationViolations{}
		}
		if object.Status.Violations != nil && equality.Semantic.DeepEqual(object.Status.Violations, violations) {
			continue
		}
		if _, ok := c.lastWrites[object.UID]; ok {
			continue
		}
		err := c.writeOne(ctx, object, violations)
		errs = append(errs, err)
		if err == nil {
			c.lastWrites[object.UID] = now
		} else if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			break // An unreachable API server would fail the rest too.
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
	// An empty sample is written too, or the merge patch would keep the old one. The UID
	// makes the patch of a recreated policy fail.
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
