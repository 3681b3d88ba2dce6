package operate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

// target is the object of an approval.
type target struct {
	// kind is the kind of the object with the taint, empty for an EvictionPolicy.
	kind tracker.SourceKind
	name string
}

// targetKinds maps names of resources to the kinds of the API.
var targetKinds = []struct {
	names []string
	kind  tracker.SourceKind
}{
	{[]string{"node", "nodes", "no"}, tracker.SourceNode},
	{[]string{"rule", "devicetaintrule", "devicetaintrules"}, tracker.SourceRule},
	{[]string{"patch", "resourceslicepatch", "resourceslicepatches"}, tracker.SourcePatch},
	{policyNames, ""},
}

// policyNames are names of EvictionPolicies.
var policyNames = []string{"policy", "evictionpolicy", "evictionpolicies", "evpol"}

func kindNames() []string {
	var names []string
	for _, k := range targetKinds {
		names = append(names, k.names[0])
	}
	return names
}

func targetOf(kind, name string) (target, error) {
	for _, k := range targetKinds {
		if slices.Contains(k.names, strings.ToLower(kind)) {
			return target{k.kind, name}, nil
		}
	}
	return target{}, fmt.Errorf("cannot approve %q %s: want one of %s", kind, name, strings.Join(kindNames(), ", "))
}

func (t target) String() string {
	for _, k := range targetKinds {
		if k.kind == t.kind {
			return k.names[0] + " " + t.name
		}
	}
	return t.name
}

// check returns an error if a node or an EvictionPolicy does not exist. Rules and patches may be
// approved before they are created, with a warning.
func (t target) check(c *state.Cluster) (warning []string, err error) {
	exists, mayFollow := c.Has(t.kind, t.name), false
	var resource string
	switch t.kind {
	case tracker.SourceNode:
		resource = "nodes"
	case tracker.SourceRule:
		resource, mayFollow = "devicetaintrules", true
	case tracker.SourcePatch:
		resource, mayFollow = "resourceslicepatches", true
		exists = exists || len(c.Tracker.PatchRules(t.name)) > 0
	case tracker.SourceSlice: // The command has no name for it.
		return nil, nil
	default:
		resource = "evictionpolicies"
		exists = slices.ContainsFunc(c.EvictionPolicies, func(policy v1alpha1.EvictionPolicy) bool { return policy.Name == t.name })
	}
	switch {
	case exists || c.Unread(resource):
		return nil, nil
	case mayFollow:
		return []string{fmt.Sprintf("warning: %s %q not found: the approval is for one that is created with this name", resource, t.name)}, nil
	default:
		return nil, fmt.Errorf("%s %q not found", resource, t.name)
	}
}

// approval is the planned approval of one taint of one object.
type approval struct {
	source tracker.Source
	key    string
	held   []evictions.Eviction
	most   int32
}

// approvals are the planned approvals, the most pods first, and the number of pods that need
// another one.
type approvals struct {
	list []approval
	// published is the number of pods held because of taints that drivers publish.
	published int
}

// plan returns the approvals for the held pods of a list. The error describes missing data.
func (c *approveCommand) plan(list []evictions.Eviction) (*approvals, error) {
	a := &approvals{}
	for _, e := range list {
		taint := &e.Because[0].Taint
		if e.Hold.Reason != checks.BreakerTripped || !c.includes(&e) {
			continue
		}
		// A request about a rule approves the rule, others the object in which the taint was written.
		source := taint.Author()
		if c.target.kind == taint.Source.Kind {
			source = taint.Source
		}
		source.UID = ""
		if source.Kind == tracker.SourceSlice {
			a.published++
			continue
		}
		at := slices.IndexFunc(a.list, func(one approval) bool { return one.source == source && one.key == taint.Key })
		if at < 0 {
			at = len(a.list)
			a.list = append(a.list, approval{source: source, key: taint.Key})
		}
		a.list[at].held = append(a.list[at].held, e)
	}
	if len(a.list) == 0 {
		return a, c.ahead(a)
	}
	slices.SortFunc(a.list, func(x, y approval) int {
		return cmp.Or(cmp.Compare(len(y.held), len(x.held)), cmp.Compare(x.source.Kind, y.source.Kind), cmp.Compare(x.source.Name, y.source.Name), cmp.Compare(x.key, y.key))
	})
	var names []string
	for i := range a.list {
		one := &a.list[i]
		names = append(names, one.String())
		one.most = cmp.Or(c.pods, int32(min(len(one.held), math.MaxInt32)))
	}
	if c.pods > 0 && len(a.list) > 1 {
		return nil, fmt.Errorf("--pods is %d for %d taints (%s): name one, with --taint if need be", c.pods, len(a.list), strings.Join(names, ", "))
	}
	return a, nil
}

// includes reports whether the target includes a pod.
func (c *approveCommand) includes(e *evictions.Eviction) bool {
	taint := &e.Because[0].Taint
	switch {
	case c.taint != "" && c.taint != taint.Key:
		return false
	case c.target.kind == "":
		return e.Hold.By == "EvictionPolicy/"+c.target.name
	default:
		return taint.From(c.target.kind, c.target.name)
	}
}

// ahead adds the approval of a taint without held pods.
func (c *approveCommand) ahead(a *approvals) error {
	ofTaint := ""
	if c.taint != "" {
		ofTaint = " for taint " + c.taint
	}
	switch {
	case a.published > 0:
		return fmt.Errorf("%s held by EvictionPolicy %s because of taints that drivers publish, for which there are no approvals: raise spec.breaker, or run kubectl tollgate release %s",
			cli.Counted(a.published, "pod"), c.target.name, c.target.name)
	case c.target.kind == "":
		return fmt.Errorf("the breaker of EvictionPolicy %s holds no pod%s", c.target.name, ofTaint)
	case c.taint == "" || c.pods == 0:
		return fmt.Errorf("no pod is held by a breaker%s because of %s: give --taint and --pods for a taint that is yet to come", ofTaint, c.target)
	}
	a.list = []approval{{source: tracker.Source{Kind: c.target.kind, Name: c.target.name}, key: c.taint, most: c.pods}}
	return nil
}

// String returns the taint and the object.
func (a *approval) String() string {
	return a.key + " of " + target{a.source.Kind, a.source.Name}.String()
}

// sentences describe the approvals.
func (c *approveCommand) sentences(a *approvals, now time.Time) []string {
	var sentences []string
	for _, one := range a.list {
		sentences = append(sentences, fmt.Sprintf("Taint %s: %s; up to %s may go, until %s", &one, heldPods(one.held), cli.Counted(int(one.most), "pod"), now.Add(c.expiry).UTC().Format(time.RFC3339)))
	}
	if a.published > 0 {
		sentences = append(sentences, cli.Counted(a.published, "pod")+" held because of taints that drivers publish, for which there are no approvals")
	}
	return sentences
}
