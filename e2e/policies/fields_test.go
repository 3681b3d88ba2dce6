package policies

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// everyField has every field of every kind.
const everyField = `
kind: TolerationPolicy
metadata: {name: every-field}
spec:
  taints:
  - {target: Node, key: fields.example.com/a, values: [v], effects: [NoSchedule, NoExecute]}
  - {target: Device, key: fields.example.com/*, deviceClasses: [fields.example.com]}
  grants:
  - namespaces: [fields, "fields-*"]
  - namespaceSelector: {matchLabels: {fields.example.com/tier: system}}
    objectSelector: {matchLabels: {app: monitor}}
    subjects: [{kind: ServiceAccount, name: operator, namespace: infra}, {kind: Group, name: platform}, {kind: User, name: alice}]
    maxTolerationSeconds: 600
  - rbac: true
  - expression: "pod.metadata.?labels[?'maintenance'].orValue('') == 'true' && request.userInfo.username.startsWith('admin:')"
  matchConditions:
  - {name: not-here, expression: "request.namespace != 'nowhere'"}
  validationActions: [Warn, Audit]
  message: dedicated nodes have owners
  messageExpression: "'ask for ' + toleration.key"
---
kind: PlacementPolicy
metadata: {name: every-field}
spec:
  match:
    namespaces: [fields]
    namespaceSelector: {}
    podSelector: {}
    resources: [fields.example.com/gpu]
    deviceClasses: [fields.example.com]
    matchConditions:
    - {name: by-people, expression: "!request.userInfo.username.startsWith('system:')"}
  pod:
    tolerations: [{key: fields.example.com/a, operator: Equal, value: v}]
    nodeSelector: {fields.example.com/pool: a}
    nodeAffinity: [{key: zone, operator: In, values: [a]}]
    topologySpread: {nodeTaintsPolicy: Honor, nodeAffinityPolicy: Honor}
    schedulingGates: [fields.example.com/gate]
  claim:
    tolerations: [{key: fields.example.com/degraded, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]
---
kind: PlacementPolicy
metadata: {name: every-field-of-a-guard}
spec:
  match:
    namespaces: [fields]
    podSelector: {matchLabels: {app: fields}}
  guard:
    taints: [{key: fields.example.com/guarded, value: v, effect: NoSchedule}]
    grants: [{rbac: true}]
    register:
      nodeSelector: {matchLabels: {fields.example.com/pool: guarded}}
      reconcile: true
    setters: [{subjects: [{kind: Group, name: sre}], operations: [Add]}]
    validationActions: [Warn, Audit]
    message: dedicated nodes have owners
---
kind: TaintPolicy
metadata: {name: every-field}
spec:
  taints:
  - {target: Node, key: "fields.example.com/*"}
  - {target: Device, key: "*", drivers: [fields.example.com]}
  setters:
  - subjects: [{kind: Group, name: sre}]
    operations: [Add, Change, Remove]
  - rbac: true
  - expression: "operation == 'Remove' && taint.key.startsWith('fields.example.com/temporary')"
  matchConditions:
  - {name: not-here, expression: "request.name != 'nowhere'"}
  register:
  - nodeSelector: {matchLabels: {fields.example.com/pool: a}}
    taints: [{key: fields.example.com/a, value: v, effect: NoSchedule}]
    reconcile: true
  limits:
    maxAffectedPods: 50
    maxAffectedPercent: 10
    requireSelector: true
    requirePreview: false
    maxTimeAddedSkew: 60s
    window: 10m
  ttl: 24h
  validationActions: [Deny]
  message: ask the SRE team
---
kind: GatePolicy
metadata: {name: every-field}
spec:
  gates: [fields.example.com/queue, "other.example.com/*"]
  owners: [{kind: ServiceAccount, name: queue-controller, namespace: queue-system}]
  validationActions: [Deny, Audit]
  message: wait for the queue
---
kind: EvictionPolicy
metadata: {name: every-field}
spec:
  taints:
  - {target: Node, key: "fields.example.com/*", values: [v], effects: [NoExecute]}
  - {target: Device, key: "*", drivers: [fields.example.com]}
  namespaceSelector: {matchLabels: {fields.example.com/tier: user}}
  podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [monitor]}]}
  priority: 10
  method: Evict
  deleteAfter: 1h
  mark: Before
  pace: {podsPerSecond: 5, burst: 20, scope: Selected}
  breaker: {maxPods: 50, maxPercent: 10, window: 10m, scope: Selected}
  protect:
    priorityClassNames: [system-node-critical]
    podSelector: {matchLabels: {stays: "true"}}
  paused: true
---
kind: EvictionPolicy
metadata: {name: every-field-of-a-window}
spec:
  taints:
  - {target: Device, key: fields.example.com/failed}
  method: Delete
  mark: WhileTerminating
  inject: {seconds: 300}
`

func TestEveryFieldOfEveryKindIsTakenAndInForce(t *testing.T) {
	enforce(t, everyField)
	seen := map[string]bool{"EvictionApproval": true} // below
	for _, written := range objects(t, everyField) {
		kind := written.GetKind()
		seen[kind] = true
		stored, err := admin(t).resource(t, ofTollgate(kind), "").Get(t.Context(), written.GetName(), metav1.GetOptions{})
		require.NoError(t, err)
		require.JSONEq(t, string(encode(t, written.Object["spec"])), string(encode(t, stored.Object["spec"])), kind)
	}
	require.Len(t, seen, len(resources), "every kind")
	approval := objects(t, `
kind: EvictionApproval
metadata: {name: every-field}
spec: {deviceTaintRule: rack-7, taint: {key: fields.example.com/broken, effect: NoExecute}, maxPods: 120, expiresAfter: 2h}
`)[0]
	require.NoError(t, admin(t).write(t, approval))
	approvals := admin(t).resource(t, ofTollgate("EvictionApproval"), "")
	t.Cleanup(func() { require.NoError(t, approvals.Delete(afterwards(t), "every-field", metav1.DeleteOptions{})) })
	t.Run("what was approved cannot be changed", func(t *testing.T) {
		_, err := approvals.Patch(t.Context(), "every-field", types.MergePatchType, []byte(`{"spec":{"maxPods":1000}}`), metav1.PatchOptions{})
		requireInvalid(t, err, "what was approved cannot be changed")
	})
}
