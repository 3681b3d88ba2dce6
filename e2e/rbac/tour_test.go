package rbac

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// tour does everything once that Tollgate has to do with. It waits for what Tollgate does,
// and looks no closer: that is for the tests of each of these things.
func tour(t *testing.T) {
	t.Helper()
	kubectl(t, nil, "apply", "-f", "testdata/policies.yaml")
	inForce(t)
	t.Run("workloads of each kind", tourOfWorkloads)
	t.Run("reports", tourOfReports)
	t.Run("nodes", tourOfNodes)
	t.Run("evictions", tourOfEvictions)
	t.Run("a breaker and an approval", tourOfBreakers)
	t.Run("devices", tourOfDevices)
	t.Run("patches of slices", tourOfPatches)
	t.Run("what is not there yet", tourOfAbsence)
	t.Run("certificates", tourOfCertificates)
}

// tourOfWorkloads has controllers make pods that tolerate what only the author may.
func tourOfWorkloads(t *testing.T) {
	kubectl(t, paul, "apply", "-f", "testdata/workloads.yaml")
	for _, kind := range []string{"deployment", "daemonset", "statefulset"} {
		kubectl(t, nil, "-n", "tour", "rollout", "status", "--timeout=90s", kind+"/"+kind)
	}
	kubectl(t, nil, "-n", "tour", "wait", "--for=condition=Complete", "--timeout=90s", "job/job")
	becomes(t, "the replication controller has its pod", is("1"),
		"-n", "tour", "get", "rc/replicationcontroller", "-o", "jsonpath={.status.readyReplicas}")

	// The pod that comes in the place of another names the revision of its set. What the
	// first of them inherited is remembered for a moment.
	revisions := grant{group: "apps", resource: "controllerrevisions", verb: "get"}
	for begun := time.Now(); ; {
		kubectl(t, nil, "-n", "tour", "delete", "pod", "statefulset-0")
		becomes(t, "the pod is back", is("Running"), "-n", "tour", "get", "pod", "statefulset-0", "-o", "jsonpath={.status.phase}")
		if len(asked(t, begun, func(event *auditv1.Event) bool { return revisions.covers(askedFor(event)) })) > 0 {
			break
		}
		require.Less(t, time.Since(begun), patience, "nobody asks for the revision of the set")
	}

	// The CronJob's time comes once a year.
	uid := kubectl(t, nil, "-n", "tour", "get", "cronjob/cronjob", "-o", "jsonpath={.metadata.uid}")
	write(t, as("cronjob-controller"), "create", `apiVersion: batch/v1
kind: Job
metadata:
  name: of-the-cronjob
  namespace: tour
  ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: cronjob, controller: true, uid: `+uid+`}]
spec:
  template:
    spec:
      restartPolicy: Never
      tolerations: [{key: tour.example.com/x, operator: Exists}]
      containers: [{name: c, image: image}]
`, "--dry-run=server")
}

// tourOfReports has a pod that stood before its policy reported, the policy changed, and the pod
// deleted.
func tourOfReports(t *testing.T) {
	write(t, alice, "create", podOn("tour", "early", controlplane.NodeName(1), "  tolerations: [{key: late.example.com/x, operator: Exists}]"))
	const policy = `kind: TolerationPolicy
metadata: {name: late}
spec: {taints: [{key: late.example.com/x}], grants: [{namespaces: [%s]}]}
`
	report := []string{"-n", "tour", "get", "reports.openreports.io/tollgate", "-o", "jsonpath={.results[*].message}"}
	for _, namespace := range []string{"elsewhere", "anywhere"} {
		write(t, nil, "apply", fmt.Sprintf(policy, namespace))
		becomes(t, "the pod is reported", has(namespace), report...)
	}
	kubectl(t, nil, "-n", "tour", "delete", "pod", "early")
	gone(t, "-n", "tour", "reports.openreports.io/tollgate")
	kubectl(t, nil, "delete", "tolerationpolicy", "late")
}

// tourOfNodes has a node registered, a taint of a node end, and the authorizer asked.
func tourOfNodes(t *testing.T) {
	node := controlplane.NodeName(1)
	kubectl(t, nil, "label", "node", node, "pool=tour")
	becomes(t, "the node is given its taint", has("tour.example.com/pool"), "get", "node", node, "-o", "jsonpath={.spec.taints}")
	kubectl(t, nil, "label", "node", node, "pool-")
	kubectl(t, paul, "taint", "node", node, "tour.example.com/pool-")

	old := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	kubectl(t, paul, "patch", "node", node, "--type=strategic",
		`-p={"spec":{"taints":[{"key":"short.example.com/x","effect":"NoSchedule","timeAdded":"`+old+`"}]}}`)
	becomes(t, "the taint ends", func(said string) bool { return !strings.Contains(said, "short.example.com") },
		"get", "node", node, "-o", "jsonpath={.spec.taints}")

	// Whether alice may is a question to the authorizer.
	write(t, alice, "create", podOn("tour", "alices", node, "  tolerations: [{key: tour.example.com/x, operator: Exists}]"), "--dry-run=server")
}

