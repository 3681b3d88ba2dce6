package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// unavailableError is why there is no preview. Its text is for a write that has a limit, which
// cannot be decided then.
type unavailableError struct {
	// warning stands in for the preview: no warning would read as no pod.
	warning string
	text    string
	cause   error
}

func (e *unavailableError) Error() string {
	return "a TaintPolicy limits how many pods the taint may affect, and " + e.text
}

func (e *unavailableError) Unwrap() error { return e.cause }

var (
	errPodsUnread = &unavailableError{
		warning: "the preview is not complete yet: not all pods have been read, so it is not known how many this evicts",
		text:    "they have not been read yet",
	}
	errDevicesUnread = &unavailableError{
		warning: "the preview is not complete yet: not all devices have been read, so it is not known how many pods this evicts",
		text:    "not all devices have been read yet",
	}
	errDevicesTimeout = &unavailableError{
		warning: "it is not known how many pods this evicts: there was no time to ask all devices; name a driver or a pool in spec.devices.filter",
		text:    "there was no time to ask all devices: name a driver or a pool in spec.devices.filter",
	}
)

// unfollowed is why there never is a preview of the taints of a kind of object.
func unfollowed(kind tracker.SourceKind) *unavailableError {
	why := "taints of nodes are not followed, because the feature gate NodeTaintEviction is off"
	if kind.OnDevice() {
		why = "taints of devices are not followed, because the feature gate DeviceTaintEviction is off"
	}
	return &unavailableError{
		warning: "it is not known how many pods this evicts: " + why,
		text:    "that cannot be known: " + why,
		cause:   ErrUnfollowed,
	}
}

// unavailable returns why there is no preview; nil where err is something else.
func unavailable(kind tracker.SourceKind, err error) *unavailableError {
	switch {
	case errors.Is(err, preview.ErrUnread):
		return errPodsUnread
	case errors.Is(err, preview.ErrUnfollowed):
		return unfollowed(kind)
	}
	found, _ := errors.AsType[*unavailableError](err)
	return found
}

// Preview finds the pods that the write of a taint evicts, and refuses it where these are
// more than a TaintPolicy allows. The nil Preview, where pods are not followed, warns
// of nothing and fails where a limit would have to be looked at.
type Preview struct {
	View *preview.View
	// Limits holds the evictions against the limits of TaintPolicies.
	Limits *preview.Limits
	// Selection says which devices patches are meant for. Required where taints of devices
	// are followed: without it there is no preview of patches by class or expressions.
	Selection PatchSelection
	// Observe says that Tollgate is in eviction mode Observe.
	Observe bool
	// Off are the feature gates that are off for kinds of taints: they are as if they were
	// not there.
	Off map[tracker.SourceKind]string
	// Clock tells the time of the API server.
	Clock   clock.PassiveClock
	Metrics *PreviewMetrics
}

// poolOfOthers reports whether a slice is written into a pool of another node, as far as slices
// are followed.
func (p *Preview) poolOfOthers(slice *tracker.Slice) bool {
	return p != nil && p.View.Tracker.PoolOfOthers(slice)
}

// PatchSelection says which devices ResourceSlicePatches are meant for, by their published
// state. It serves patches with a class or expressions: names are looked at here.
type PatchSelection interface {
	// Selected returns the devices that a patch is meant for; false while not all devices
	// and classes are known. The patch need not be one that is stored, and one that is on
	// its way out need not be valid: that is meant for none. It must be safe for concurrent
	// use, and is asked while a request waits. A device may stand there twice.
	Selected(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) (devices []device.ID, known bool)
}

// previewed is the result of a preview.
type previewed struct {
	// Verdict takes whether the request is allowed, so that a write which is refused does not
	// count against others, and an approval is counted where it was of use.
	preview.Verdict

	warnings []string
}

// look returns the changes of a write for pods.
type look func(now time.Time) ([]tracker.Change, error)

