package webhook

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
)

// nodeStamper gives nodes that are created the taints that policies register, and
// writes into taints since when they count. It never refuses.
type nodeStamper struct {
	clock    clock.PassiveClock
	governor *governor
	// outages remembers since when nodes have failed.
	outages *Outages
	// unstamped says that no times are written.
	unstamped bool
}

// Judge implements judge. On an update no taint is added: a kubelet's own update that
// seems to change taints would be refused (TP-18).
func (j *nodeStamper) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	node, old, err := decodeNodes(req)
	if err != nil {
		return admission.Response{}, err
	}
	born := birth{taints: slices.Clone(node.Taints), sent: len(node.Taints), replaced: map[int]bool{}}
	if old == nil {
		policies, err := j.governor.current()
		if err != nil {
			return admission.Response{}, err
		}
		born.give(policies.Taints.Register(node.Labels))
	}
	var stamps []validation.NodeTimeAdded
	if !j.unstamped {
		outage, err := j.outage(req)
		if err != nil {
			return admission.Response{}, err
		}
		stamps = validation.StampNode(validation.StampInput{
			New:                     born.taints,
			Old:                     taintsOn(old),
			NodeLifecycleController: isNodeLifecycleController(req),
			Outage:                  outage,
			Now:                     j.clock.Now(),
		})
	}
	response := allowed()
	response.Patches = born.patches(stamps)
	if old == nil {
		marked, err := bornWithoutTwins(req.Object.Raw)
		if err != nil {
			return admission.Response{}, err
		}
		response.Patches = append(response.Patches, marked...)
	}
	return response, nil
}

// failedNode is what of a node says which outage of it there is.
type failedNode struct {
	Metadata struct {
		UID types.UID `json:"uid"`
	} `json:"metadata"`
	Status struct {
		Conditions []corev1.NodeCondition `json:"conditions"`
	} `json:"status"`
}

// outage returns since when the node of a request has been tainted because it failed, as far
// as that is remembered.
func (j *nodeStamper) outage(req admission.Request) (time.Time, error) {
	if j.outages == nil || req.Operation != admissionv1.Update || !isNodeLifecycleController(req) {
		return time.Time{}, nil
	}
	var node failedNode
	if err := unmarshal(req.Object.Raw, &node); err != nil {
		return time.Time{}, &badReviewError{fmt.Errorf("decode node: %w", err)}
	}
	return j.outages.Since(node.Metadata.UID, validation.ReadyOf(node.Status.Conditions)), nil
}

// birth is the taints of a node while what it is born with is put in.
type birth struct {
	taints []corev1.Taint
	// sent is how many of them the request has, and replaced are those of these that
	// are no longer what it has.
	sent     int
	replaced map[int]bool
}

// give puts in registered taints. One that is there as it is to be stays, and one of
// the same key and effect with another value gives way.
func (b *birth) give(registered []taint.Registered) {
	for _, r := range registered {
		given := corev1.Taint{Key: r.Taint.Key, Value: r.Taint.Value, Effect: r.Taint.Effect}
		at := slices.IndexFunc(b.taints, func(t corev1.Taint) bool { return r.Same(&t) })
		switch {
		case at < 0:
			b.taints = append(b.taints, given)
		case !r.Is(&b.taints[at]):
			b.taints[at], b.replaced[at] = given, true
		}
	}
}

// patches returns the patch that makes of what was sent what is to be, with stamps.
func (b *birth) patches(stamps []validation.NodeTimeAdded) []jsonpatch.JsonPatchOperation {
	var sent []validation.NodeTimeAdded
	for _, stamp := range stamps {
		if stamp.Index >= b.sent || b.replaced[stamp.Index] {
			b.taints[stamp.Index].TimeAdded = new(metav1.NewTime(stamp.TimeAdded.UTC()))
		} else {
			sent = append(sent, stamp)
		}
	}
	patches := stampPatches(b.taints, sent)
	for i := range b.sent {
		if b.replaced[i] {
			patches = append(patches,
				jsonpatch.NewOperation("test", taintPath(i)+"/key", b.taints[i].Key),
				jsonpatch.NewOperation("replace", taintPath(i), b.taints[i]))
		}
	}
	switch added := b.taints[b.sent:]; {
	case len(added) == 0:
	case b.sent == 0:
		patches = append(patches, jsonpatch.NewOperation("add", "/spec/taints", added))
	default:
		for i := range added {
			patches = append(patches, jsonpatch.NewOperation("add", "/spec/taints/-", added[i]))
		}
	}
	return patches
}

func taintPath(i int) string { return "/spec/taints/" + strconv.Itoa(i) }

// stampPatches returns the patch that writes stamps. Each is guarded by a test of
// the taint's key, so that a patch that went to another object than it was made
// for would fail and not write a time into another taint.
func stampPatches(current []corev1.Taint, stamps []validation.NodeTimeAdded) []jsonpatch.JsonPatchOperation {
	patches := make([]jsonpatch.JsonPatchOperation, 0, 2*len(stamps))
	for _, stamp := range stamps {
		if current[stamp.Index].Key == "" {
			continue // invalid, and a test of a field that is not there would fail
		}
		path := taintPath(stamp.Index)
		patches = append(patches,
			jsonpatch.NewOperation("test", path+"/key", current[stamp.Index].Key),
			jsonpatch.NewOperation("add", path+"/timeAdded", stamp.TimeAdded.UTC().Format(time.RFC3339)))
	}
	return patches
}
