package eviction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Window is a key of which a policy gives pods time in mode Window.
type Window struct {
	Target  v1alpha1.TaintTarget // Node or Device
	Key     string
	Seconds int64
	Policy  *Policy
}

func windowsOf(p *Policy) []Window {
	if p.WindowSeconds == nil {
		return nil
	}
	var list []Window
	for i := range p.taints {
		list = append(list, Window{
			Target: p.taints[i].Target(), Key: p.taints[i].Key(), Seconds: *p.WindowSeconds, Policy: p,
		})
	}
	return list
}

// Windows returns all windows, those of one target and key together, and of these the
// one whose policy governs first. They are not to be written to.
func (s *Set) Windows() []Window {
	if s == nil {
		return nil
	}
	return s.windows
}

// HasWindow reports whether a policy has a window for the NoExecute taints with a key.
// Whether there is a pod that it selects is another matter.
func (s *Set) HasWindow(target v1alpha1.TaintTarget, key string) bool {
	target = selector.TargetOf(target)
	return slices.ContainsFunc(s.Windows(), func(w Window) bool { return w.Target == target && w.Key == key })
}

// WindowsFor returns the tolerations that a pod, or with target Device a claim, is
// given in mode Window, sorted by key. Of each key it is the window of the policy that
// governs the taints with that key; none if that policy has no window. A policy for
// only some values or drivers does not count here, since the toleration is of all of
// them (KEP-5055 knows none of a driver).
//
// The pods of a claim are not known when it is created. So a policy with a podSelector
// is not asked about claims, and cannot have a window for devices.
//
// The only error is a NamespaceUnknownError.
func (s *Set) WindowsFor(target v1alpha1.TaintTarget, subject *Subject) ([]v1alpha1.WindowToleration, error) {
	target = selector.TargetOf(target)
	var given []v1alpha1.WindowToleration
	last := ""
	for _, w := range s.Windows() {
		if w.Target != target || w.Key == last {
			continue
		}
		last = w.Key
		p, err := s.governing(target, w.Key, subject)
		if err != nil {
			return nil, err
		}
		if p != nil && p.WindowSeconds != nil {
			given = append(given, v1alpha1.WindowToleration{Key: w.Key, Seconds: *p.WindowSeconds})
		}
	}
	return given, nil
}

// governing returns the policy that governs the evictions of a subject because of
// taints with a key, of whatever value and driver; nil for none.
func (s *Set) governing(target v1alpha1.TaintTarget, key string, subject *Subject) (*Policy, error) {
	cursor := s.index.Candidates(&selector.Toleration{Target: target, Key: key, Operator: corev1.TolerationOpExists})
	for position, ok := cursor.Next(); ok; position, ok = cursor.Next() {
		p := s.Policies[position]
		if !p.selectsEvery(target, key) || target == v1alpha1.TaintTargetDevice && p.pods != nil {
			continue
		}
		if selects, err := p.selects(subject); selects || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// selectsEvery reports whether a selector of the policy selects all NoExecute taints
// with a key.
func (p *Policy) selectsEvery(target v1alpha1.TaintTarget, key string) bool {
	for i := range p.taints {
		if p.taints[i].SelectsEvery(target, key, corev1.TaintEffectNoExecute) {
			return true
		}
	}
	return false
}