// node previews the write of a node's taints, which were old.
func (p *Preview) node(ctx context.Context, r request, in taint.Input, name string, old, current []corev1.Taint) (previewed, error) {
	if !evictsAnew(old, current) {
		return previewed{}, nil
	}
	return p.see(ctx, r, tracker.Source{Kind: tracker.SourceNode, Name: name}, in, func(now time.Time) ([]tracker.Change, error) {
		return p.View.Node(tracker.Node{Name: name, Taints: old}, tracker.Node{Name: name, Taints: current}, now)
	})
}

// evictsAnew reports whether current has a NoExecute taint that is not in old as it
// stands. A node may have many taints, so it does not compare each with each.
func evictsAnew(old, current []corev1.Taint) bool {
	before := make(map[string]bool, len(old))
	for _, taint := range old {
		if taint.Effect == corev1.TaintEffectNoExecute {
			before[taint.String()] = true
		}
	}
	return slices.ContainsFunc(current, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && !before[taint.String()]
	})
}

// rule previews the write of a DeviceTaintRule, which was old; nil when it is created. No pod is
// evicted by the end of a rule. Of a rule with the effect None it says what NoExecute would do.
func (p *Preview) rule(ctx context.Context, r request, in taint.Input, old, current *resourcev1.DeviceTaintRuleSpec) (previewed, error) {
	if current == nil || old != nil && equality.Semantic.DeepEqual(old, current) {
		return previewed{}, nil
	}
	name := r.writtenName()
	look := func(now time.Time) ([]tracker.Change, error) {
		return p.View.Rule(ruleOf(name, old), *ruleOf(name, current), now)
	}
	switch current.Taint.Effect {
	case resourcev1.DeviceTaintEffectNone:
		evicting := *current
		evicting.Taint.Effect, evicting.Taint.TimeAdded = resourcev1.DeviceTaintEffectNoExecute, nil
		current = &evicting
		return p.none(tracker.SourceRule, "it", look), nil
	case resourcev1.DeviceTaintEffectNoExecute:
		return p.see(ctx, r, tracker.Source{Kind: tracker.SourceRule, Name: name}, in, look)
	case resourcev1.DeviceTaintEffectNoSchedule:
	}
	return previewed{}, nil
}

// writtenName returns the name of the object that is written. Where it is still to be generated, it
// is one that nothing can have.
func (r request) writtenName() string {
	if r.Name != "" {
		return r.Name
	}
	return cmp.Or(r.Text(r.New, "metadata", "name"), unnamed)
}

// unnamed is no valid name.
const unnamed = "-"

// none previews a write with the effect None as if it had the effect NoExecute.
func (p *Preview) none(kind tracker.SourceKind, carrier string, look look) previewed {
	if p == nil {
		return previewed{}
	}
	if off := p.off(kind); off != "" {
		return previewed{warnings: []string{off}}
	}
	now := p.Clock.Now()
	changes, err := look(now)
	if reason := unavailable(kind, err); reason != nil {
		return previewed{warnings: []string{reason.warning}}
	}
	f := p.View.Forecast(now, changes)
	if text := f.If(); text != "" {
		return previewed{warnings: []string{"with the effect NoExecute " + carrier + " " + text}}
	}
	return previewed{}
}

// ruleOf returns a rule with that name and spec, nil for none.
func ruleOf(name string, spec *resourcev1.DeviceTaintRuleSpec) *tracker.Rule {
	if spec == nil {
		return nil
	}
	rule := &resourcev1.DeviceTaintRule{Spec: *spec}
	rule.Name = name
	return new(tracker.RuleOf(rule))
}

// slice previews the write of a ResourceSlice, which was old.
func (p *Preview) slice(ctx context.Context, r request, in taint.Input, old, current *slice) (previewed, error) {
	if !tainted(current.devices) {
		return previewed{}, nil
	}
	return p.see(ctx, r, tracker.Source{Kind: tracker.SourceSlice, Name: r.Name}, in, func(now time.Time) ([]tracker.Change, error) {
		return p.View.Slice(*old.published(r.Name), *current.published(r.Name), now)
	})
}

