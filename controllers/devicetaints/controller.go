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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// policiesPause is how long a key waits until the policies are loaded.
	policiesPause = time.Second
	// publishedPause is the delay between two attempts for published taints.
	publishedPause = 5 * time.Second
	// recheck is the delay until a rule that has a paired rule, or cannot have one, is
	// checked again.
	recheck = 10 * time.Minute
	// maxPublished caps the rules for published taints. Every scheduler watches each of
	// them.
	maxPublished = 1000
	// maxFaults caps the errors that one attempt for published taints returns.
	maxFaults = 3
)

// Metrics counts the writes of paired rules and the taints without one.
type Metrics struct {
	writes *prometheus.CounterVec
	left   prometheus.Gauge
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		writes: controller.NewCounter(reg, "tollgate_noschedule_pair_writes_total",
			"Writes of DeviceTaintRules with NoSchedule taints, so that pods whose toleration ends do not return to a device, by operation.",
			"operation", OperationCreate, OperationUpdate, OperationDelete),
		left: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "tollgate_noschedule_unpaired_devices",
			Help: "Taints with the effect NoExecute, published by drivers, that have no paired NoSchedule taint because there are too many of them.",
		}),
	}
}

// Options configures a Controller. All fields but Window are required.
type Options struct {
	// Devices reads rules and published taints. The component that updates it must call
	// RuleChanged.
	Devices *tracker.Tracker
	// Synced reports whether Devices has all rules and slices: the controller would treat
	// a missing one as deleted.
	Synced func() bool
	// Client writes rules.
	Client Rules
	// Window is true in mode Window.
	Window  bool
	Metrics *Metrics
}

// Controller creates, updates and deletes paired rules.
type Controller struct {
	*controller.Controller[string]
	Options

	// readResults are by the names of paired rules. Only the single worker uses them.
	readResults map[string]readResult
}

// allPublished is the key of all published taints. Every other key is the name of a rule.
const allPublished = ""

func describe(key string) string {
	if key == allPublished {
		return "all ResourceSlices"
	}
	return "DeviceTaintRule/" + key
}

// readResult is the result of the last read of a paired rule from the API server. The
// tracker does not have the owners of rules.
type readResult struct {
	// found is the UID of the rule that was read, and owner that of the wanted owner.
	found, owner types.UID
	// managed is true for a rule of this controller, and blocked for a conflicting rule of
	// another writer.
	managed, blocked bool
	// until is the time of the next read: the tracker misses changes of labels and owners.
	until time.Time
}

// is reports whether the result is that of a rule with a UID and the wanted owner.
func (r readResult) is(uid types.UID, wanted *pairedRule) bool {
	return r.found == uid && r.owner == wanted.owner.UID
}

// New returns a controller; Start starts it.
func New(base controller.Base, options Options) *Controller {
	c := &Controller{Options: options, readResults: map[string]readResult{}}
	c.Controller = controller.New(base, controller.Options[string]{
		Name: "tollgate-pairing", Describe: describe, Reconcile: c.reconcile,
		Started: func() {
			clear(c.readResults)
			c.addAll()
		},
		PoliciesChanged: func(context.Context) { c.addAll() },
	})
	return c
}

// RuleChanged queues a rule that was created, changed or deleted, and the rule that it may
// be paired with. It does not block.
func (c *Controller) RuleChanged(name string) {
	c.Add(name)
	if paired, ok := strings.CutSuffix(name, suffix); ok {
		c.Add(paired)
	}
}

func (c *Controller) addAll() {
	c.Add(allPublished)
	for _, name := range c.Devices.Rules() {
		// The name may be that of a paired rule whose owner is gone.
		c.RuleChanged(name)
	}
}

