package tracker

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Tracker holds nodes, ResourceSlices, DeviceTaintRules and ResourceClaims, and the
// pods that they may taint. All methods are goroutine-safe. The methods that change
// it return the keys of the pods whose fate may have changed by that, in no order,
// so that an event costs what it touches.
type Tracker struct {
	mu sync.RWMutex
	// pods holds every pod that is on a node, known or not, by namespace.
	pods device.Table[string, Key, *Pod]
	// onNode finds them by their nodes.
	onNode device.Table[string, *Pod, struct{}]
	// nodes holds every known node.
	nodes map[string]nodeState
	// nodesVersion counts what changes about nodes that NodesVersion tells of.
	nodesVersion uint64
	// claims holds every claim that is known or used by a pod. An entry goes when it is
	// neither.
	claims map[ClaimName]*claimState
	// allocated finds the known claims by pool and name of the devices allocated to them.
	allocated device.Pools[map[string][]*claimState]
	slices    map[string]*Slice
	// pools holds the pools of each driver, by name.
	pools device.Pools[*pool]
	rules map[string]*ruleState
	// written holds the rules that are written out for each ResourceSlicePatch, by its
	// name and theirs.
	written device.Table[string, string, *ruleState]
	// budgets holds the PodDisruptionBudgets of each namespace, by name.
	budgets map[string][]Budget
	// outage counts the known nodes.
	outage outage
	// live counts the pods that are neither over nor on their way out.
	live int
	// selecting finds the rules by the devices that they select.
	selecting device.Index[*ruleState]
	// devicesKnown is true once slices, rules and claims have all been listed.
	devicesKnown bool
	// podGroups is true where reservations for PodGroups count.
	podGroups bool
}

// New returns an empty tracker.
func New() *Tracker {
	return &Tracker{
		pods:      device.Table[string, Key, *Pod]{},
		onNode:    device.Table[string, *Pod, struct{}]{},
		nodes:     map[string]nodeState{},
		claims:    map[ClaimName]*claimState{},
		allocated: device.Pools[map[string][]*claimState]{},
		slices:    map[string]*Slice{},
		pools:     device.Pools[*pool]{},
		rules:     map[string]*ruleState{},
		written:   device.Table[string, string, *ruleState]{},
		budgets:   map[string][]Budget{},
	}
}

// SetDevicesKnown says whether all slices, rules and claims that there were at the
// start have been recorded. Until then no taint of a device holds for any pod: an
// old slice may have come and the one that replaces it not yet (DE-53).
func (t *Tracker) SetDevicesKnown(known bool) []Key {
	return t.turn(&t.devicesKnown, known, t.onTaintedDevice)
}

// SetPodGroups says whether a claim that is reserved for a PodGroup is reserved
// for its pods. Where the API has no PodGroups, such reservations are left-overs
// (DE-08, DE-09).
func (t *Tracker) SetPodGroups(served bool) []Key {
	return t.turn(&t.podGroups, served, func(pod *Pod) bool { return pod.PodGroup != "" && t.onTaintedDevice(pod) })
}

// turn turns a setting on or off, and returns the pods that are concerned while it is on.
func (t *Tracker) turn(setting *bool, on bool, concerned func(*Pod) bool) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	if *setting == on {
		return nil
	}
	*setting = true
	keys := t.podsWhere(concerned)
	*setting = on
	return keys
}

// Lookup returns the situation of a pod.
func (t *Tracker) Lookup(key Key) (Situation, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	pod := t.pods[key.Namespace][key]
	if pod == nil {
		return Situation{}, false
	}
	return t.actual().situation(pod), true
}

// Exposed returns the keys of all pods for which a NoExecute taint holds, in no
// order.
func (t *Tracker) Exposed() []Key {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.podsWhere(t.exposed)
}

// UIDOf returns the UID of the object that is known under a source of taints,
// empty if there is none. A patch is known, with the UID of the source and no other,
// while there is a rule that is written out for it.
func (t *Tracker) UIDOf(source Source) types.UID {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.identity(source).UID
}

// VersionOf returns the version of the node, slice or rule that is known under a name, empty
// if there is none.
func (t *Tracker) VersionOf(source Source) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.identity(source).ResourceVersion
}

func (t *Tracker) identity(source Source) (known Identity) {
	switch source.Kind {
	case SourceNode:
		node := t.nodes[source.Name]
		known = node.Identity()
	case SourceSlice:
		if slice, ok := t.slices[source.Name]; ok {
			known = slice.Identity()
		}
	case SourceRule:
		if rule, ok := t.rules[source.Name]; ok {
			known = rule.Identity()
		}
	case SourcePatch:
		for _, rule := range t.written[source.Name] {
			if rule.Patch.UID == source.UID {
				known.UID = source.UID
			}
		}
	}
	return known
}

// overtaken reports whether a node, slice or rule must not be recorded: the version that is
// known is newer. An answer to a request of our own is given with the version that was known
// before the request, nil for an object of a watch. It is for the object that is known with
// its UID and no other, and is taken if that version is still the known one.
func (t *Tracker) overtaken(kind SourceKind, came Identity, before *string) bool {
	known := t.identity(Source{Kind: kind, Name: came.Name})
	switch {
	case known == (Identity{}):
		return before != nil
	case before != nil && known.UID != came.UID:
		return true
	case before != nil && known.ResourceVersion == *before:
		return false
	}
	return Older(came.ResourceVersion, known.ResourceVersion)
}

func (t *Tracker) podsWhere(wanted func(*Pod) bool) []Key {
	var keys []Key
	for _, pods := range t.pods {
		for key, pod := range pods {
			if wanted(pod) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// CompareKeys orders pods by namespace, name and UID.
func CompareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func sortKeys(keys []Key) []Key {
	slices.SortFunc(keys, CompareKeys)
	return keys
}

// Older reports whether a is surely a version before b. A version that cannot be compared
// is taken as new, so that nothing is lost. Answers to requests overtake the watch, and what
// the watch says then is older.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