// tainted reports whether any device has a NoExecute taint.
func tainted(list []validation.Device) bool {
	for _, device := range list {
		for _, taint := range device.Taints {
			if taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
				return true
			}
		}
	}
	return false
}

// registration previews the evictions of a TaintPolicy from existing nodes.
func (p *Preview) registration(object *v1alpha1.TaintPolicy) []string {
	if p == nil || !keepsEvicting(object) {
		return nil
	}
	set := taint.Compile([]v1alpha1.TaintPolicy{*object})
	now := p.Clock.Now()
	changes, err := p.View.Nodes(set.Kept, now)
	if reason := unavailable(tracker.SourceNode, err); reason != nil {
		return []string{reason.warning}
	}
	f := p.View.Forecast(now, changes)
	p.Metrics.observe(sourcePolicy, &f)
	if text := f.String(); text != "" {
		return []string{text}
	}
	return nil
}

// keepsEvicting reports whether the policy puts NoExecute taints on existing nodes.
func keepsEvicting(object *v1alpha1.TaintPolicy) bool {
	for _, registration := range object.Spec.Register {
		for _, taint := range registration.Taints {
			if registration.Reconcile && taint.Effect == corev1.TaintEffectNoExecute {
				return true
			}
		}
	}
	return false
}

// see previews a write that has a NoExecute taint.
func (p *Preview) see(ctx context.Context, r request, carrier tracker.Source, in taint.Input, look look) (previewed, error) {
	w := &preview.Write{
		Carrier: carrier, Set: r.policies.Taints, Input: in, DryRun: ptr.Deref(r.DryRun, false), Unproven: r.Unproven,
	}
	if p == nil {
		return previewed{}, w.Fault(ctx, unfollowed(carrier.Kind))
	}
	now := p.Clock.Now()
	changes, err := look(now)
	if reason := unavailable(carrier.Kind, err); reason != nil {
		return previewed{warnings: []string{reason.warning}}, w.Fault(ctx, reason)
	}
	if err != nil {
		return previewed{}, fmt.Errorf("foretell what happens to pods: %w", err)
	}
	f := p.View.Forecast(now, changes)
	p.Metrics.observe(string(carrier.Kind), &f)
	verdict, err := p.Limits.Judge(ctx, w, changes, now)
	if err != nil {
		return previewed{}, err
	}
	seen := previewed{verdict, verdict.Beyond}
	if text := p.sentence(carrier, &f); text != "" {
		seen.warnings = append([]string{text}, seen.warnings...)
	}
	return seen, nil
}

// askingTime is how long devices are asked about: the rest of a review's time is for the
// answer.
const askingTime = time.Second

// patch previews the write of a ResourceSlicePatch; the end of one writes no taint. Of one whose
// taints evict no pod it says what those with the effect None would do.
func (p *Preview) patch(ctx context.Context, r request, in taint.Input, w *patchWrite) (previewed, error) {
	if writes(in.Writes, resourcev1.DeviceTaintEffectNoExecute) {
		return p.see(ctx, r, tracker.Source{Kind: tracker.SourcePatch, Name: w.name}, in, func(now time.Time) ([]tracker.Change, error) {
			return p.patched(ctx, w, w.dated(now), now)
		})
	}
	evicts := func(t v1alpha1.PatchedTaint) bool { return t.Effect == resourcev1.DeviceTaintEffectNoExecute }
	if !writes(in.Writes, resourcev1.DeviceTaintEffectNone) || slices.ContainsFunc(w.now.Spec.Devices.Taints, evicts) {
		return previewed{}, nil
	}
	return p.none(tracker.SourcePatch, patchNamed(w.name), func(now time.Time) ([]tracker.Change, error) {
		var evicting []resourcev1.DeviceTaint
		for _, taint := range patchedTaints(w.now).Taints {
			if taint.Effect == resourcev1.DeviceTaintEffectNone {
				taint.Effect, taint.TimeAdded = resourcev1.DeviceTaintEffectNoExecute, nil
				evicting = append(evicting, taint)
			}
		}
		return p.patched(ctx, w, evicting, now)
	}), nil
}

