package registration

import (
	"slices"
	"strings"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// Reasons are reasons why policies have to be asked about more than the entries that are
// always there cover.
type Reasons uint

const (
	// Tolerations is that a TolerationPolicy guards taints, so templates and bindings are judged.
	Tolerations Reasons = 1 << iota
	// NamespaceLabels is that a TolerationPolicy grants by labels of namespaces.
	NamespaceLabels
	// Gates is that a GatePolicy says who tightens the pods of suspended Jobs.
	Gates
	// Pods is that a PlacementPolicy gives something to pods, which the validating webhook checks.
	Pods
	// Claims is that a PlacementPolicy gives tolerations to claims.
	Claims
	// PodWindows is that an EvictionPolicy gives tolerations to pods, in mode Window.
	PodWindows
	// ClaimWindows is that an EvictionPolicy gives tolerations to claims, in mode Window.
	ClaimWindows
	// DefaultTolerations is that a TolerationPolicy guards a taint that every pod tolerates for
	// some time by default, so that it matters how else a pod tolerates it.
	DefaultTolerations

	// All are all reasons.
	All Reasons = 1<<iota - 1
)

// names are the names of the reasons, in the order of their bits.
var names = []string{"tolerations", "namespaceLabels", "gates", "pods", "claims", "podWindows", "claimWindows", "defaultTolerations"}

// String returns the names of the reasons, sorted by bit and separated by commas.
func (r Reasons) String() string {
	var list []string
	for i, name := range names {
		if r&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return strings.Join(list, ",")
}

// Parse returns the reasons with the names in a text that String returned. It ignores names
// that it does not know, which an older or a newer release may have written.
func Parse(text string) Reasons {
	var r Reasons
	for name := range strings.SplitSeq(text, ",") {
		if i := slices.Index(names, name); i >= 0 {
			r |= 1 << i
		}
	}
	return r
}

// Of returns the reasons that policies give, and those of kinds with a policy that is not
// valid: such a policy may have given them before it was changed, so they are not dropped for
// it. window says that the mode is Window.
func Of(policies *policyset.Set, window bool) (reasons, doubtful Reasons) {
	set := func(on bool, r Reasons) {
		if on {
			reasons |= r
		}
	}
	set(policies.Tolerations.Len() > 0, Tolerations)
	set(policies.Tolerations.GrantsByNamespaceLabels(), NamespaceLabels)
	// A policy that is not valid may have guarded anything before.
	set(policies.Tolerations.GuardsDefaults() || len(policies.Tolerations.Problems()) > 0, DefaultTolerations)
	set(policies.Gates.Len() > 0, Gates)
	set(policies.Placement.GivesToPods(), Pods)
	set(policies.Placement.GivesToClaims(), Claims)
	for _, w := range policies.Evictions.Windows() {
		set(window && w.Target == v1alpha1.TaintTargetNode, PodWindows)
		set(window && w.Target == v1alpha1.TaintTargetDevice, ClaimWindows)
	}
	for name, r := range map[string]Reasons{
		"TolerationPolicy": NamespaceLabels, "PlacementPolicy": Pods | Claims, "EvictionPolicy": PodWindows | ClaimWindows,
	} {
		if kind, ok := policyset.KindOf(name); ok && len(kind.Of(policies).Problems()) > 0 {
			doubtful |= r
		}
	}
	return reasons, doubtful
}
