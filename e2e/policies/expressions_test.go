package policies

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

// granting is a TolerationPolicy with one grant by an expression.
func granting(name, key, expression string) string {
	return fmt.Sprintf(`
kind: TolerationPolicy
metadata: {name: %s}
spec:
  taints: [{key: %s}]
  grants: [{expression: %q}]
`, name, key, expression)
}

func TestExpressionsSeeWhatThoseOfKubernetesSee(t *testing.T) {
	namespaceWith(t, "expressions", map[string]string{"team": "a"})
	alice, bob := tenant(t, "alice", "team-a"), tenant(t, "bob")
	expressions := map[string]string{
		"the request":       `request.userInfo.username == 'alice' && request.operation == 'CREATE' && request.namespace == 'expressions'`,
		"groups":            `'team-a' in request.userInfo.groups`,
		"the object":        `object.metadata.?labels.owner.orValue('') == 'alice'`,
		"no older object":   `oldObject == null && object.metadata.?labels.owner.orValue('') == 'alice'`,
		"the namespace":     `namespaceObject.metadata.labels.team == 'a' && request.userInfo.username == 'alice'`,
		"the toleration":    `toleration.key.endsWith('/x') && toleration.operator == 'Exists' && request.userInfo.username == 'alice'`,
		"the pod":           `pod.metadata.?labels[?'owner'].orValue('') == 'alice' && pod.spec.containers.size() == 1`,
		"no claim":          `claim == null && request.userInfo.username == 'alice'`,
		"who is authorized": `authorizer.group('tollgate.dev').resource('taints').name('expressions.example.com/x').check('tolerate').allowed()`,
		"quantities and IPs": `quantity('1Gi').isGreaterThan(quantity('1Mi')) && cidr('10.0.0.0/8').containsIP('10.1.1.1') &&
  request.userInfo.username == 'alice'`,
	}
	allow(t, "tolerate", userNamed("alice"), "expressions.example.com/x")
	for name, expression := range expressions {
		t.Run(name, func(t *testing.T) {
			enforce(t, granting("expressions", "expressions.example.com/x", expression))
			pod := func(owner string) *corev1.Pod {
				p := podWith(exists("expressions.example.com/x", ""))
				p.Labels = map[string]string{"owner": owner}
				return p
			}
			eventuallyAllowed(t, func() error { return alice.admit(t, "expressions", pod("alice")) })
			requireRefused(t, bob.admit(t, "expressions", pod("bob")), policy.TolerationNotGranted, "TolerationPolicy/expressions")
		})
	}
}

func TestD01AnExpressionThatCostsTooMuchGrantsNothingAndIsQuick(t *testing.T) {
	namespaces(t, "costly")
	enforce(t, granting("costly", "costly.example.com/x",
		`object.spec.containers.all(a, object.spec.containers.all(b, object.spec.containers.all(c, a.name + b.name + c.name != '')))`))
	pod := podWith(exists("costly.example.com/x", ""))
	pod.Spec.Containers = nil
	for i := range 600 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: strings.Repeat("i", 200)})
	}
	var err error
	becomes(t, "a refusal before the API server gives up", func() error {
		start := time.Now()
		err = tenant(t, "alice").admit(t, "costly", pod)
		if took := time.Since(start); took >= 3*time.Second {
			return fmt.Errorf("it took %s: %w", took, err)
		}
		return nil
	})
	requireRefused(t, err, policy.TolerationNotGranted, "TolerationPolicy/costly", "cost")
	t.Run("the same expression serves objects of a usual size", func(t *testing.T) {
		require.NoError(t, tenant(t, "alice").admit(t, "costly", podWith(exists("costly.example.com/x", ""))))
	})
	t.Run("one that fails grants nothing, and the denial says so", func(t *testing.T) {
		enforce(t, granting("failing", "failing.example.com/x", `object.spec.nothing.there == 'x'`))
		requireRefused(t, tenant(t, "alice").admit(t, "costly", podWith(exists("failing.example.com/x", ""))),
			policy.TolerationNotGranted, "TolerationPolicy/failing", "no such key: nothing")
	})
}

