package decide

import (
	"cmp"
	"slices"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// ordered sorts reasons by deadline, and keeps the first of those with the same origin: a rule that
// taints several devices of a pod is one reason, and so is a taint of a device that the pod uses
// through several claims (DE-28).
func ordered(because []Reason) []Reason {
	if len(because) == 1 {
		return because
	}
	slices.SortFunc(because, compareReasons)
	seen := make(map[Origin]struct{}, len(because))
	return slices.DeleteFunc(because, func(reason Reason) bool {
		from := reason.Origin()
		_, again := seen[from]
		seen[from] = struct{}{}
		return again
	})
}

// Origin identifies a reason of a pod.
type Origin struct {
	source   tracker.Source
	device   device.ID
	position int
}

// Origin returns the origin of the reason.
func (r *Reason) Origin() Origin {
	if r.Taint.Source.Kind == tracker.SourceRule {
		return Origin{source: r.Taint.Source}
	}
	return Origin{source: r.Taint.Source, device: r.Device, position: r.Position}
}

// ranks orders reasons with the same deadline, after those of rules and patches (DE-28).
var ranks = map[tracker.SourceKind]int{tracker.SourceSlice: 1, tracker.SourceNode: 2}

// compareReasons orders reasons by deadline. With the same deadline come rules by name, then taints of
// slices by driver, pool, device and position (DE-28), then taints of the node. The other fields make
// the order total.
func compareReasons(a, b Reason) int {
	kind := a.Taint.Source.Kind
	order := cmp.Or(a.At.Compare(b.At), cmp.Compare(ranks[kind], ranks[b.Taint.Source.Kind]))
	switch {
	case order != 0:
		return order
	case kind == tracker.SourceRule, kind == tracker.SourcePatch:
		order = cmp.Compare(a.Taint.Source.Name, b.Taint.Source.Name)
	case kind == tracker.SourceNode:
		order = cmp.Compare(a.Taint.String(), b.Taint.String())
	}
	return cmp.Or(
		order, device.Compare(a.Device, b.Device), cmp.Compare(a.Position, b.Position),
		cmp.Compare(a.Claim.Namespace, b.Claim.Namespace), cmp.Compare(a.Claim.Name, b.Claim.Name),
	)
}
