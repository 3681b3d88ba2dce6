package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/tracker"
)

// unreadWarning stands in for a preview: no warning would read as no pod.
const unreadWarning = "the preview is not complete yet: not all pods have been read, so it is not known how many this evicts"

// unfollowed says why there is no preview, and never will be, of what is written to
// objects of a kind.
func unfollowed(kind tracker.SourceKind) string {
	if kind.OnDevice() {
		return "taints of devices are not followed, because the feature gate DeviceTaintEviction is off"
	}
	return "taints of nodes are not followed, because the feature gate NodeTaintEviction is off"
}

// errOff is why a patch that has a limit cannot be judged while what finds its devices is off.
var errOff = errors.New("a TaintPolicy limits how many pods the taint may affect, and the devices of ResourceSlicePatches by class or expressions are not known while their feature gate is off")

// unforetold returns the warning that stands in for a preview which failed, and why a
// write that has a limit cannot be judged then; neither where err is something else.
func unforetold(kind tracker.SourceKind, err error) (warning string, fault error) {
	switch {
	case errors.Is(err, preview.ErrUnread):
		return unreadWarning, errPodsUnread
	case errors.Is(err, preview.ErrUnfollowed):
		return "it is not known how many pods this evicts: " + unfollowed(kind), &unfollowedError{kind}
	case errors.Is(err, errUnlisted):
		return unlistedWarning, errDevicesUnread
	case errors.Is(err, errUnasked):
		return unaskedWarning, errDevicesUnasked
	default:
		return "", nil
	}
}

// errPodsUnread is why a write that has a limit cannot be judged yet.
var errPodsUnread = errors.New("a TaintPolicy limits how many pods the taint may affect, and they have not been read yet")

// unfollowedError is why a write that has a limit can never be judged.
type unfollowedError struct{ kind tracker.SourceKind }

func (e *unfollowedError) Error() string {
	return "a TaintPolicy limits how many pods the taint may affect, and that cannot be known: " + unfollowed(e.kind)
}

// Is has errors.Is find ErrUnfollowed.
func (e *unfollowedError) Is(target error) bool { return target == ErrUnfollowed }

// PreviewConfig is what a Preview looks at.
type PreviewConfig struct {
	View *preview.View
	// Limits judges what is foreseen.
	Limits *preview.Limits
	// Selection says which devices patches are meant for. Required where taints of devices
	// are followed: without it nothing is foretold of patches by class or expressions.
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

// Preview says what the writing of a taint does to pods, and refuses it where that is
// more than a TaintPolicy allows. The nil Preview, where pods are not followed, warns
// of nothing and fails where a limit would have to be looked at.
type Preview struct{ config PreviewConfig }

// NewPreview returns a preview.
func NewPreview(config PreviewConfig) *Preview { return &Preview{config: config} }

// poolOfOthers reports whether a slice is written into a pool of another node, as far as slices
// are followed.
func (p *Preview) poolOfOthers(slice *tracker.Slice) bool {
	return p != nil && p.config.View.PoolOfOthers(slice)
}

// previewed is what a preview has found.
type previewed struct {
	findings []policy.Finding
	warnings []string
	settled  func(allowed bool)
}

// settle says what became of the request, so that a write which is refused does not
// count against others, and an approval is counted where it was of use.
func (p previewed) settle(decision policy.Decision) {
	if p.settled != nil {
		p.settled(decision.Verdict == policy.Allowed)
	}
}

// look returns what a write changes for pods.
type look func(view *preview.View, now time.Time) ([]tracker.Change, error)

// node looks at the write of a node's taints, which were old.
func (p *Preview) node(ctx context.Context, req admission.Request, set *taint.Set, in taint.Input, name string, old, current []corev1.Taint) (previewed, error) {
	if !evictsAnew(old, current) {
		return previewed{}, nil
	}
	return p.see(ctx, writeOf(ctx, &req, tracker.SourceNode, name, set, in), func(view *preview.View, now time.Time) ([]tracker.Change, error) {
		return view.Node(tracker.Node{Name: name, Taints: old}, tracker.Node{Name: name, Taints: current}, now)
	})
}

// evictsAnew reports whether current has a NoExecute taint that is not in old as it
// stands.
func evictsAnew(old, current []corev1.Taint) bool {
	stood := make(map[taintAt]bool, len(old))
	for i := range old {
		stood[at(&old[i])] = true
	}
	return slices.ContainsFunc(current, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && !stood[at(&taint)]
	})
}

