package approve

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor"
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
	{[]string{"policy", "evictionpolicy", "evictionpolicies", "evpol"}, ""},
}

func kindNames() []string {
	var names []string
	for i := range targetKinds {
		names = append(names, targetKinds[i].names[0])
	}
	return names
}

func targetOf(kind, name string) (target, error) {
	for i := range targetKinds {
		if slices.Contains(targetKinds[i].names, strings.ToLower(kind)) {
			return target{targetKinds[i].kind, name}, nil
		}
	}
	return target{}, fmt.Errorf("cannot approve %q %s: want one of %s", kind, name, strings.Join(kindNames(), ", "))
}

func (t target) String() string {
	for i := range targetKinds {
		if targetKinds[i].kind == t.kind {
			return targetKinds[i].names[0] + " " + t.name
		}
	}
	return t.name
}

// check returns an error if a node or an EvictionPolicy does not exist. Rules and patches may be
// approved before they are created; the sentences mention it.
func (t target) check(found *state.Cluster) ([]string, error) {
	var exists bool
	var resource string
	switch t.kind {
	case tracker.SourceNode:
		resource = "nodes"
		exists = slices.ContainsFunc(found.Tracker.Nodes(), func(node tracker.LabelledNode) bool { return node.Name == t.name })
	case tracker.SourceRule:
		resource = "devicetaintrules"
		exists = found.Rule[t.name] != nil
	case tracker.SourcePatch:
		resource = "resourceslicepatches"
		exists = len(found.Tracker.PatchRules(t.name)) > 0 ||
			slices.ContainsFunc(found.Patches, func(patch v1alpha1.ResourceSlicePatch) bool { return patch.Name == t.name })
	case tracker.SourceSlice: // nobody can ask for one
		return nil, nil
	default:
		resource = "evictionpolicies"
		exists = slices.ContainsFunc(found.EvictionPolicies, func(policy v1alpha1.EvictionPolicy) bool { return policy.Name == t.name })
	}
	switch {
	case exists || found.Unread(resource):
		return nil, nil
	case t.kind == tracker.SourceRule || t.kind == tracker.SourcePatch:
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
func plan(list []evictions.Eviction, opts *options) (*approvals, error) {
	a := &approvals{}
	for i := range list {
		e := &list[i]
		reason := &e.Because[0]
		if e.Hold.Reason != evictor.HoldBreakerTripped || !opts.means(e) {
			continue
		}
		source := opts.sourceOf(&reason.Taint)
		if source.Kind == tracker.SourceSlice {
			a.published++
			continue
		}
		a.add(source, reason.Taint.Key, e)
	}
	if len(a.list) == 0 {
		return a.ahead(opts)
	}
	slices.SortFunc(a.list, func(x, y approval) int {
		return cmp.Or(cmp.Compare(len(y.held), len(x.held)), cmp.Compare(x.source.Kind, y.source.Kind), cmp.Compare(x.source.Name, y.source.Name), cmp.Compare(x.key, y.key))
	})
	if opts.pods > 0 && len(a.list) > 1 {
		return nil, fmt.Errorf("--pods is %d for %d taints (%s): name one, with --taint if need be", opts.pods, len(a.list), a.names())
	}
	for i := range a.list {
		one := &a.list[i]
		one.most = int32(min(len(one.held), math.MaxInt32))
		if opts.pods > 0 {
			one.most = opts.pods
		}
	}
	return a, nil
}

// means reports whether the target includes a pod.
func (o *options) means(e *evictions.Eviction) bool {
	taint := &e.Because[0].Taint
	switch {
	case o.taint != "" && o.taint != taint.Key:
		return false
	case o.target.kind == "":
		return e.Hold.By == "EvictionPolicy/"+o.target.name
	default:
		return taint.From(o.target.kind, o.target.name)
	}
}

// sourceOf returns the object to approve: the rule for a request about a rule, else the object in
// which the taint was written.
func (o *options) sourceOf(taint *tracker.Taint) tracker.Source {
	source := taint.Author()
	if o.target.kind == taint.Source.Kind {
		source = taint.Source
	}
	source.UID = ""
	return source
}

func (a *approvals) add(source tracker.Source, key string, e *evictions.Eviction) {
	at := slices.IndexFunc(a.list, func(one approval) bool { return one.source == source && one.key == key })
	if at < 0 {
		at = len(a.list)
		a.list = append(a.list, approval{source: source, key: key})
	}
	a.list[at].held = append(a.list[at].held, *e)
}

// ahead returns the approval of a taint without held pods.
func (a *approvals) ahead(opts *options) (*approvals, error) {
	switch {
	case a.published > 0:
		return nil, fmt.Errorf("%s held by EvictionPolicy %s because of taints that drivers publish, for which there are no approvals: raise spec.breaker, or create an EvictionApproval with spec.evictionPolicy: %s",
			counted(a.published), opts.target.name, opts.target.name)
	case opts.target.kind == "":
		return nil, fmt.Errorf("the breaker of EvictionPolicy %s holds no pod%s", opts.target.name, ofTaint(opts.taint))
	case opts.taint == "" || opts.pods == 0:
		return nil, fmt.Errorf("no pod is held by a breaker%s because of %s: give --taint and --pods for a taint that is yet to come", ofTaint(opts.taint), opts.target)
	}
	a.list = []approval{{source: tracker.Source{Kind: opts.target.kind, Name: opts.target.name}, key: opts.taint, most: opts.pods}}
	return a, nil
}

func ofTaint(key string) string {
	if key == "" {
		return ""
	}
	return " for taint " + key
}

func (a *approvals) names() string {
	var names []string
	for i := range a.list {
		names = append(names, a.list[i].String())
	}
	return strings.Join(names, ", ")
}

// String returns the taint and the object.
func (a *approval) String() string {
	return a.key + " of " + target{a.source.Kind, a.source.Name}.String()
}

// maxNamed is the maximum number of pods in a sentence.
const maxNamed = 5

// sentences describe the approvals.
func (a *approvals) sentences(now time.Time, expiry time.Duration) []string {
	var sentences []string
	for i := range a.list {
		one := &a.list[i]
		sentence := fmt.Sprintf("Taint %s: %s held", one, counted(len(one.held)))
		if len(one.held) > 0 {
			var names []string
			for j := range one.held[:min(len(one.held), maxNamed)] {
				names = append(names, one.held[j].String())
			}
			if more := len(one.held) - len(names); more > 0 {
				names = append(names, fmt.Sprintf("%d more", more))
			}
			sentence += " (" + strings.Join(names, ", ") + ")"
		}
		sentences = append(sentences, sentence+fmt.Sprintf("; up to %s may go, until %s", counted(int(one.most)), now.Add(expiry).UTC().Format(time.RFC3339)))
	}
	if a.published > 0 {
		sentences = append(sentences, counted(a.published)+" held because of taints that drivers publish, for which there are no approvals")
	}
	return sentences
}

func counted(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", pods)
}
