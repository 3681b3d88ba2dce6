package devicetaints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// maxPublished bounds the rules for what drivers publish. Each is an object that
// every scheduler watches.
const maxPublished = 1000

// maxFaults bounds what is logged of one look at them.
const maxFaults = 3

// step looks at one rule, or at all that drivers publish.
func (c *Controller) step(ctx context.Context, k key) (time.Duration, error) {
	current := c.options.Policies.Current()
	if current == nil || !c.options.Synced() {
		return policiesPause, nil
	}
	needs := NeedsOf(current, c.options.Window)
	if k.rule == "" {
		return publishedPause, c.published(ctx, needs)
	}
	return c.rule(ctx, needs, k.rule)
}

// rule sees to the twin of one rule, or to what is left of one that is gone.
func (c *Controller) rule(ctx context.Context, needs Needs, name string) (time.Duration, error) {
	rule, ok := c.options.Devices.Rule(name)
	if !ok {
		delete(c.settlements, name)
		return 0, c.orphan(ctx, twinName(name))
	}
	if strings.HasSuffix(name, suffix) {
		if err := c.orphan(ctx, name); err != nil {
			return 0, err
		}
	}
	wanted := twinOf(&rule)
	reference := referenceTo(name, rule.UID)
	// A rule that evicts for Tollgate alone keeps new pods off as it is.
	if !rule.Selects || !needs.pair(new(rule.NativeTaint())) {
		return 0, c.remove(ctx, wanted.name, reference)
	}
	return recheck, c.ensure(ctx, &wanted, reference)
}

// published sees to the rules for what drivers publish. One that cannot be written does
// not keep the others from being.
func (c *Controller) published(ctx context.Context, needs Needs) error {
	wanted, left := c.wantedForPublished(needs)
	c.options.Metrics.left.Set(float64(left))
	var faults []error
	note := func(err error) {
		if err != nil && len(faults) < maxFaults {
			faults = append(faults, err)
		}
	}
	for _, name := range c.options.Devices.Rules() {
		if _, ok := wanted[name]; !ok && strings.HasPrefix(name, prefix) {
			note(c.remove(ctx, name, referenceTo(name, "")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		note(c.ensure(ctx, new(wanted[name]), referenceTo(name, "")))
	}
	return errors.Join(faults...)
}

// wantedForPublished returns the rules by name, and how many there should be beyond
// them.
func (c *Controller) wantedForPublished(needs Needs) (map[string]twin, int) {
	wanted, left := map[string]twin{}, 0
	if !needs.some() {
		return wanted, 0
	}
	for _, p := range c.options.Devices.PublishedEvicting() {
		if !needs.pair(&p.Taint) {
			continue
		}
		t := twinOfPublished(&p)
		if _, twice := wanted[t.name]; twice {
			continue
		}
		if len(wanted) == maxPublished {
			left++
			continue
		}
		wanted[t.name] = t
	}
	return wanted, left
}

// ensure has the twin be there as it is to be. What is known of it decides whether to
// ask; what is asked decides what is written.
func (c *Controller) ensure(ctx context.Context, wanted *twin, about *corev1.ObjectReference) error {
	known, ok := c.options.Devices.Rule(wanted.name)
	if ok && c.settled(&known, wanted) {
		return nil
	}
	stored, err := c.options.Client.Get(ctx, wanted.name)
	if apierrors.IsNotFound(err) {
		delete(c.settlements, wanted.name)
		if err := c.options.Client.Create(ctx, wanted.object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create rule %s: %w", wanted.name, err)
		}
		c.told(ctx, operationCreate, about, wanted)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", wanted.name, err)
	}
	same := wanted.same(new(tracker.RuleOf(stored)))
	ours := c.ours(stored, wanted, same)
	switch {
	case !ours && same:
		c.settle(stored, wanted, false) // It does what ours would.
		return nil
	case !ours:
		c.blocked(ctx, stored, wanted, about)
		return nil
	case same && wanted.complete(stored):
		c.settle(stored, wanted, true)
		return nil
	}
	// Where the owner was replaced under its name, the twin would go with the old one.
	if err := c.options.Client.Update(ctx, stored, wanted.object); err != nil {
		return fmt.Errorf("update rule %s: %w", wanted.name, err)
	}
	c.told(ctx, operationUpdate, about, wanted)
	return nil
}

// remove deletes a twin that is known and was made here.
func (c *Controller) remove(ctx context.Context, name string, about *corev1.ObjectReference) error {
	if _, ok := c.options.Devices.Rule(name); !ok {
		delete(c.settlements, name)
		return nil
	}
	stored, err := c.options.Client.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		delete(c.settlements, name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", name, err)
	}
	if _, ours := OwnerOf(stored); !ours {
		return nil
	}
	return c.delete(ctx, stored, about, "no claim is given a toleration that ends any more")
}

// orphan deletes a twin whose rule is gone. The garbage collector would, but where a
// TaintPolicy governs the key it may not.
func (c *Controller) orphan(ctx context.Context, name string) error {
	if _, ok := c.options.Devices.Rule(name); !ok {
		delete(c.settlements, name)
		return nil
	}
	if _, ok := c.options.Devices.Rule(strings.TrimSuffix(name, suffix)); ok {
		return nil // A look at that one sees to it.
	}
	stored, err := c.options.Client.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		delete(c.settlements, name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", name, err)
	}
	owner, ok := OwnerOf(stored)
	if !ok || owner.Kind != KindRule {
		return nil
	}
	// What is known may lag behind.
	live, err := c.options.Client.Get(ctx, owner.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read rule %s: %w", owner.Name, err)
	}
	if err == nil && live.UID == owner.UID {
		return nil
	}
	return c.delete(ctx, stored, referenceTo(name, stored.UID), "the rule that it was made for is gone")
}

// delete deletes a twin that was made here.
func (c *Controller) delete(ctx context.Context, stored *resourcev1.DeviceTaintRule, about *corev1.ObjectReference, why string) error {
	err := c.options.Client.Delete(ctx, stored)
	if apierrors.IsNotFound(err) {
		delete(c.settlements, stored.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete rule %s: %w", stored.Name, err)
	}
	delete(c.settlements, stored.Name)
	words := sentence(&stored.Spec.Taint)
	c.options.Metrics.writes.WithLabelValues(operationDelete).Inc()
	c.options.Recorder.Eventf(about, corev1.EventTypeNormal, "NoSchedulePairRemoved", "Removed the rule %s (%s): %s", stored.Name, words, why)
	logr.FromContextOrDiscard(ctx).Info("removed a NoSchedule pair", "rule", about.Name, "pair", stored.Name, "taint", words, "reason", why)
	return nil
}

func referenceTo(rule string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: KindRule, Name: rule, UID: uid}
}

// told says what was written.
func (c *Controller) told(ctx context.Context, operation string, about *corev1.ObjectReference, t *twin) {
	words := sentence(&t.taint)
	c.options.Metrics.writes.WithLabelValues(operation).Inc()
	c.options.Recorder.Eventf(about, corev1.EventTypeNormal, "NoSchedulePaired",
		"The rule %s (%s) keeps pods from coming back that tolerate the taint for a while", t.name, words)
	logr.FromContextOrDiscard(ctx).Info("paired a taint of devices with NoSchedule", "rule", about.Name, "operation", operation, "pair", t.name, "taint", words)
}

func sentence(taint *resourcev1.DeviceTaint) string {
	return tracker.Taint{Key: taint.Key, Value: taint.Value, Effect: corev1.TaintEffect(taint.Effect)}.String()
}
