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

// expired is a taint whose time is over.
type expired struct {
	// position is where it stands in the list of its node or patch.
	position int
	taint    taint.Taint
	// ttl is by whose and how long.
	ttl time.Duration
	by  string
}

// String says whose time is over, and why.
func (e *expired) String() string {
	return fmt.Sprintf("taint %s is older than the ttl %s of TaintPolicy/%s", e.taint, e.ttl, e.by)
}

// onNode returns the taints of a node whose time is over at now, and after how long the
// next one's is; zero for never.
func onNode(set *taint.Set, node *corev1.Node, now time.Time) (over []expired, next time.Duration) {
	var registered []taint.Registered
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		e, left, ok := look(set, taint.OfNode(t), now)
		// A twin would come back at once, and goes with the taint that it stands beside.
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
			over = append(over, e)
		} else if next == 0 || left < next {
			next = left
		}
	}
	return over, next
}

// onRule returns the taint of a rule if its time is over, else after how long it is;
// zero for never.
func onRule(set *taint.Set, rule *tracker.Rule, now time.Time) (over *expired, next time.Duration) {
	driver, _ := rule.Selector.Driver()
	e, left, ok := look(set, taint.OfDevice(driver, &rule.Taint), now)
	switch {
	case !ok:
		return nil, 0
	case left <= 0:
		return &e, 0
	default:
		return nil, left
	}
}

// onPatch returns the taints of a ResourceSlicePatch whose time is over at now, and after how
// long the next one's is; zero for never. One that gives no time and has none in the status
// does not count yet.
func onPatch(set *taint.Set, patch *v1alpha1.ResourceSlicePatch, now time.Time) (over []expired, next time.Duration) {
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
		e, left, ok := look(set, taint.OfDevice(driver, &resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: t.TimeAdded}), now)
		switch {
		case !ok:
		case left <= 0:
			e.position = i
			over = append(over, e)
		case next == 0 || left < next:
			next = left
		}
	}
	return over, next
}

// look returns how much time a taint has left; false for one that stays.
func look(set *taint.Set, taint taint.Taint, now time.Time) (e expired, left time.Duration, ok bool) {
	if taint.TimeAdded.IsZero() {
		return expired{}, 0, false
	}
	ttl, by, ok := set.TTL(taint)
	return expired{taint: taint, ttl: ttl, by: by}, taint.TimeAdded.Add(ttl).Sub(now), ok
}

// ttlOperation is one operation of a JSON patch.
type ttlOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     any    `json:"value,omitempty"`
}

// removal returns the patch that removes taints of a node, which are in order, if they
// still stand where they stood.
func removal(node *corev1.Node, over []expired) ([]byte, error) {
	operations := []ttlOperation{{"test", "/metadata/uid", node.UID}}
	for _, e := range slices.Backward(over) {
		path := "/spec/taints/" + strconv.Itoa(e.position)
		operations = append(operations, ttlOperation{"test", path, node.Spec.Taints[e.position]}, ttlOperation{"remove", path, nil})
	}
	return encoded(operations)
}

// removalOfPatch returns the patch that removes taints of a ResourceSlicePatch, which are in
// order, if nothing was written to it since.
func removalOfPatch(patch *v1alpha1.ResourceSlicePatch, over []expired) ([]byte, error) {
	operations := []ttlOperation{{"test", "/metadata/uid", patch.UID}, {"test", "/metadata/resourceVersion", patch.ResourceVersion}}
	for _, e := range slices.Backward(over) {
		operations = append(operations, ttlOperation{"remove", "/spec/devices/taints/" + strconv.Itoa(e.position), nil})
	}
	return encoded(operations)
}

func encoded(operations []ttlOperation) ([]byte, error) {
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return body, nil
}