// tourOfEvictions has pods leave by deletion, by the Eviction API, and not after all.
func tourOfEvictions(t *testing.T) {
	node := controlplane.NodeName(2)
	write(t, alice, "create", podOn("tour", "waits", node, "  tolerations: [{key: plain.example.com/x, operator: Exists, effect: NoExecute, tolerationSeconds: 3600}]"))
	// What is said twice is one event that is changed.
	for i := range 2 {
		leaves := fmt.Sprintf("leaves-%d", i)
		write(t, alice, "create", podOn("tour", leaves, node, ""))
		taint(t, node, "plain.example.com/x=:NoExecute")
		gone(t, "-n", "tour", "pod/"+leaves)
		kubectl(t, paul, "taint", "node", node, "plain.example.com/x-")
		becomes(t, fmt.Sprintf("it was said %d times that the pod may stay", i+1), has(strconv.Itoa(i+1)), "get", "events", "-n", "tour",
			"--field-selector=involvedObject.name=waits", "-o", "jsonpath={.items[*].count}")
	}

	write(t, alice, "create", podOn("tour", "guarded", node, ""))
	write(t, alice, "create", `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded, namespace: tour}
spec: {minAvailable: 0, selector: {matchLabels: {app: guarded}}}
`)
	taint(t, node, "gentle.example.com/x=:NoExecute")
	gone(t, "-n", "tour", "pod/guarded")
	kubectl(t, paul, "taint", "node", node, "gentle.example.com/x-")
}

// tourOfBreakers has a breaker hold what an approval lets go.
func tourOfBreakers(t *testing.T) {
	node := controlplane.NodeName(3)
	for i := range 3 {
		write(t, alice, "create", podOn("tour", fmt.Sprintf("broken-%d", i), node, ""))
	}
	kubectl(t, nil, "-n", "tour", "wait", "--for=condition=Ready", "--timeout=90s", "pod/broken-0", "pod/broken-1", "pod/broken-2")
	taint(t, node, "broken.example.com/x=:NoExecute")
	becomes(t, "the breaker holds", has("T"), "get", "evictionpolicy", "tour-breaker", "-o", "jsonpath={.status.breaker.tripped}")
	write(t, nil, "create", `
kind: EvictionApproval
metadata: {name: tour}
spec: {node: `+node+`, taint: {key: broken.example.com/x, effect: NoExecute}, maxPods: 10}
`)
	gone(t, "-n", "tour", "pod/broken-0", "pod/broken-1", "pod/broken-2")
	becomes(t, "the approval says so", has("T"), "get", "evictionapproval", "tour", "-o", "jsonpath={.status.usedAt}")
	kubectl(t, paul, "taint", "node", node, "broken.example.com/x-")
}

// rule is a rule over a device.
func rule(name, key, value, device string) string {
	return `apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: ` + name + `}
spec:
  deviceSelector: {driver: gpu.tour.example.com, pool: pool, device: ` + device + `}
  taint: {key: ` + key + `, value: "` + value + `", effect: NoExecute}
`
}

// tourOfDevices has claims made, pods evicted from devices, the twin of a rule made,
// changed and taken away, and a rule end.
func tourOfDevices(t *testing.T) {
	kubectl(t, paul, "create", "-f", "testdata/devices.yaml")
	kubectl(t, nil, "-n", "tour", "wait", "--for=condition=Ready", "--timeout=90s",
		"pod/of-the-group", "pod/with-its-own", "pod/with-a-single-one")
	device := kubectl(t, nil, "-n", "tour", "get", "resourceclaim", "single", "-o", "jsonpath={.status.allocation.devices.results[0].device}")

	write(t, nil, "create", rule("bounded", "fault.example.com/bounded", "a", device))
	becomes(t, "the rule has a twin", has("a"), "get", "devicetaintrule", "bounded-noschedule", "-o", "jsonpath={.spec.taint.value}")
	kubectl(t, nil, "patch", "devicetaintrule", "bounded", "--type=merge", `-p={"spec":{"taint":{"value":"b"}}}`)
	becomes(t, "the twin follows", has("b"), "get", "devicetaintrule", "bounded-noschedule", "-o", "jsonpath={.spec.taint.value}")
	kubectl(t, nil, "patch", "devicetaintrule", "bounded", "--type=merge", `-p={"spec":{"taint":{"effect":"None"}}}`)
	gone(t, "devicetaintrule/bounded-noschedule")

	write(t, nil, "create", rule("fault", "fault.example.com/x", "", device))
	gone(t, "-n", "tour", "pod/with-a-single-one")
	becomes(t, "the rule says how far it is", has("False"),
		"get", "devicetaintrule", "fault", "-o", `jsonpath={.status.conditions[?(@.type=="EvictionInProgress")].status}`)
	kubectl(t, nil, "delete", "devicetaintrule", "fault", "bounded")

	kubectl(t, nil, "patch", "resourceslice", "gpu.tour.example.com", "--type=json", `-p=[
		{"op":"add","path":"/spec/devices/0/taints","value":[{"key":"fault.example.com/x","effect":"NoExecute"}]},
		{"op":"add","path":"/spec/devices/1/taints","value":[{"key":"fault.example.com/x","effect":"NoExecute"}]},
		{"op":"add","path":"/spec/devices/2/taints","value":[{"key":"fault.example.com/x","effect":"NoExecute"}]},
		{"op":"add","path":"/spec/devices/3/taints","value":[{"key":"fault.example.com/x","effect":"NoExecute"}]}]`)
	gone(t, "-n", "tour", "pod/with-its-own", "pod/of-the-group")

	old := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	write(t, paul, "create", strings.TrimSuffix(rule("short", "short.example.com/x", "", "none-of-that-name"), "}\n")+`, timeAdded: "`+old+`"}`)
	gone(t, "devicetaintrule/short")
}

