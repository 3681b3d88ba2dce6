package eviction

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 100 * time.Millisecond
	// parallel is how many requests a test makes at once.
	parallel = 16
)

func clientOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	return client
}

// eventually returns when check does without an error, and fails the test with the
// last one if that takes too long.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// namespaceOf creates a namespace for the test.
func namespaceOf(t *testing.T) string {
	t.Helper()
	namespace, err := shared.CreateNamespace(t.Context(), "eviction-")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, clientOf(t).CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	})
	return namespace
}

// podOn returns a pod for a node.
func podOn(node, name string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:    node,
			Tolerations: tolerations,
			Containers:  []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
}

// tolerate returns a toleration of the test's taint, for some seconds or, when
// negative, for ever.
func tolerate(seconds int64) corev1.Toleration {
	toleration := corev1.Toleration{Key: taintKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if seconds >= 0 {
		toleration.TolerationSeconds = &seconds
	}
	return toleration
}

// create creates pods and returns them by name.
func create(t *testing.T, namespace string, pods ...*corev1.Pod) map[string]*corev1.Pod {
	t.Helper()
	client := clientOf(t).CoreV1().Pods(namespace)
	created := make([]*corev1.Pod, len(pods))
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(parallel)
	for i, pod := range pods {
		group.Go(func() (err error) {
			created[i], err = client.Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, group.Wait())
	byName := map[string]*corev1.Pod{}
	for _, pod := range created {
		byName[pod.Name] = pod
	}
	return byName
}

// alive returns the pods of a namespace that are not on their way out, by name.
func alive(ctx context.Context, client kubernetes.Interface, namespace string) (map[string]*corev1.Pod, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			pods[list.Items[i].Name] = &list.Items[i]
		}
	}
	return pods, nil
}

// taintKey is the taint that the tests put on nodes.
const taintKey = "e2e.example.com/drain"

// taint puts the taint on nodes, all at once, and returns the time that each of
// them got. The taint goes when the test is over.
func taint(t *testing.T, nodes ...string) map[string]time.Time {
	t.Helper()
	const patch = `{"spec":{"taints":[{"key":"` + taintKey + `","effect":"NoExecute"}]}}`
	t.Cleanup(func() { untaint(t, nodes...) })
	stamped := make([]time.Time, len(nodes))
	patchNodes(t, patch, nodes, func(i int, node *corev1.Node) error {
		for _, got := range node.Spec.Taints {
			if got.Key == taintKey && got.TimeAdded != nil {
				stamped[i] = got.TimeAdded.Time
				return nil
			}
		}
		return fmt.Errorf("node %s: admission wrote no time: %v", node.Name, node.Spec.Taints)
	})
	times := map[string]time.Time{}
	for i, node := range nodes {
		times[node] = stamped[i]
	}
	return times
}

func untaint(t *testing.T, nodes ...string) {
	t.Helper()
	patchNodes(t, `{"spec":{"taints":null}}`, nodes, func(_ int, node *corev1.Node) error {
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("node %s: taints %v are left", node.Name, node.Spec.Taints)
		}
		return nil
	})
}

func patchNodes(t *testing.T, patch string, nodes []string, check func(int, *corev1.Node) error) {
	t.Helper()
	client := clientOf(t).CoreV1().Nodes()
	ctx := context.WithoutCancel(t.Context())
	var group errgroup.Group
	for i, name := range nodes {
		group.Go(func() error {
			node, err := client.Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil {
				return fmt.Errorf("patch node %s: %w", name, err)
			}
			return check(i, node)
		})
	}
	require.NoError(t, group.Wait())
}

