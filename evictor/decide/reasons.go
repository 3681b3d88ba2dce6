package decide

import (
	"cmp"
	"slices"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// ordered sorts reasons, the earliest first, and drops those that say again what
// an earlier one says: a rule that taints many devices of a pod is one reason, and
// so is a taint of a device that the pod uses through several claims (DE-28).
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

// Origin identifies a reason: two reasons with the same origin are one.
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

// compareReasons orders reasons by deadline, and where that is the same rules by
// name, then taints of slices by driver, pool, device and position (DE-28), then
// those of the node. What is left decides nothing and makes the order total.
func compareReasons(a, b Reason) int {
	if order := cmp.Or(a.At.Compare(b.At), cmp.Compare(rank(a.Taint.Source.Kind), rank(b.Taint.Source.Kind))); order != 0 {
		return order
	}
	switch a.Taint.Source.Kind {
	case tracker.SourceRule, tracker.SourcePatch:
		if order := cmp.Compare(a.Taint.Source.Name, b.Taint.Source.Name); order != 0 {
			return order
		}
	case tracker.SourceNode:
		if order := cmp.Compare(a.Taint.String(), b.Taint.String()); order != 0 {
			return order
		}
	case tracker.SourceSlice:
	}
	return cmp.Or(
		compareDevices(a.Device, b.Device),
		cmp.Compare(a.Position, b.Position),
		cmp.Compare(a.Claim.Namespace, b.Claim.Namespace),
		cmp.Compare(a.Claim.Name, b.Claim.Name),
	)
}

func compareDevices(a, b device.ID) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
}

func rank(kind tracker.SourceKind) int {
	switch kind {
	case tracker.SourceRule, tracker.SourcePatch:
		return 0
	case tracker.SourceSlice:
		return 1
	case tracker.SourceNode:
	}
	return 2
}
