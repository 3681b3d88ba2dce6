package nodetaints

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

const (
	// holdPause is how long a node whose taints are held back is left alone. An approval
	// counts when it is over.
	holdPause = 30 * time.Second
	// sayAgain is after how long it is said again that they are.
	sayAgain = 10 * time.Minute
)

// judge says what the limits of TaintPolicies have against taints that a node is to be
// given: all that writes of others hit lately counts, and what is found to be within the
// limits counts from then on. A *preview.Limits does.
type judge interface {
	Node(ctx context.Context, set *taint.Set, w preview.NodeWrite) (preview.Verdict, error)
}

// held are the nodes whose taints are held back, and when that was last said.
type held struct {
	mu    sync.Mutex
	said  map[types.UID]time.Time
	count prometheus.Gauge
}

// reset forgets all nodes.
func (h *held) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = map[types.UID]time.Time{}
	h.count.Set(0)
}

// hold takes in a node. It returns whether that is to be said.
func (h *held) hold(uid types.UID, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	said, ok := h.said[uid]
	if ok && now.Sub(said) < sayAgain {
		return false
	}
	h.said[uid] = now
	h.count.Set(float64(len(h.said)))
	return true
}

// leave forgets a node.
func (h *held) leave(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.said, uid)
	h.count.Set(float64(len(h.said)))
}

// evict gives a node taints that evict pods, unless that is more than a limit allows:
// whoever may label nodes would else empty the cluster by way of a policy.
func (c *RegisterController) evict(ctx context.Context, set *taint.Set, node *corev1.Node, missing []taint.Registered) (time.Duration, error) {
	if wait := c.evicting.take(node.UID, c.options.Local.Now()); wait > 0 {
		return wait, nil
	}
	verdict, err := c.options.Limits.Node(ctx, set, preview.NodeWrite{
		Node: node, Given: native(missing, c.options.Clock.Now()), User: authenticationv1.UserInfo{Username: c.options.Self},
	})
	if errors.Is(err, preview.ErrUnfollowed) {
		c.hold(ctx, node, missing, "how many pods that evicts cannot be known, as "+err.Error())
		return holdPause, nil
	}
	if err != nil {
		return 0, fmt.Errorf("hold taints of node %s against limits: %w", node.Name, err)
	}
	if verdict.Exceeded() {
		verdict.Settle(false)
		c.hold(ctx, node, missing, because(verdict.Findings))
		return holdPause, nil
	}
	_, err = c.taint(ctx, node, missing)
	verdict.Settle(err == nil)
	if err == nil {
		c.held.leave(node.UID)
	}
	return 0, err
}

// because says which limits forbid something, and how to have it approved.
func because(findings []policy.Finding) string {
	var why []string
	for i := range findings {
		if findings[i].Denies() {
			why = append(why, findings[i].String())
		}
	}
	return strings.Join(why, "; ")
}

// hold says that taints are held back, and why.
func (c *RegisterController) hold(ctx context.Context, node *corev1.Node, missing []taint.Registered, why string) {
	if !c.held.hold(node.UID, c.options.Local.Now()) {
		return
	}
	who, what := words(missing)
	c.options.Recorder.Eventf(referenceTo(node), corev1.EventTypeWarning, "TaintHeld",
		"%s registers %s, which is held back: %s", who, what, why)
	logr.FromContextOrDiscard(ctx).Info("held registered taints back, for the pods that they would evict",
		"node", node.Name, "taints", what, "policies", who, "reason", why)
}

// native returns taints as a node has them, in whole seconds of now.
func native(missing []taint.Registered, now time.Time) []corev1.Taint {
	at := metav1.NewTime(now.Truncate(time.Second))
	taints := make([]corev1.Taint, 0, len(missing))
	for i := range missing {
		t := &missing[i].Taint
		taints = append(taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: &at})
	}
	return taints
}