// taintAt is a taint with its time, so that equal taints are equal keys of a map: a node may
// have many taints, and comparing each with each would take the square of their number.
type taintAt struct {
	key, value string
	effect     corev1.TaintEffect
	timed      bool
	seconds    int64
	nanos      int
}

func at(taint *corev1.Taint) taintAt {
	t := taintAt{key: taint.Key, value: taint.Value, effect: taint.Effect, timed: taint.TimeAdded != nil}
	if t.timed {
		t.seconds, t.nanos = taint.TimeAdded.Unix(), taint.TimeAdded.Nanosecond()
	}
	return t
}

// rule looks at the write of a DeviceTaintRule, which was old; nil when it is created.
// Of a rule with the effect None it says what it would do.
func (p *Preview) rule(ctx context.Context, req admission.Request, set *taint.Set, in taint.Input, old, current *resourcev1.DeviceTaintRuleSpec) (previewed, error) {
	if old != nil && equality.Semantic.DeepEqual(old, current) {
		return previewed{}, nil
	}
	switch effect := current.Taint.Effect; {
	case effect == resourcev1.DeviceTaintEffectNone:
		return p.mereRule(writtenName(&req), old, current), nil
	case effect != resourcev1.DeviceTaintEffectNoExecute:
		return previewed{}, nil
	}
	name := writtenName(&req)
	return p.see(ctx, writeOf(ctx, &req, tracker.SourceRule, name, set, in), func(view *preview.View, now time.Time) ([]tracker.Change, error) {
		return view.Rule(ruleOf(name, old), *ruleOf(name, current), now)
	})
}

// writtenName returns the name of what is written. Where it is still to be generated, it
// is one that nothing can have.
func writtenName(req *admission.Request) string {
	var metadata, name json.RawMessage
	if req.Name != "" || findMembers(req.Object.Raw, member{"metadata", &metadata}) != nil ||
		findMembers(metadata, member{"name", &name}) != nil {
		return cmp.Or(req.Name, unnamed)
	}
	text, err := decodeString(name)
	if err != nil {
		return unnamed
	}
	return cmp.Or(text, unnamed)
}

// unnamed is no valid name.
const unnamed = "-"

