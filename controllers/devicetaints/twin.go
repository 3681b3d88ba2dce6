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
	// Label is on every rule that is made here, and says what for.
	Label = "tollgate.dev/pair"
	// KindRule is the kind of what a rule is made for, if not for a ResourceSlice.
	KindRule  = "DeviceTaintRule"
	kindSlice = "ResourceSlice"
	// The values of the label.
	ofRule   = "rule"
	ofDevice = "device"

	// suffix ends the name of a rule's twin.
	suffix = "-noschedule"
	// prefix begins the names of rules for what drivers publish.
	prefix = "tollgate-noschedule-"
	// hashBytes is how much of a hash is in a name.
	hashBytes = 10
)

// twin is a rule as it is to be.
type twin struct {
	name     string
	label    string
	owner    metav1.OwnerReference // without its apiVersion where that of rules is meant
	selector device.Selector
	taint    resourcev1.DeviceTaint
}

// twinOf returns the twin of a rule.
func twinOf(rule *tracker.Rule) twin {
	return twin{
		name:     twinName(rule.Name),
		label:    ofRule,
		owner:    metav1.OwnerReference{Kind: KindRule, Name: rule.Name, UID: rule.UID},
		selector: rule.Selector,
		taint:    placement.PairOf(new(rule.NativeTaint())),
	}
}

// twinName is predictable where the name leaves room for it.
func twinName(rule string) string {
	if len(rule)+len(suffix) <= validation.DNS1123SubdomainMaxLength {
		return rule + suffix
	}
	// A name that is cut may end with what a name cannot have in its middle.
	const kept = 200
	return strings.TrimRight(rule[:kept], ".-") + "-" + hash(rule) + suffix
}

// twinOfPublished returns the rule for what a driver publishes.
func twinOfPublished(p *tracker.Published) twin {
	selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: &p.Device.Driver, Pool: &p.Device.Pool, Device: &p.Device.Name})
	return twin{
		name:  prefix + hash(p.Device.Driver, p.Device.Pool, p.Device.Name, p.Taint.Key, p.Taint.Value),
		label: ofDevice,
		owner: metav1.OwnerReference{
			APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: kindSlice, Name: p.Slice, UID: p.SliceUID,
		},
		selector: selector,
		taint:    placement.PairOf(&p.Taint),
	}
}

// hash returns a short name for parts, none of which holds a zero byte.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:hashBytes])
}

// same reports whether a rule does what the twin is to do.
func (t *twin) same(rule *tracker.Rule) bool {
	native := rule.NativeTaint()
	return rule.Selects && rule.Selector == t.selector &&
		native.Key == t.taint.Key && native.Value == t.taint.Value && native.Effect == t.taint.Effect
}

// object returns the rule. Version is that of the API it is written in, which differs
// in nothing else (VS-02).
func (t *twin) object(version string) *resourcev1.DeviceTaintRule {
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

// complete reports whether a rule says of itself all that the twin does: what it is, and
// whom it goes with.
func (t *twin) complete(stored *resourcev1.DeviceTaintRule) bool {
	return stored.Labels[Label] == t.label &&
		slices.ContainsFunc(stored.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == t.owner.UID })
}

// OwnerOf returns what a rule that was made here was made for. The label alone does not
// say so: whoever may label rules would have those of others deleted, or overwritten.
func OwnerOf(rule *resourcev1.DeviceTaintRule) (metav1.OwnerReference, bool) {
	_, labeled := rule.Labels[Label]
	if !labeled || len(rule.OwnerReferences) == 0 || rule.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoSchedule {
		return metav1.OwnerReference{}, false
	}
	owner := rule.OwnerReferences[0]
	switch owner.Kind {
	case KindRule:
		return owner, rule.Name == twinName(owner.Name)
	case kindSlice:
		return owner, namesPublished(rule.Name)
	default:
		return owner, false
	}
}

// namesPublished reports whether a name is of the form that rules for what drivers
// publish have.
func namesPublished(name string) bool {
	sum, ok := strings.CutPrefix(name, prefix)
	decoded, err := hex.DecodeString(sum)
	return ok && err == nil && len(decoded) == hashBytes
}