// denyDeletions makes the API server refuse to delete pods of a namespace, to
// everybody, until allow is called. It needs a pod to try, which stays.
func denyDeletions(t *testing.T, namespace string) (tried map[string]*corev1.Pod, allow func()) {
	t.Helper()
	client := clientOf(t).AdmissionregistrationV1()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "not now"}},
		},
	}
	_, err := client.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        namespace,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	_, err = client.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
	remove := sync.OnceFunc(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, client.ValidatingAdmissionPolicyBindings().Delete(ctx, namespace, metav1.DeleteOptions{}))
		require.NoError(t, client.ValidatingAdmissionPolicies().Delete(ctx, namespace, metav1.DeleteOptions{}))
	})
	t.Cleanup(remove)
	tried = create(t, namespace, podOn("", "tried", tolerate(-1)))
	eventually(t, "deletions denied", func(ctx context.Context) error {
		err := clientOf(t).CoreV1().Pods(namespace).Delete(ctx, "tried", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("not denied")
		}
		return nil
	})
	return tried, remove
}

// nodesOf returns the names of the first nodes of the control plane.
func nodesOf(count int) []string {
	var names []string
	for i := range count {
		names = append(names, controlplane.NodeName(i+1))
	}
	return names
}

// asked returns what Tollgate asked the API server about the pods of a namespace,
// or about nodes when the namespace is empty, in the order of the answers.
func asked(t *testing.T, namespace string) []auditv1.Event {
	t.Helper()
	log, err := os.ReadFile(auditLog)
	require.NoError(t, err)
	var events []auditv1.Event
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		// The last line may be half written.
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.ObjectRef != nil && event.ObjectRef.Namespace == namespace {
			events = append(events, event)
		}
	}
	require.NoError(t, lines.Err())
	return events
}

// count counts requests by verb, resource and the code of the answer, such as
// "patch pods/status 200".
func count(events []auditv1.Event) map[string]int {
	counts := map[string]int{}
	for _, event := range events {
		resource := event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			resource += "/" + event.ObjectRef.Subresource
		}
		counts[fmt.Sprintf("%s %s %d", event.Verb, resource, event.ResponseStatus.Code)]++
	}
	return counts
}

// deletions returns when each pod was deleted, by name, and fails if one was
// deleted twice. A deletion that a busy API server does not answer in time counts if no
// later one does: it can have taken effect all the same, and the pod, which is seen to be
// gone, is not deleted again then.
func deletions(t *testing.T, events []auditv1.Event) map[string]time.Time {
	t.Helper()
	times, unanswered := map[string]time.Time{}, map[string]time.Time{}
	for _, event := range events {
		name := event.ObjectRef.Name
		switch {
		case event.Verb != "delete":
		case event.ResponseStatus.Code == http.StatusOK:
			require.NotContains(t, times, name, "deleted twice")
			times[name] = event.RequestReceivedTimestamp.Time
		case event.ResponseStatus.Code >= http.StatusInternalServerError:
			unanswered[name] = event.RequestReceivedTimestamp.Time
		}
	}
	maps.Copy(unanswered, times)
	return unanswered
}

// waitDeletions returns as deletions does, once there are as many: the log may be a moment
// behind what is seen of the pods. More of them are a failure.
func waitDeletions(t *testing.T, namespace string, want int) (times map[string]time.Time) {
	t.Helper()
	eventually(t, "deletions in the audit log", func(context.Context) error {
		if times = deletions(t, asked(t, namespace)); len(times) < want {
			return fmt.Errorf("%d of %d", len(times), want)
		}
		return nil
	})
	require.Len(t, times, want)
	return times
}

// waitRunning waits until all pods of a namespace run: what a kubelet still writes into
// them would get in between.
func waitRunning(t *testing.T, namespace string) {
	t.Helper()
	client := clientOf(t).CoreV1().Pods(namespace)
	eventually(t, "pods run", func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Running"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d do not", len(list.Items))
		}
		return err
	})
}

// metric returns the sum of a metric of Tollgate over all its labels; a histogram
// counts its samples.
func metric(ctx context.Context, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, tollgate.MetricsURL, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, fmt.Errorf("parse metrics: %w", err)
	}
	family, ok := families[name]
	if !ok {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum(family), nil
}

func sum(family *dto.MetricFamily) float64 {
	total := 0.0
	for _, m := range family.GetMetric() {
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return total
}