// writes reports whether a taint with that effect comes, or changes.
func writes(list []taint.Write, effect resourcev1.DeviceTaintEffect) bool {
	return slices.ContainsFunc(list, func(w taint.Write) bool {
		return w.Operation != v1alpha1.TaintRemove && w.New.Effect == corev1.TaintEffect(effect)
	})
}

// patched returns the changes for pods if the patch that is written had taints.
func (p *Preview) patched(ctx context.Context, w *patchWrite, taints []resourcev1.DeviceTaint, now time.Time) ([]tracker.Change, error) {
	patched := tracker.PatchedTaints{Patch: tracker.PatchRef{Name: w.name, UID: w.now.UID}, Taints: taints}
	filter := w.now.Spec.Devices.Filter
	if !slicepatch.Conditional(filter) {
		names := slicepatch.NamesOf(filter)
		selector, _ := device.SelectorOf(&names)
		patched.Selectors = []device.Selector{selector}
		return p.View.Patch(patched, now)
	}
	switch {
	case p.Selection == nil && p.off(tracker.SourcePatch) != "":
		return nil, &unavailableError{
			warning: p.off(tracker.SourcePatch),
			text:    "the devices of ResourceSlicePatches by class or expressions are not known while their feature gate is off",
		}
	case p.Selection == nil:
		return nil, preview.ErrUnfollowed
	}
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	devices, known := p.Selection.Selected(ctx, w.now)
	switch {
	case !known && ctx.Err() != nil:
		return nil, errDevicesTimeout
	case !known:
		return nil, errDevicesUnread
	}
	patched.Selectors = make([]device.Selector, 0, len(devices))
	for _, id := range devices {
		selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: &id.Driver, Pool: &id.Pool, Device: &id.Name})
		patched.Selectors = append(patched.Selectors, selector)
	}
	return p.View.Patch(patched, now)
}

// dated returns the taints of the patch that is written with the times from which they
// count: those of the spec, else those that the status of the patch has had for their key
// and effect, else now.
func (w *patchWrite) dated(now time.Time) []resourcev1.DeviceTaint {
	taints := patchedTaints(w.now).Taints
	patch := *w.now
	patch.Status = cmp.Or(w.old, &v1alpha1.ResourceSlicePatch{}).Status
	for i := range taints {
		t := &taints[i]
		if t.TimeAdded.IsZero() {
			t.TimeAdded = slicepatch.Since(&patch, &v1alpha1.PatchedTaint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
		if t.TimeAdded.IsZero() {
			t.TimeAdded = new(metav1.NewTime(now.Truncate(time.Second)))
		}
	}
	return taints
}

// patchNamed returns how sentences call a patch.
func patchNamed(name string) string {
	if name == unnamed {
		return "the ResourceSlicePatch"
	}
	return "ResourceSlicePatch " + review.Clip(name)
}

// off says that taints of a kind are as if they were not there; nothing where they are.
func (p *Preview) off(kind tracker.SourceKind) string {
	gate := p.Off[kind]
	if gate == "" {
		return ""
	}
	return "the feature gate " + gate + " is off: the taint has no effect until it is on"
}

// sentence describes the evictions of a write; empty for none. In mode Observe a
// NoExecute taint of a patch is written out as one that does not evict: then the sentence is
// about another mode, as it is while a feature gate is off.
func (p *Preview) sentence(source tracker.Source, f *preview.Forecast) string {
	text, off, carrier := f.String(), p.off(source.Kind), "it"
	if source.Kind == tracker.SourcePatch {
		carrier = patchNamed(source.Name)
	}
	switch {
	case off != "" && f.If() != "":
		return off + "; then " + carrier + " " + f.If()
	case off != "":
		return off
	case text == "" || source.Kind != tracker.SourcePatch:
		return text
	case p.Observe:
		return "in eviction mode Observe nobody is evicted for a ResourceSlicePatch; in another, " + carrier + " " + f.If()
	default:
		return carrier + " " + text
	}
}
