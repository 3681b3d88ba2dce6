package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taints"
)

// nodeLifecycleControllers are the identities under which the node lifecycle
// controller taints nodes.
var nodeLifecycleControllers = []string{
	"system:serviceaccount:kube-system:node-controller",
	"system:kube-controller-manager",
}

func isNodeLifecycleController(req admission.Request) bool {
	return slices.Contains(nodeLifecycleControllers, req.UserInfo.Username)
}

// nodeFields are the fields of a node that admission looks at.
type nodeFields struct {
	Spec struct {
		Taints json.RawMessage `json:"taints"`
	} `json:"spec"`
}

// decodeTaints returns the taints of the node of a request and, on an update,
// the taints that it had.
func decodeTaints(req admission.Request) (now, old []corev1.Taint, err error) {
	if now, err = nodeTaints(req.Object.Raw); err != nil {
		return nil, nil, err
	}
	if req.Operation == admissionv1.Update {
		if old, err = nodeTaints(req.OldObject.Raw); err != nil {
			return nil, nil, err
		}
	}
	return now, old, nil
}

func nodeTaints(raw []byte) ([]corev1.Taint, error) {
	var fields nodeFields
	if err := unmarshal(raw, &fields); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode node: %w", err)}
	}
	var found []corev1.Taint
	if err := decodeField(fields.Spec.Taints, "spec.taints", &found); err != nil {
		return nil, &badReviewError{err}
	}
	return found, nil
}

// nodeJudge judges the taints of nodes.
type nodeJudge struct {
	clock   clock.PassiveClock
	maxSkew time.Duration
}

// Judge implements judge.
func (j *nodeJudge) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	current, old, err := decodeTaints(req)
	if err != nil {
		return admission.Response{}, err
	}
	now, maxSkew := j.clock.Now(), j.maxSkew
	if isNodeLifecycleController(req) {
		// Its times are corrected by the mutator. While that was away, a clock that
		// is ahead must not keep a node that fails from being tainted.
		maxSkew = -1
	}
	found := findings(taints.ValidateNode(current, old, now, maxSkew))
	return respond(policy.Decide(found), taints.Warnings(current, old, now)), nil
}

// nodeStamper writes into taints since when they count. It never refuses.
type nodeStamper struct {
	clock clock.PassiveClock
}

// Judge implements judge.
func (j *nodeStamper) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	current, old, err := decodeTaints(req)
	if err != nil {
		return admission.Response{}, err
	}
	response := allowed()
	response.Patches = stampPatches(current, taints.Stamp(taints.StampInput{
		New:                     current,
		Old:                     old,
		NodeLifecycleController: isNodeLifecycleController(req),
		Now:                     j.clock.Now(),
	}))
	return response, nil
}

// stampPatches returns the patch that writes stamps. Each is guarded by a test of
// the taint's key, so that a patch that went to another object than it was made
// for would fail and not write a time into another taint.
func stampPatches(current []corev1.Taint, stamps []taints.TimeAdded) []jsonpatch.JsonPatchOperation {
	patches := make([]jsonpatch.JsonPatchOperation, 0, 2*len(stamps))
	for _, stamp := range stamps {
		if current[stamp.Index].Key == "" {
			continue // invalid, and a test of a field that is not there would fail
		}
		path := "/spec/taints/" + strconv.Itoa(stamp.Index)
		patches = append(patches,
			jsonpatch.NewOperation("test", path+"/key", current[stamp.Index].Key),
			jsonpatch.NewOperation("add", path+"/timeAdded", stamp.TimeAdded.UTC().Format(time.RFC3339)))
	}
	return patches
}
