package history

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// kind tells the kinds of objects apart.
type kind string

// The kinds that are known here.
const (
	kindPod       kind = "Pod"
	kindNode      kind = "Node"
	kindNamespace kind = "Namespace"
	kindClaim     kind = "ResourceClaim"
	kindSlice     kind = "ResourceSlice"
	kindRule      kind = "DeviceTaintRule"
	kindBudget    kind = "PodDisruptionBudget"
	kindPolicy    kind = "EvictionPolicy"
	kindApproval  kind = "EvictionApproval"
)

func kindOf(object any) kind {
	switch object.(type) {
	case *corev1.Pod:
		return kindPod
	case *corev1.Node:
		return kindNode
	case *corev1.Namespace:
		return kindNamespace
	case *resourcev1.ResourceClaim:
		return kindClaim
	case *resourcev1.ResourceSlice:
		return kindSlice
	case *resourcev1.DeviceTaintRule:
		return kindRule
	case *policyv1.PodDisruptionBudget:
		return kindBudget
	case *v1alpha1.EvictionPolicy:
		return kindPolicy
	case *v1alpha1.EvictionApproval:
		return kindApproval
	}
	return kind(fmt.Sprintf("%T", object))
}

// name finds an object, and all that had its name before and after it.
type name struct {
	kind            kind
	namespace, name string
}

func nameOf(v *Version) name {
	return name{kindOf(v.Object), v.Object.GetNamespace(), v.Object.GetName()}
}

// index is a history in the order in which it is asked about.
type index struct {
	*History

	// chains are the versions under one name, by revision.
	chains map[name][]*Version
	// named are the names of each kind, sorted.
	named     map[kind][]name
	evictions []*eviction
}

// eviction is a request to evict a pod that the API server carried out.
type eviction struct {
	write *faultproxy.Write
	// method is by which the pod was made to leave.
	method string
	// pod is the version that was decided about.
	pod *corev1.Pod
	// revision is that of the pod on its way out, or gone.
	revision int64
}

// uid is that of the pod.
func (e *eviction) uid() string { return string(e.pod.UID) }

// name is that of the pod, as people say it.
func (e *eviction) name() string { return e.pod.Namespace + "/" + e.pod.Name }

func newIndex(h *History) *index {
	x := &index{History: h, chains: map[name][]*Version{}, named: map[kind][]name{}}
	for i := range h.Versions {
		v := &h.Versions[i]
		n := nameOf(v)
		if x.chains[n] == nil {
			x.named[n.kind] = append(x.named[n.kind], n)
		}
		x.chains[n] = append(x.chains[n], v)
	}
	for _, chain := range x.chains {
		slices.SortStableFunc(chain, func(a, b *Version) int { return cmp.Compare(a.Revision, b.Revision) })
	}
	for _, names := range x.named {
		slices.SortFunc(names, func(a, b name) int {
			return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
		})
	}
	for i := range h.Writes {
		if e := x.eviction(&h.Writes[i]); e != nil {
			x.evictions = append(x.evictions, e)
		}
	}
	slices.SortStableFunc(x.evictions, func(a, b *eviction) int { return a.write.Forwarded.Compare(b.write.Forwarded) })
	return x
}

// accepted reports whether the API server carried a write out.
func accepted(w *faultproxy.Write) bool {
	return w.Status >= http.StatusOK && w.Status < http.StatusMultipleChoices
}

// eviction returns the eviction that a write was; nil when it was none, or when the
// pod is not known, of which the check of identities tells.
func (x *index) eviction(w *faultproxy.Write) *eviction {
	method, ok := evicts(w)
	if !ok || !accepted(w) {
		return nil
	}
	uid, version, err := preconditions(w)
	if err != nil {
		return nil
	}
	decided, left := x.decided(name{kindPod, w.Namespace, w.Name}, uid, version)
	if decided == nil {
		return nil
	}
	pod, _ := decided.Object.(*corev1.Pod)
	e := &eviction{write: w, method: method, pod: pod, revision: decided.Revision + 1}
	if left != nil {
		e.revision = left.Revision
	}
	return e
}

// decided returns the version of a pod that preconditions are about, and the one in
// which it is on its way out or gone.
func (x *index) decided(n name, uid, version string) (decided, left *Version) {
	for _, v := range x.chains[n] {
		pod, _ := v.Object.(*corev1.Pod)
		if uid != "" && string(pod.UID) != uid {
			continue
		}
		leaving := v.Gone || pod.DeletionTimestamp != nil
		if !leaving && (version == "" || pod.ResourceVersion == version) {
			decided = v
		}
		if left == nil && decided != nil && leaving {
			left = v
		}
	}
	return decided, left
}

// current returns the versions of an object that may have been taken for the latest
// one by somebody who acted at a revision, and whose knowledge was from no earlier
// than since. A version is until the next one was seen, and from its own revision.
// It has none where the object did not exist all along.
func (x *index) current(n name, since time.Time, revision int64) []*Version {
	var versions []*Version
	chain := x.chains[n]
	for i, v := range chain {
		if v.Revision > revision {
			break
		}
		over := i+1 < len(chain) && chain[i+1].Revision <= revision && chain[i+1].Seen.Before(since)
		if !over && !v.Gone {
			versions = append(versions, v)
		}
	}
	return versions
}

// at returns an object as it was at a revision; nil where it was not.
func (x *index) at(n name, revision int64) *Version {
	var last *Version
	for _, v := range x.chains[n] {
		if v.Revision > revision {
			break
		}
		last = v
	}
	if last == nil || last.Gone {
		return nil
	}
	return last
}

// last returns an object as it was in the end; nil where it was not.
func (x *index) last(n name) *Version {
	chain := x.chains[n]
	if len(chain) == 0 || chain[len(chain)-1].Gone {
		return nil
	}
	return chain[len(chain)-1]
}

// ahead returns by how much the clock of the API server was ahead at most, and at
// least, as far as somebody may know whose knowledge was from no earlier than since.
func (x *index) ahead(since, until time.Time) (most, least time.Duration) {
	var before time.Duration
	first := true
	take := func(offset time.Duration) {
		if first {
			most, least, first = offset, offset, false
			return
		}
		most, least = max(most, offset), min(least, offset)
	}
	for _, step := range x.Steps {
		switch {
		case !step.At.After(since):
			before = step.Offset
		case !step.At.After(until):
			take(step.Offset)
		}
	}
	take(before)
	return most, least
}

// forward returns by how much the clock of the API server was set forward in all until
// then, whatever it was set back.
func (x *index) forward(until time.Time) time.Duration {
	var sum, before time.Duration
	for _, step := range x.Steps {
		if step.At.After(until) {
			break
		}
		sum += max(step.Offset-before, 0)
		before = step.Offset
	}
	return sum
}

// revisionOf reads the resource version of an object.
func revisionOf(version string) (int64, error) {
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read resource version %q: %w", version, err)
	}
	return revision, nil
}
