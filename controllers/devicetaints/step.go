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

// maxPublished caps the rules for published taints. Every scheduler watches each of them.
const maxPublished = 1000

// maxFaults caps the errors that one step for published taints returns.
const maxFaults = 3

// step reconciles the paired rule of one rule, or the rules for all published taints.
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

// rule reconciles the paired rule of one rule, and deletes that of a missing rule.
func (c *Controller) rule(ctx context.Context, needs Needs, name string) (time.Duration, error) {
	rule, ok := c.options.Devices.Rule(name)
	if !ok {
		delete(c.readResults, name)
		return 0, c.removeOrphan(ctx, pairedName(name))
	}
	if strings.HasSuffix(name, suffix) {
		if err := c.removeOrphan(ctx, name); err != nil {
			return 0, err
		}
	}
	wanted := pairedRuleOf(&rule)
	reference := referenceTo(name, rule.UID)
	// A rule that only Tollgate's evictor treats as NoExecute is NoSchedule for the
	// scheduler.
	if !rule.Selects || !needs.includes(new(rule.NativeTaint())) {
		return 0, c.remove(ctx, wanted.name, reference)
	}
	return recheck, c.ensure(ctx, &wanted, reference)
}

// published reconciles the rules for published taints. A failed write does not stop the
// others.
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

// wantedForPublished returns the desired rules by name, and the number beyond
// maxPublished.
func (c *Controller) wantedForPublished(needs Needs) (map[string]pairedRule, int) {
	wanted, left := map[string]pairedRule{}, 0
	if !needs.any() {
		return wanted, 0
	}
	for _, p := range c.options.Devices.PublishedEvicting() {
		if !needs.includes(&p.Taint) {
			continue
		}
		t := pairedRuleForPublished(&p)
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

// ensure creates or updates a paired rule. The tracked rule decides whether to read the
// stored one, and the stored rule decides what to write.
func (c *Controller) ensure(ctx context.Context, wanted *pairedRule, about *corev1.ObjectReference) error {
	tracked, ok := c.options.Devices.Rule(wanted.name)
	if ok && c.upToDate(&tracked, wanted) {
		return nil
	}
	stored, err := c.options.Client.Get(ctx, wanted.name)
	if apierrors.IsNotFound(err) {
		delete(c.readResults, wanted.name)
		if err := c.options.Client.Create(ctx, wanted.object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create rule %s: %w", wanted.name, err)
		}
		c.report(ctx, operationCreate, about, wanted)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", wanted.name, err)
	}
	matches := wanted.matches(new(tracker.RuleOf(stored)))
	managed := c.isManaged(stored, wanted, matches)
	switch {
	case !managed && matches:
		c.recordMatch(stored, wanted, false) // A matching rule of another writer suffices.
		return nil
	case !managed:
		c.reportConflict(ctx, stored, wanted, about)
		return nil
	case matches && wanted.hasMetadata(stored):
		c.recordMatch(stored, wanted, true)
		return nil
	}
	// If the owner was recreated, the garbage collector would delete the paired rule with
	// the old owner.
	if err := c.options.Client.Update(ctx, stored, wanted.object); err != nil {
		return fmt.Errorf("update rule %s: %w", wanted.name, err)
	}
	c.report(ctx, operationUpdate, about, wanted)
	return nil
}

// remove deletes a paired rule that is tracked and managed by this controller.
func (c *Controller) remove(ctx context.Context, name string, about *corev1.ObjectReference) error {
	if _, ok := c.options.Devices.Rule(name); !ok {
		delete(c.readResults, name)
		return nil
	}
	stored, err := c.options.Client.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		delete(c.readResults, name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", name, err)
	}
	if _, managed := OwnerOf(stored); !managed {
		return nil
	}
	return c.delete(ctx, stored, about, "no claim is given a toleration that ends any more")
}

// removeOrphan deletes a paired rule whose owner is gone. Where a TaintPolicy governs the
// key, the garbage collector may not delete it.
func (c *Controller) removeOrphan(ctx context.Context, name string) error {
	if _, ok := c.options.Devices.Rule(name); !ok {
		delete(c.readResults, name)
		return nil
	}
	if _, ok := c.options.Devices.Rule(strings.TrimSuffix(name, suffix)); ok {
		return nil // The step for the owner decides.
	}
	stored, err := c.options.Client.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		delete(c.readResults, name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", name, err)
	}
	owner, ok := OwnerOf(stored)
	if !ok || owner.Kind != KindRule {
		return nil
	}
	// The tracker may lag behind.
	live, err := c.options.Client.Get(ctx, owner.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read rule %s: %w", owner.Name, err)
	}
	if err == nil && live.UID == owner.UID {
		return nil
	}
	return c.delete(ctx, stored, referenceTo(name, stored.UID), "the rule that it was made for is gone")
}

// delete deletes a paired rule and reports it.
func (c *Controller) delete(ctx context.Context, stored *resourcev1.DeviceTaintRule, about *corev1.ObjectReference, why string) error {
	err := c.options.Client.Delete(ctx, stored)
	if apierrors.IsNotFound(err) {
		delete(c.readResults, stored.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete rule %s: %w", stored.Name, err)
	}
	delete(c.readResults, stored.Name)
	text := taintText(&stored.Spec.Taint)
	c.options.Metrics.writes.WithLabelValues(operationDelete).Inc()
	c.options.Recorder.Eventf(about, corev1.EventTypeNormal, "NoSchedulePairRemoved", "Removed the rule %s (%s): %s", stored.Name, text, why)
	logr.FromContextOrDiscard(ctx).Info("removed a NoSchedule pair", "rule", about.Name, "pair", stored.Name, "taint", text, "reason", why)
	return nil
}

func referenceTo(rule string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: KindRule, Name: rule, UID: uid}
}

// report counts the write and records it in an event and in the log.
func (c *Controller) report(ctx context.Context, operation string, about *corev1.ObjectReference, t *pairedRule) {
	text := taintText(&t.taint)
	c.options.Metrics.writes.WithLabelValues(operation).Inc()
	c.options.Recorder.Eventf(about, corev1.EventTypeNormal, "NoSchedulePaired",
		"The rule %s (%s) keeps pods from coming back that tolerate the taint for a while", t.name, text)
	logr.FromContextOrDiscard(ctx).Info("paired a taint of devices with NoSchedule", "rule", about.Name, "operation", operation, "pair", t.name, "taint", text)
}

func taintText(taint *resourcev1.DeviceTaint) string {
	return tracker.Taint{Key: taint.Key, Value: taint.Value, Effect: corev1.TaintEffect(taint.Effect)}.String()
}
