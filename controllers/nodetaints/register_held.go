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
	// holdPause is the delay between two checks of a node whose taints are held back. An
	// approval takes effect at the next check.
	holdPause = 30 * time.Second
	// holdReportInterval is the delay between two events about one held node.
	holdReportInterval = 10 * time.Minute
)

// limitChecker checks taints for a node against the limits of TaintPolicies. The recent
// writes of all users count; taints within the limits count from then on. *preview.Limits
// implements it.
type limitChecker interface {
	Node(ctx context.Context, set *taint.Set, w preview.NodeWrite) (preview.Verdict, error)
}

// heldNodes are the nodes whose taints are held back, with the time of the last report.
type heldNodes struct {
	mu       sync.Mutex
	reported map[types.UID]time.Time
	count    prometheus.Gauge
}

// reset removes all nodes.
func (h *heldNodes) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reported = map[types.UID]time.Time{}
	h.count.Set(0)
}

// add adds a node. It returns whether to report the hold.
func (h *heldNodes) add(uid types.UID, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	reported, ok := h.reported[uid]
	if ok && now.Sub(reported) < holdReportInterval {
		return false
	}
	h.reported[uid] = now
	h.count.Set(float64(len(h.reported)))
	return true
}

// remove removes a node.
func (h *heldNodes) remove(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.reported, uid)
	h.count.Set(float64(len(h.reported)))
}

// addEvicting adds taints that evict pods to a node, within the limits: otherwise a user
// who may label nodes could evict all pods of the cluster through a policy.
func (c *RegisterController) addEvicting(ctx context.Context, set *taint.Set, node *corev1.Node, missing []taint.Registered) (time.Duration, error) {
	if wait := c.evicting.take(node.UID, c.options.Local.Now()); wait > 0 {
		return wait, nil
	}
	verdict, err := c.options.Limits.Node(ctx, set, preview.NodeWrite{
		Node: node, Given: nodeTaints(missing, c.options.Clock.Now()), User: authenticationv1.UserInfo{Username: c.options.Self},
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
		c.hold(ctx, node, missing, denials(verdict.Findings))
		return holdPause, nil
	}
	_, err = c.patchNode(ctx, node, missing)
	verdict.Settle(err == nil)
	if err == nil {
		c.heldNodes.remove(node.UID)
	}
	return 0, err
}

// denials returns the findings that deny the write, as text.
func denials(findings []policy.Finding) string {
	var why []string
	for i := range findings {
		if findings[i].Denies() {
			why = append(why, findings[i].String())
		}
	}
	return strings.Join(why, "; ")
}

// hold reports that the taints of a node are held back, and why.
func (c *RegisterController) hold(ctx context.Context, node *corev1.Node, missing []taint.Registered, why string) {
	if !c.heldNodes.add(node.UID, c.options.Local.Now()) {
		return
	}
	policies, taints := describe(missing)
	c.options.Recorder.Eventf(referenceTo(node), corev1.EventTypeWarning, "TaintHeld",
		"%s registers %s, which is held back: %s", policies, taints, why)
	logr.FromContextOrDiscard(ctx).Info("held registered taints back, for the pods that they would evict",
		"node", node.Name, "taints", taints, "policies", policies, "reason", why)
}

// nodeTaints returns taints with timeAdded now, in whole seconds.
func nodeTaints(missing []taint.Registered, now time.Time) []corev1.Taint {
	at := metav1.NewTime(now.Truncate(time.Second))
	taints := make([]corev1.Taint, 0, len(missing))
	for i := range missing {
		t := &missing[i].Taint
		taints = append(taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: &at})
	}
	return taints
}
