package nodetaints

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
)

// expiredTaint is a taint that is older than its ttl.
type expiredTaint struct {
	// position is the index in the taints of the node or patch.
	position int
	taint    taint.Taint
	// ttl is the shortest ttl for the taint, and policy the TaintPolicy that has it.
	ttl    time.Duration
	policy string
}

// String describes the taint, the ttl and the policy.
func (e *expiredTaint) String() string {
	return fmt.Sprintf("taint %s is older than the ttl %s of TaintPolicy/%s", e.taint, e.ttl, e.policy)
}

// expiredOnNode returns the taints of a node that are expired at now, and the time until
// the next one expires; zero for never.
func expiredOnNode(set *taint.Set, node *corev1.Node, now time.Time) (expired []expiredTaint, next time.Duration) {
	var registered []taint.Registered
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		e, left, ok := timeLeft(set, taint.OfNode(t), now)
		// PairingController would add a paired taint again, and removes it with its
		// NoExecute taint.
		if !ok || selector.System(t.Key) || IsTwin(node, t) {
			continue
		}
		if registered == nil {
			registered = set.Register(node.Labels)
		}
		if slices.ContainsFunc(registered, func(r taint.Registered) bool { return r.Is(t) }) {
			continue
		}
		if left <= 0 {
			e.position = i
			expired = append(expired, e)
		} else if next == 0 || left < next {
			next = left
		}
	}
	return expired, next
}

// expiredOnRule returns the taint of a rule if it is expired, else the time until it
// expires; zero for never.
func expiredOnRule(set *taint.Set, rule *tracker.Rule, now time.Time) (expired *expiredTaint, next time.Duration) {
	driver, _ := rule.Selector.Driver()
	e, left, ok := timeLeft(set, taint.OfDevice(driver, &rule.Taint), now)
	switch {
	case !ok:
		return nil, 0
	case left <= 0:
		return &e, 0
	default:
		return nil, left
	}
}

// expiredOnPatch returns the taints of a ResourceSlicePatch that are expired at now, and
// the time until the next one expires; zero for never. A taint with a time neither in the
// spec nor in the status does not age yet.
func expiredOnPatch(set *taint.Set, patch *v1alpha1.ResourceSlicePatch, now time.Time) (expired []expiredTaint, next time.Duration) {
	names := slicepatch.NamesOf(patch.Spec.Devices.Filter)
	var driver string
	if names.Driver != nil {
		driver = *names.Driver
	}
	for i := range patch.Spec.Devices.Taints {
		t := patch.Spec.Devices.Taints[i]
		if t.TimeAdded.IsZero() {
			t.TimeAdded = slicepatch.Since(patch, &t)
		}
		e, left, ok := timeLeft(set, taint.OfDevice(driver, &resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: t.TimeAdded}), now)
		switch {
		case !ok:
		case left <= 0:
			e.position = i
			expired = append(expired, e)
		case next == 0 || left < next:
			next = left
		}
	}
	return expired, next
}

// timeLeft returns the time until a taint expires; false if it never does.
func timeLeft(set *taint.Set, taint taint.Taint, now time.Time) (e expiredTaint, left time.Duration, ok bool) {
	if taint.TimeAdded.IsZero() {
		return expiredTaint{}, 0, false
	}
	ttl, policy, ok := set.TTL(taint)
	return expiredTaint{taint: taint, ttl: ttl, policy: policy}, taint.TimeAdded.Add(ttl).Sub(now), ok
}

// ttlOperation is one operation of a JSON patch.
type ttlOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     any    `json:"value,omitempty"`
}

// removeFromNode returns the JSON patch that removes taints, ordered by position, from a
// node. It tests the UID and that each taint is still at its position.
func removeFromNode(node *corev1.Node, expired []expiredTaint) ([]byte, error) {
	operations := []ttlOperation{{"test", "/metadata/uid", node.UID}}
	for _, e := range slices.Backward(expired) {
		path := "/spec/taints/" + strconv.Itoa(e.position)
		operations = append(operations, ttlOperation{"test", path, node.Spec.Taints[e.position]}, ttlOperation{"remove", path, nil})
	}
	return encodePatch(operations)
}

// removeFromPatch returns the JSON patch that removes taints, ordered by position, from a
// ResourceSlicePatch. It tests the UID and the resourceVersion.
func removeFromPatch(patch *v1alpha1.ResourceSlicePatch, expired []expiredTaint) ([]byte, error) {
	operations := []ttlOperation{{"test", "/metadata/uid", patch.UID}, {"test", "/metadata/resourceVersion", patch.ResourceVersion}}
	for _, e := range slices.Backward(expired) {
		operations = append(operations, ttlOperation{"remove", "/spec/devices/taints/" + strconv.Itoa(e.position), nil})
	}
	return encodePatch(operations)
}

func encodePatch(operations []ttlOperation) ([]byte, error) {
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return body, nil
}