// tourOfPatches has the rule of a patch made, changed and taken away, and the scheduler
// looked for that would apply the rest.
func tourOfPatches(t *testing.T) {
	const patch = `
kind: ResourceSlicePatch
metadata: {name: tour}
spec:
  devices:
    filter: {driver: gpu.tour.example.com, pool: pool}
    taints: [{key: patched.example.com/x, value: %s, effect: NoSchedule}]
    attributes: {example.com/fabric: {string: slow}}
`
	rules := []string{"get", "devicetaintrules", "-l", "tollgate.dev/resource-slice-patch", "-o", "jsonpath={.items[*].spec.taint.value}"}
	for _, value := range []string{"a", "b"} {
		write(t, nil, "apply", fmt.Sprintf(patch, value))
		becomes(t, "the patch has its rule", has(value), rules...)
	}
	becomes(t, "the patch says what is missing", has("NoScheduler"),
		"get", "resourceslicepatch", "tour", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`)
	kubectl(t, nil, "delete", "resourceslicepatch", "tour")
	becomes(t, "the rule goes with the patch", is(""), rules...)

	old := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	const short = `
kind: ResourceSlicePatch
metadata: {name: %s}
spec:
  devices:
    filter: {driver: gpu.tour.example.com, pool: none}
    taints: [{key: short.example.com/x, effect: NoSchedule, timeAdded: "%s"}]
    attributes: {%s}
`
	write(t, paul, "create", fmt.Sprintf(short, "short", old, ""))
	gone(t, "resourceslicepatch/short")
	write(t, paul, "create", fmt.Sprintf(short, "short-and-more", old, "example.com/fabric: {string: slow}"))
	becomes(t, "the taint is taken from the patch", is("[]"), "get", "resourceslicepatch", "short-and-more", "-o", "jsonpath={.spec.devices.taints}")
	kubectl(t, nil, "delete", "resourceslicepatch", "short-and-more")
}

// tourOfAbsence asks for pods of objects that no cache knows of.
func tourOfAbsence(t *testing.T) {
	write(t, alice, "create", `apiVersion: v1
kind: Pod
metadata: {name: early, namespace: tour}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: not-there}]
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}}
  containers: [{name: c, image: image, resources: {claims: [{name: gpu}]}}]
`, "--dry-run=server")

	// The API server refuses pods of a RuntimeClass that is not there, and knows of new ones
	// a moment before Tollgate or after it. So that moment is played.
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{
		"uid":"1","kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},"operation":"CREATE",
		"name":"early","namespace":"tour","userInfo":{"username":"alice","groups":["e2e:tenants"]},
		"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"early","namespace":"tour"},"spec":{
			"runtimeClassName":"not-there","tolerations":[{"key":"tour.example.com/x","operator":"Exists"}],
			"containers":[{"name":"c","image":"image"}]}}}}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, webhook.WebhookURL+"/validate", strings.NewReader(review))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// tourOfCertificates waits until the serving certificate has been renewed.
func tourOfCertificates(t *testing.T) {
	get := []string{"-n", "tollgate-system", "get", "secret", "tollgate-serving-certificate", "-o", "jsonpath={.metadata.resourceVersion}"}
	before := kubectl(t, nil, get...)
	becomes(t, "the certificate is renewed", func(said string) bool { return said != before }, get...)
}

// tourOfWindow has the twin of a node's taint set and taken away in mode Window.
func tourOfWindow(t *testing.T) {
	node := controlplane.NodeName(4)
	write(t, nil, "create", `
kind: EvictionPolicy
metadata: {name: tour-window}
spec:
  taints: [{key: window.example.com/x}]
  inject: {seconds: 600}
`)
	inForce(t)
	write(t, alice, "create", podOn("tour", "windowed", node, ""))
	taint(t, node, "window.example.com/x=:NoExecute")
	becomes(t, "the taint has a twin", has("NoSchedule"), "get", "node", node, "-o", "jsonpath={.spec.taints[*].effect}")
	gone(t, "-n", "tour", "pod/windowed")
	kubectl(t, paul, "taint", "node", node, "window.example.com/x:NoExecute-")
	becomes(t, "the twin goes with the taint", func(said string) bool { return !strings.Contains(said, "window.example.com") },
		"get", "node", node, "-o", "jsonpath={.spec.taints}")
}