// reconcile reconciles the paired rule of one rule, or the rules for all published taints.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	current := c.Policies.Current()
	if current == nil || !c.Synced() {
		return policiesPause, nil
	}
	needs := NeedsOf(current, c.Window)
	if name == allPublished {
		return publishedPause, c.published(ctx, needs)
	}
	rule, ok := c.Devices.Rule(name)
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
	// A rule that only Tollgate's evictor treats as NoExecute is NoSchedule for the
	// scheduler.
	if !rule.Selects || !needs.includes(new(rule.NativeTaint())) {
		return 0, c.remove(ctx, wanted.name, wanted.about)
	}
	return recheck, c.ensure(ctx, &wanted)
}

// published reconciles the rules for published taints. A failed write does not stop the
// others.
func (c *Controller) published(ctx context.Context, needs Needs) error {
	wanted, left := map[string]pairedRule{}, 0
	if needs.any() {
		for _, p := range c.Devices.PublishedEvicting() {
			if !needs.includes(&p.Taint) {
				continue
			}
			rule := pairedRuleForPublished(&p)
			if _, twice := wanted[rule.name]; twice {
				continue
			}
			if len(wanted) == maxPublished {
				left++
				continue
			}
			wanted[rule.name] = rule
		}
	}
	c.Metrics.left.Set(float64(left))
	var faults []error
	for _, name := range c.Devices.Rules() {
		if _, ok := wanted[name]; !ok && strings.HasPrefix(name, prefix) {
			faults = append(faults, c.remove(ctx, name, referenceTo(name, "")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		faults = append(faults, c.ensure(ctx, new(wanted[name])))
	}
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	return errors.Join(faults[:min(len(faults), maxFaults)]...)
}

// read reads a rule from the API server. It returns nil, and forgets the last result, if
// the rule does not exist.
func (c *Controller) read(ctx context.Context, name string) (*resourcev1.DeviceTaintRule, error) {
	stored, err := c.Client.Get(ctx, name)
	if err == nil {
		return stored, nil
	}
	if apierrors.IsNotFound(err) {
		delete(c.readResults, name)
	}
	return nil, client.IgnoreNotFound(fmt.Errorf("read rule %s: %w", name, err))
}

// readTracked is read for a rule that is tracked.
func (c *Controller) readTracked(ctx context.Context, name string) (*resourcev1.DeviceTaintRule, error) {
	if _, ok := c.Devices.Rule(name); !ok {
		delete(c.readResults, name)
		return nil, nil //nolint:nilnil // A missing rule is no error.
	}
	return c.read(ctx, name)
}

// ensure creates or updates a paired rule. The tracked rule decides whether to read the
// stored one, and the stored rule decides what to write.
func (c *Controller) ensure(ctx context.Context, wanted *pairedRule) error {
	last := c.readResults[wanted.name]
	tracked, ok := c.Devices.Rule(wanted.name)
	if ok && last.is(tracked.UID, wanted) && c.Local.Now().Before(last.until) && (last.blocked || wanted.matches(&tracked)) {
		return nil
	}
	stored, err := c.read(ctx, wanted.name)
	if err != nil {
		return err
	}
	if stored == nil {
		err := c.Client.Create(ctx, wanted.object)
		return c.finish(ctx, OperationCreate, wanted, client.IgnoreAlreadyExists(err))
	}
	return c.correct(ctx, stored, last, wanted)
}

// correct updates a stored rule of this controller that differs from the wanted one, and
// reports a conflicting rule of another writer. A matching rule of another writer suffices.
func (c *Controller) correct(ctx context.Context, stored *resourcev1.DeviceTaintRule, last readResult, wanted *pairedRule) error {
	// A rule that this controller created stays managed while it matches, even without its
	// label or owner.
	matches := wanted.matches(new(tracker.RuleOf(stored)))
	owner, managed := OwnerOf(stored)
	if managed {
		managed = owner.Kind == wanted.owner.Kind
	} else {
		managed = matches && last.managed && last.found == stored.UID
	}
	if managed && (!matches || !wanted.hasMetadata(stored)) {
		// If the owner was recreated, the garbage collector would delete the paired rule
		// with the old owner.
		return c.finish(ctx, OperationUpdate, wanted, c.Client.Update(ctx, stored, wanted.object))
	}
	blocked := !managed && !matches
	c.readResults[wanted.name] = readResult{
		found: stored.UID, owner: wanted.owner.UID, managed: managed, blocked: blocked, until: c.Local.Now().Add(recheck),
	}
	if blocked && (!last.blocked || !last.is(stored.UID, wanted)) {
		c.Recorder.Eventf(wanted.about, corev1.EventTypeWarning, "NoSchedulePairBlocked",
			"Pods that tolerate the taint for a while can come back to the device again and again: the rule %s that keeps them away cannot be made, because there is one of that name", wanted.name)
		logr.FromContextOrDiscard(ctx).Info("cannot pair a taint of devices with NoSchedule: the name is taken", "rule", wanted.about.Name, "pair", wanted.name)
	}
	return nil
}

// remove deletes a paired rule that is tracked and managed by this controller.
func (c *Controller) remove(ctx context.Context, name string, about *corev1.ObjectReference) error {
	stored, err := c.readTracked(ctx, name)
	if err != nil || stored == nil {
		return err
	}
	if _, managed := OwnerOf(stored); !managed {
		return nil
	}
	return c.delete(ctx, stored, about, "no claim is given a toleration that ends any more")
}

// removeOrphan deletes a tracked paired rule whose owner is gone. Where a TaintPolicy
// governs the key, the garbage collector may not delete it.
func (c *Controller) removeOrphan(ctx context.Context, name string) error {
	if _, ok := c.Devices.Rule(strings.TrimSuffix(name, suffix)); ok {
		return nil // The attempt for the owner decides.
	}
	stored, err := c.readTracked(ctx, name)
	if err != nil || stored == nil {
		return err
	}
	owner, ok := OwnerOf(stored)
	if !ok || owner.Kind != KindRule {
		return nil
	}
	// The tracker may lag behind.
	live, err := c.read(ctx, owner.Name)
	if err != nil || live != nil && live.UID == owner.UID {
		return err
	}
	return c.delete(ctx, stored, referenceTo(name, stored.UID), "the rule that it was made for is gone")
}

// delete deletes a paired rule and reports it.
func (c *Controller) delete(ctx context.Context, stored *resourcev1.DeviceTaintRule, about *corev1.ObjectReference, why string) error {
	err := c.Client.Delete(ctx, stored)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete rule %s: %w", stored.Name, err)
	}
	delete(c.readResults, stored.Name)
	if err != nil {
		return nil //nolint:nilerr // Another client has deleted it.
	}
	text := taintText(&stored.Spec.Taint)
	c.Metrics.writes.WithLabelValues(OperationDelete).Inc()
	c.Recorder.Eventf(about, corev1.EventTypeNormal, "NoSchedulePairRemoved", "Removed the rule %s (%s): %s", stored.Name, text, why)
	logr.FromContextOrDiscard(ctx).Info("removed a NoSchedule pair", "rule", about.Name, "pair", stored.Name, "taint", text, "reason", why)
	return nil
}

// finish counts a write that succeeded, and records it in an event and in the log.
func (c *Controller) finish(ctx context.Context, operation string, t *pairedRule, err error) error {
	if err != nil {
		return fmt.Errorf("%s rule %s: %w", operation, t.name, err)
	}
	text := taintText(&t.taint)
	c.Metrics.writes.WithLabelValues(operation).Inc()
	c.Recorder.Eventf(t.about, corev1.EventTypeNormal, "NoSchedulePaired",
		"The rule %s (%s) keeps pods from coming back that tolerate the taint for a while", t.name, text)
	logr.FromContextOrDiscard(ctx).Info("paired a taint of devices with NoSchedule", "rule", t.about.Name, "operation", operation, "pair", t.name, "taint", text)
	return nil
}

func referenceTo(rule string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: KindRule, Name: rule, UID: uid}
}

func taintText(taint *resourcev1.DeviceTaint) string {
	return tracker.Taint{Key: taint.Key, Value: taint.Value, Effect: corev1.TaintEffect(taint.Effect)}.String()
}
