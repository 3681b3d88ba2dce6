package devicetaints

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tollgate-dev/tollgate/policy/placement"
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
}

// pairedRuleOf returns the paired rule of a rule.
func pairedRuleOf(rule *tracker.Rule) pairedRule {
	return pairedRule{
		name:     pairedName(rule.Name),
		label:    ofRule,
		owner:    metav1.OwnerReference{Kind: KindRule, Name: rule.Name, UID: rule.UID},
		selector: rule.Selector,
		taint:    placement.PairOf(new(rule.NativeTaint())),
	}
}

// pairedName returns the name of the rule with suffix, unless that is too long.
func pairedName(rule string) string {
	if len(rule)+len(suffix) <= validation.DNS1123SubdomainMaxLength {
		return rule + suffix
	}
	// A truncated name must not end with '.' or '-' before the hash.
	const kept = 200
	return strings.TrimRight(rule[:kept], ".-") + "-" + hash(rule) + suffix
}

// pairedRuleForPublished returns the rule for a taint that a driver publishes.
func pairedRuleForPublished(p *tracker.Published) pairedRule {
	selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: &p.Device.Driver, Pool: &p.Device.Pool, Device: &p.Device.Name})
	return pairedRule{
		name:  prefix + hash(p.Device.Driver, p.Device.Pool, p.Device.Name, p.Taint.Key, p.Taint.Value),
		label: ofDevice,
		owner: metav1.OwnerReference{
			APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: kindSlice, Name: p.Slice, UID: p.SliceUID,
		},
		selector: selector,
		taint:    placement.PairOf(&p.Taint),
	}
}

// hash returns a short hash of parts, none of which contains a zero byte.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:hashBytes])
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
	if owner.APIVersion == "" {
		owner.APIVersion = version
	}
	return &resourcev1.DeviceTaintRule{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: KindRule},
		ObjectMeta: metav1.ObjectMeta{
			Name: t.name, Labels: map[string]string{Label: t.label}, OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: selectorOf(t.selector), Taint: t.taint},
	}
}

func selectorOf(s device.Selector) *resourcev1.DeviceTaintSelector {
	named := func(name string, ok bool) *string {
		if !ok {
			return nil
		}
		return &name
	}
	return &resourcev1.DeviceTaintSelector{Driver: named(s.Driver()), Pool: named(s.Pool()), Device: named(s.Name())}
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
		return owner, namesPublished(rule.Name)
	default:
		return owner, false
	}
}

// namesPublished reports whether a name has the form of the rules for published taints.
func namesPublished(name string) bool {
	sum, ok := strings.CutPrefix(name, prefix)
	decoded, err := hex.DecodeString(sum)
	return ok && err == nil && len(decoded) == hashBytes
}