func TestD03PoliciesThatDoNotCompileAreRefusedWithThePosition(t *testing.T) {
	tests := map[string]struct {
		policy string
		says   []string
	}{
		"an expression that is no CEL": {
			granting("bad", "bad.example.com/x", "object.spec ==\n  &&"), []string{"spec.grants[0].expression", "line 2"},
		},
		"an expression of the wrong type": {granting("bad", "bad.example.com/x", `'text'`), []string{"spec.grants[0].expression", "bool"}},
		"an unknown variable":             {granting("bad", "bad.example.com/x", `secret.data == ''`), []string{"spec.grants[0].expression", "secret"}},
		"a matchCondition": {`
kind: TolerationPolicy
metadata: {name: bad}
spec:
  taints: [{key: bad.example.com/x}]
  matchConditions: [{name: m, expression: "object."}]
`, []string{"spec.matchConditions[0].expression"}},
		"a messageExpression": {`
kind: TolerationPolicy
metadata: {name: bad}
spec:
  taints: [{key: bad.example.com/x}]
  messageExpression: "1 + 1"
`, []string{"spec.messageExpression", "string"}},
		"a setter": {`
kind: TaintPolicy
metadata: {name: bad}
spec:
  taints: [{key: bad.example.com/x}]
  setters: [{expression: "taint.key.startsWith("}]
`, []string{"spec.setters[0].expression"}},
		"a placement": {`
kind: PlacementPolicy
metadata: {name: bad}
spec:
  match: {matchConditions: [{name: m, expression: "pods"}]}
  pod: {schedulingGates: [bad.example.com/x]}
`, []string{"spec.match.matchConditions[0].expression"}},
		"D10 a reach for another object": {
			granting("bad", "bad.example.com/x", `lookup('v1', 'Secret', 'kube-system', 'token') != null`), []string{"lookup"},
		},
		"D10 a reach for the network": {granting("bad", "bad.example.com/x", `http.get('http://example.com').status == 200`), []string{"http"}},
		"a field that does not exist": {`
kind: GatePolicy
metadata: {name: bad}
spec: {gates: [bad.example.com/x], owner: []}
`, []string{"owner"}},
		"a grant that names nobody": {`
kind: TolerationPolicy
metadata: {name: bad}
spec:
  taints: [{key: bad.example.com/x}]
  grants: [{objectSelector: {matchLabels: {a: b}}}]
`, []string{"a grant names who it is for"}},
		"a setter that names nobody": {`
kind: TaintPolicy
metadata: {name: bad}
spec:
  taints: [{key: bad.example.com/x}]
  setters: [{operations: [Add]}]
`, []string{"a setter names who it is for"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { requireInvalid(t, admin(t).write(t, objects(t, tt.policy)[0]), tt.says...) })
	}
}

func TestD06PoliciesHaveBounds(t *testing.T) {
	list := func(count int, item func(i int) string) string {
		var items []string
		for i := range count {
			items = append(items, item(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	name := func(i int) string { return fmt.Sprintf("name-%d", i) }
	tooLarge := map[string]string{
		"taints":      `spec: {taints: ` + list(10_000, func(i int) string { return fmt.Sprintf("{key: bounds.example.com/k%d}", i) }) + `}`,
		"namespaces":  `spec: {taints: [{key: bounds.example.com/x}], grants: [{namespaces: ` + list(10_000, name) + `}]}`,
		"grants":      `spec: {taints: [{key: bounds.example.com/x}], grants: ` + list(10_000, func(i int) string { return fmt.Sprintf("{namespaces: [n%d]}", i) }) + `}`,
		"expressions": `spec: {taints: [{key: bounds.example.com/x}], grants: [{expression: "` + strings.Repeat("true && ", 4_000) + `true"}]}`,
		"a megabyte":  `spec: {taints: [{key: bounds.example.com/x}], message: "` + strings.Repeat("m", 1_000_000) + `"}`,
	}
	for what, spec := range tooLarge {
		t.Run(what, func(t *testing.T) {
			err := admin(t).write(t, objects(t, "kind: TolerationPolicy\nmetadata: {name: bounds}\n"+spec)[0])
			require.True(t, apierrors.IsInvalid(err), "%v", err)
		})
	}
	t.Run("one with all that is allowed is in force", func(t *testing.T) {
		enforce(t, "kind: TolerationPolicy\nmetadata: {name: bounds}\nspec: {taints: "+
			list(64, func(i int) string { return fmt.Sprintf("{key: bounds.example.com/k%d}", i) })+", grants: "+
			list(64, func(i int) string {
				return "{namespaces: " + list(256, func(j int) string { return fmt.Sprintf("n%d-%d", i, j) }) + "}"
			})+"}")
		namespaces(t, "bounds")
		requireRefused(t, tenant(t, "alice").admit(t, "bounds", podWith(exists("", ""))), policy.TolerationNotGranted, "TolerationPolicy/bounds")
	})
}

func TestC26OfTwoPoliciesTheStricterCounts(t *testing.T) {
	namespaces(t, "both", "one")
	enforce(t, `
kind: TolerationPolicy
metadata: {name: overlap-a}
spec:
  taints: [{key: overlap.example.com/*}]
  grants: [{namespaces: [both, one], maxTolerationSeconds: 600}]
---
kind: TolerationPolicy
metadata: {name: overlap-b}
spec:
  taints: [{key: overlap.example.com/x}]
  grants: [{namespaces: [both], maxTolerationSeconds: 60}, {namespaces: [both], maxTolerationSeconds: 30}]
`)
	alice := tenant(t, "alice")
	require.NoError(t, alice.admit(t, "both", podWith(forSeconds("overlap.example.com/x", 60))))
	requireRefused(t, alice.admit(t, "both", podWith(forSeconds("overlap.example.com/x", 61))), policy.TolerationTooLong, "TolerationPolicy/overlap-b", "60")
	requireRefused(t, alice.admit(t, "one", podWith(forSeconds("overlap.example.com/x", 1))), policy.TolerationNotGranted, "TolerationPolicy/overlap-b")
	require.NoError(t, alice.admit(t, "one", podWith(forSeconds("overlap.example.com/y", 600))))
	t.Run("C17 a wildcard is held to both, and seconds out of all bounds to what they mean", func(t *testing.T) {
		err := alice.admit(t, "both", podWith(exists("", "")))
		requireRefused(t, err, policy.TolerationTooLong, "TolerationPolicy/overlap-a", "TolerationPolicy/overlap-b", "every taint")
		for _, seconds := range []int64{-1, 0} {
			require.NoError(t, alice.admit(t, "both", podWith(forSeconds("overlap.example.com/x", seconds))), "it leaves at once")
		}
		requireRefused(t, alice.admit(t, "both", podWith(forSeconds("overlap.example.com/x", 1<<40))), policy.TolerationTooLong)
	})
}

func TestAMessageIsWrittenForTheUser(t *testing.T) {
	namespaces(t, "messages")
	enforce(t, `
kind: TolerationPolicy
metadata: {name: messages}
spec:
  taints: [{key: messages.example.com/*}]
  message: this is not shown
  messageExpression: "'ask ' + toleration.key.split('/')[1] + '@example.com for ' + request.namespace"
---
kind: TolerationPolicy
metadata: {name: messages-fallback}
spec:
  taints: [{key: fallback.example.com/*}]
  message: ask the platform team
  messageExpression: "string(object.spec.nothing)"
`)
	alice := tenant(t, "alice")
	err := alice.admit(t, "messages", podWith(exists("messages.example.com/banana", "")))
	requireRefused(t, err, policy.TolerationNotGranted, "ask banana@example.com for messages")
	require.NotContains(t, err.Error(), "this is not shown")
	requireRefused(t, alice.admit(t, "messages", podWith(exists("fallback.example.com/x", ""))), policy.TolerationNotGranted, "ask the platform team")
	t.Run("programs read causes instead", func(t *testing.T) {
		var status apierrors.APIStatus
		require.ErrorAs(t, err, &status)
		causes, encodeErr := json.Marshal(status.Status().Details.Causes)
		require.NoError(t, encodeErr)
		require.Contains(t, string(causes), `"reason":"TolerationNotGranted"`)
		require.Contains(t, string(causes), `"field":"spec.tolerations[0]"`)
		require.Equal(t, metav1.StatusReasonForbidden, status.Status().Reason)
	})
}