// mereRule says what a rule with the effect None would do.
func (p *Preview) mereRule(name string, old, current *resourcev1.DeviceTaintRuleSpec) previewed {
	if p == nil {
		return previewed{}
	}
	if off := p.off(tracker.SourceRule); off != "" {
		return previewed{warnings: []string{off}}
	}
	evicting := *current.DeepCopy()
	evicting.Taint.Effect, evicting.Taint.TimeAdded = resourcev1.DeviceTaintEffectNoExecute, nil
	now := p.config.Clock.Now()
	changes, err := p.config.View.Rule(ruleOf(name, old), *ruleOf(name, &evicting), now)
	if err != nil {
		warning, _ := unforetold(tracker.SourceRule, err)
		return previewed{warnings: []string{warning}}
	}
	f := p.config.View.Forecast(now, changes)
	if text := f.If(); text != "" {
		return previewed{warnings: []string{"with the effect NoExecute it " + text}}
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

// slice looks at the write of a ResourceSlice, whose devices were old.
func (p *Preview) slice(ctx context.Context, req admission.Request, set *taint.Set, in taint.Input, old, current []validation.Device) (previewed, error) {
	if !tainted(current) {
		return previewed{}, nil
	}
	slice, err := sliceOf(req.Name, req.Object.Raw, current)
	if err != nil {
		return previewed{}, err
	}
	was := tracker.Slice{Name: req.Name}
	if !isNull(req.OldObject.Raw) {
		if was, err = sliceOf(req.Name, req.OldObject.Raw, old); err != nil {
			return previewed{}, err
		}
	}
	return p.see(ctx, writeOf(ctx, &req, tracker.SourceSlice, req.Name, set, in), func(view *preview.View, now time.Time) ([]tracker.Change, error) {
		return view.Slice(was, slice, now)
	})
}

// tainted reports whether any device has a NoExecute taint.
func tainted(list []validation.Device) bool {
	for i := range list {
		for j := range list[i].Taints {
			if list[i].Taints[j].Effect == resourcev1.DeviceTaintEffectNoExecute {
				return true
			}
		}
	}
	return false
}

// sliceOf returns a slice with those devices as the tracker has it.
func sliceOf(name string, raw []byte, list []validation.Device) (tracker.Slice, error) {
	var spec, driver, pool json.RawMessage
	var of struct {
		Name       string `json:"name"`
		Generation int64  `json:"generation"`
	}
	err := findMembers(raw, member{"spec", &spec})
	if err == nil {
		err = findMembers(spec, member{"driver", &driver}, member{"pool", &pool})
	}
	if err == nil {
		err = decodeField(pool, "spec.pool", &of)
	}
	slice := tracker.Slice{Name: name, Pool: of.Name, Generation: of.Generation, Devices: make([]tracker.Device, 0, len(list))}
	if err == nil {
		slice.Driver, err = decodeString(driver)
	}
	if err != nil {
		return tracker.Slice{}, &badReviewError{fmt.Errorf("decode ResourceSlice: %w", err)}
	}
	for i := range list {
		slice.Devices = append(slice.Devices, tracker.Device{Name: list[i].Name, Taints: list[i].Taints})
	}
	return slice, nil
}

// registration says what a TaintPolicy does at once to pods on nodes that there are.
func (p *Preview) registration(object *v1alpha1.TaintPolicy) []string {
	if p == nil || !keepsEvicting(object) {
		return nil
	}
	set := taint.Compile([]v1alpha1.TaintPolicy{*object})
	now := p.config.Clock.Now()
	changes, err := p.config.View.Nodes(set.Kept, now)
	if err != nil {
		warning, _ := unforetold(tracker.SourceNode, err)
		return []string{warning}
	}
	f := p.config.View.Forecast(now, changes)
	p.config.Metrics.observe(sourcePolicy, &f)
	if text := f.String(); text != "" {
		return []string{text}
	}
	return nil
}

// keepsEvicting reports whether the policy puts NoExecute taints on nodes that there
// are.
func keepsEvicting(object *v1alpha1.TaintPolicy) bool {
	for i := range object.Spec.Register {
		for _, taint := range object.Spec.Register[i].Taints {
			if object.Spec.Register[i].Reconcile && taint.Effect == corev1.TaintEffectNoExecute {
				return true
			}
		}
	}
	return false
}

// writeOf returns what is written, as limits see it.
func writeOf(ctx context.Context, req *admission.Request, kind tracker.SourceKind, name string, set *taint.Set, in taint.Input) *preview.Write {
	return &preview.Write{
		Carrier: tracker.Source{Kind: kind, Name: name}, Set: set, Input: in, DryRun: isDryRun(*req), Unproven: isFromStranger(ctx),
	}
}

// see looks at a write that has a NoExecute taint.
func (p *Preview) see(ctx context.Context, w *preview.Write, look look) (previewed, error) {
	if p == nil {
		return previewed{}, w.Fault(ctx, &unfollowedError{w.Carrier.Kind})
	}
	now := p.config.Clock.Now()
	changes, err := look(p.config.View, now)
	if errors.Is(err, errOff) {
		return previewed{warnings: []string{p.off(w.Carrier.Kind)}}, w.Fault(ctx, err)
	}
	if warning, fault := unforetold(w.Carrier.Kind, err); fault != nil {
		return previewed{warnings: []string{warning}}, w.Fault(ctx, fault)
	}
	if err != nil {
		return previewed{}, fmt.Errorf("foretell what happens to pods: %w", err)
	}
	f := p.config.View.Forecast(now, changes)
	p.config.Metrics.observe(string(w.Carrier.Kind), &f)
	verdict, err := p.config.Limits.Judge(ctx, w, changes, now)
	if err != nil {
		return previewed{}, err
	}
	seen := previewed{findings: verdict.Findings, warnings: verdict.Beyond, settled: verdict.Settle}
	if text := p.sentence(w.Carrier, &f); text != "" {
		seen.warnings = append([]string{text}, seen.warnings...)
	}
	return seen, nil
}

func isDryRun(req admission.Request) bool { return req.DryRun != nil && *req.DryRun }
