package devicetaints

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

const (
	// Label is on every paired rule; its value is the kind of owner.
	Label = "tollgate.dev/pair"
	// KindRule is the kind of owner of a paired rule, if that is no ResourceSlice.
	KindRule  = "DeviceTaintRule"
	kindSlice = "ResourceSlice"
	// The values of the label.
	ofRule   = "rule"
	ofDevice = "device"

	// suffix ends the name of the paired rule of a DeviceTaintRule.
	suffix = "-noschedule"
	// prefix begins the names of the rules for published taints.
	prefix = "tollgate-noschedule-"
	// hashBytes is the number of bytes of a hash in a name.
	hashBytes = 10
)

// pairedRule is a desired rule.
type pairedRule struct {
	name     string
	label    string
	owner    metav1.OwnerReference // without apiVersion for a DeviceTaintRule
	selector device.Selector
	taint    resourcev1.DeviceTaint
	// about is the object of events: the rule, or the desired rule itself for a published
	// taint.
	about *corev1.ObjectReference
}

// pairedRuleOf returns the paired rule of a rule.
func pairedRuleOf(rule *tracker.Rule) pairedRule {
	return pairedRule{
		name:     pairedName(rule.Name),
		label:    ofRule,
		owner:    metav1.OwnerReference{Kind: KindRule, Name: rule.Name, UID: rule.UID},
		selector: rule.Selector,
		taint:    placement.PairOf(new(rule.NativeTaint())),
		about:    referenceTo(rule.Name, rule.UID),
	}
}

// pairedName returns the name of the rule with suffix, unless that is too long.
func pairedName(rule string) string {
	if len(rule)+len(suffix) <= validation.DNS1123SubdomainMaxLength {
		return rule + suffix
	}
	return HashedName(rule, hashBytes, rule) + suffix
}

// HashedName returns a name that is cut if it is long, and ends with some bytes of a hash of
// parts, none of which contains a zero byte.
func HashedName(name string, bytes int, parts ...string) string {
	const kept = 200
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	// A truncated name must not end with '.' or '-' before the hash.
	return strings.TrimRight(name[:min(kept, len(name))], ".-") + "-" + hex.EncodeToString(sum[:bytes])
}

// pairedRuleForPublished returns the rule for a taint that a driver publishes.
func pairedRuleForPublished(p *tracker.Published) pairedRule {
	selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: &p.Device.Driver, Pool: &p.Device.Pool, Device: &p.Device.Name})
	name := HashedName(prefix, hashBytes, p.Device.Driver, p.Device.Pool, p.Device.Name, p.Taint.Key, p.Taint.Value)
	return pairedRule{
		name:  name,
		label: ofDevice,
		owner: metav1.OwnerReference{
			APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: kindSlice, Name: p.Slice, UID: p.SliceUID,
		},
		selector: selector,
		taint:    placement.PairOf(&p.Taint),
		about:    referenceTo(name, ""),
	}
}

// matches reports whether a rule has the desired selector and taint.
func (t *pairedRule) matches(rule *tracker.Rule) bool {
	native := rule.NativeTaint()
	return rule.Selects && rule.Selector == t.selector &&
		native.Key == t.taint.Key && native.Value == t.taint.Value && native.Effect == t.taint.Effect
}

// object returns the rule in an API version; versions do not differ in more (VS-02).
func (t *pairedRule) object(version string) *resourcev1.DeviceTaintRule {
	owner := t.owner
	owner.APIVersion = cmp.Or(owner.APIVersion, version)
	optional := func(name string, ok bool) *string {
		if !ok {
			return nil
		}
		return &name
	}
	s := t.selector
	return &resourcev1.DeviceTaintRule{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: KindRule},
		ObjectMeta: metav1.ObjectMeta{
			Name: t.name, Labels: map[string]string{Label: t.label}, OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: optional(s.Driver()), Pool: optional(s.Pool()), Device: optional(s.Name())},
			Taint:          t.taint,
		},
	}
}

// hasMetadata reports whether a rule has the desired label and owner.
func (t *pairedRule) hasMetadata(stored *resourcev1.DeviceTaintRule) bool {
	return stored.Labels[Label] == t.label &&
		slices.ContainsFunc(stored.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == t.owner.UID })
}

// OwnerOf returns the owner of a paired rule; false for other rules. The label alone is no
// proof: any user who may label rules could otherwise have the rules of others deleted or
// overwritten.
func OwnerOf(rule *resourcev1.DeviceTaintRule) (metav1.OwnerReference, bool) {
	_, labeled := rule.Labels[Label]
	if !labeled || len(rule.OwnerReferences) == 0 || rule.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoSchedule {
		return metav1.OwnerReference{}, false
	}
	owner := rule.OwnerReferences[0]
	switch owner.Kind {
	case KindRule:
		return owner, rule.Name == pairedName(owner.Name)
	case kindSlice:
		// The names of the rules for published taints have this form.
		sum, ok := strings.CutPrefix(rule.Name, prefix)
		decoded, err := hex.DecodeString(sum)
		return owner, ok && err == nil && len(decoded) == hashBytes
	default:
		return owner, false
	}
}

// Needs decides which taints of devices need a paired rule: those for which claims get a
// toleration with tolerationSeconds. The zero value needs none.
type Needs struct {
	placement *placement.Set
	windows   *eviction.Set
}

// NeedsOf returns the needs of the policies in force, none for nil. window reports mode
// Window, in which EvictionPolicies give claims tolerations too.
func NeedsOf(current *policyset.Set, window bool) Needs {
	if current == nil {
		return Needs{}
	}
	needs := Needs{placement: current.Placement}
	if window {
		needs.windows = current.Evictions
	}
	return needs
}

// any reports whether any taint can need a paired rule.
func (n Needs) any() bool { return n.placement.GivesBounded() || len(n.windows.Windows()) > 0 }

// includes reports whether a taint needs a paired rule.
func (n Needs) includes(taint *resourcev1.DeviceTaint) bool {
	return n.placement.NeedsPair(taint) ||
		taint.Effect == resourcev1.DeviceTaintEffectNoExecute && n.windows.HasWindow(v1alpha1.TaintTargetDevice, taint.Key)
}

// NeededByRule reports whether a rule is the paired rule of carrier, which needs one; the
// controller would recreate it.
func NeededByRule(needs Needs, rule *resourcev1.DeviceTaintRule, carrier *tracker.Rule) bool {
	return carrier.Selects && needs.includes(new(carrier.NativeTaint())) && isPaired(rule, new(pairedRuleOf(carrier)))
}

// NeededBySlice reports whether a rule is paired with a taint in a ResourceSlice that
// needs it.
func NeededBySlice(needs Needs, rule *resourcev1.DeviceTaintRule, carrier *tracker.Slice) bool {
	for i := range carrier.Devices {
		d := &carrier.Devices[i]
		for j := range d.Taints {
			if !needs.includes(&d.Taints[j]) {
				continue
			}
			wanted := pairedRuleForPublished(&tracker.Published{
				Device: device.ID{Driver: carrier.Driver, Pool: carrier.Pool, Name: d.Name},
				Taint:  d.Taints[j], Slice: carrier.Name, SliceUID: carrier.UID,
			})
			if isPaired(rule, &wanted) {
				return true
			}
		}
	}
	return false
}

func isPaired(rule *resourcev1.DeviceTaintRule, wanted *pairedRule) bool {
	owner, managed := OwnerOf(rule)
	return managed && owner.UID == wanted.owner.UID && rule.Name == wanted.name && wanted.matches(new(tracker.RuleOf(rule)))
}
