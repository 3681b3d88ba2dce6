package installing

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// The labels by which the webhooks are told from the rest.
const (
	webhooksOnly = "-l=app.kubernetes.io/component=webhooks"
	overlay      = "self-signed"
)

func TestTollgateIsInstalledByKustomizeSurvivesAnOutageAndLeavesNothing(t *testing.T) {
	kustomization := filepath.Join(programs.Root, "deploy", "overlays", overlay)
	t.Cleanup(func() {
		kubectl(t, "delete", "-k", kustomization, "--ignore-not-found", "--timeout="+patience.String())
	})
	kubectl(t, "apply", "-k", kustomization)
	t.Run("it refuses nothing while no machine runs its pods, as when their image cannot be pulled", func(t *testing.T) {
		nothingIsRefused(t)
	})
	machines := startKubelets(t)
	admits(t)

	t.Run("it works with two replicas", func(t *testing.T) {
		deployment, err := client(t).AppsV1().Deployments(system).Get(t.Context(), "tollgate", metav1.GetOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 2, deployment.Status.ReadyReplicas)
		works(t)
	})
	t.Run("E10 webhooks that are edited or deleted are said", func(t *testing.T) { changesAreSaid(t, kustomization) })
	t.Run("E01 all replicas die and come back by themselves", replicasDie)
	t.Run("E02 E03 the API server and nodes come back while nobody answers", func(t *testing.T) {
		machines.stop()
		comesBack(t, machines)
	})
	t.Run("it leaves nothing and refuses nothing while it goes", func(t *testing.T) {
		leaves(t, func() {
			kubectl(t, "delete", "-k", kustomization, webhooksOnly)
			kubectl(t, "delete", "-k", kustomization, "--ignore-not-found")
		})
	})
}

func nothingIsRefused(t *testing.T) {
	t.Helper()
	client := client(t)
	for range 10 {
		require.Zero(t, registered(t))
		require.NoError(t, create(t.Context(), client, judged()))
		time.Sleep(200 * time.Millisecond)
	}
}

// refused tells whether a pod is refused because nobody answers.
func refused(ctx context.Context, client kubernetes.Interface) error {
	switch err := create(ctx, client, judged()); {
	case err == nil:
		return errors.New("a pod is not refused")
	case !strings.Contains(err.Error(), "failed calling webhook"):
		return fmt.Errorf("a pod is not refused for want of an answer: %w", err)
	}
	return nil
}

// changesAreSaid edits one configuration and deletes the other, as an administrator in need
// or an attacker would. The leader puts back what is edited, and the manifests what is deleted.
func changesAreSaid(t *testing.T, kustomization string) {
	t.Helper()
	since := time.Now()
	webhook := func(field string) string {
		return kubectl(t, "get", "validatingwebhookconfiguration", "tollgate", "-o", "jsonpath={.webhooks[0]."+field+"}")
	}
	before := webhook("failurePolicy")
	require.Equal(t, "Fail", before)
	kubectl(t, "patch", "validatingwebhookconfiguration", "tollgate", "--type=json",
		`-p=[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]`)
	said(t, since, "WebhooksEdited", "webhook "+webhook("name")+": failurePolicy changed")
	eventually(t, "the edit is taken back", func() error {
		if now := webhook("failurePolicy"); now != before {
			return errors.New("failurePolicy is " + now)
		}
		return nil
	})
	since = time.Now()
	kubectl(t, "delete", "mutatingwebhookconfiguration", "tollgate")
	said(t, since, "WebhooksDeleted", "MutatingWebhookConfiguration tollgate was deleted")
	since = time.Now()
	kubectl(t, "apply", "-k", kustomization)
	said(t, since, "WebhooksCreated", "MutatingWebhookConfiguration tollgate was created")
	admits(t)
}

// said waits for an event about Tollgate itself that was said after some time: the same may
// have been said before.
func said(t *testing.T, since time.Time, reason, text string) {
	t.Helper()
	client := client(t)
	since = since.Truncate(time.Second) // as times of events are
	eventually(t, "the event "+reason, func() error {
		events, err := client.CoreV1().Events(system).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Lease,reason=" + reason})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, text) {
				if !event.LastTimestamp.Time.Before(since) {
					return nil
				}
				err = errors.Join(err, fmt.Errorf("%q was said at %s", text, event.LastTimestamp))
			}
		}
		return errors.Join(err, fmt.Errorf("%d events with this reason, none says %q since %s", len(events.Items), text, since))
	})
}

// replicasDie deletes all pods at once and without grace.
func replicasDie(t *testing.T) {
	client := client(t)
	before, err := client.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	require.NoError(t, err)
	require.NotEmpty(t, before.Items)
	// The pods that replace them may answer within a second, so it is asked all the while.
	noticed := make(chan error, 1)
	go func() {
		noticed <- wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			return refused(ctx, client) == nil, nil
		})
	}()
	kubectl(t, "delete", "pods", "-n", system, "-l", selector, "--grace-period=0", "--force", "--wait=false")
	require.NoError(t, <-noticed, "pods elsewhere are refused")
	admits(t)
	after, err := client.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	require.NoError(t, err)
	for _, pod := range after.Items {
		for _, old := range before.Items {
			require.NotEqual(t, old.UID, pod.UID)
		}
	}
}

// comesBack is called when no pod of Tollgate runs any more, and nobody is there to start
// one.
func comesBack(t *testing.T, machines *kubelets) {
	t.Helper()
	client := client(t)
	eventually(t, "what is judged is refused", func() error { return refused(t.Context(), client) })
	require.NoError(t, create(t.Context(), client, podOf()), "a plain pod does not call out")

	require.NoError(t, shared.Restart(t.Context(), controlplane.APIServer))
	eventually(t, "pods elsewhere are still refused", func() error { return refused(t.Context(), client) })
	renewed := time.Now()
	eventually(t, "leases are renewed", func() error {
		lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), controlplane.NodeName(1), metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(renewed) {
			return errors.New("the lease of a node is as it was")
		}
		return err
	})

	// A kubelet registers its node itself.
	const name = "node-registers"
	kubelet, err := kubernetes.NewForConfig(shared.As("system:node:"+name, "system:nodes"))
	require.NoError(t, err)
	_, err = kubelet.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: name},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)

	// All machines are lost, and come back.
	nodes := []string{name}
	for number := range shared.Nodes() {
		nodes = append(nodes, controlplane.NodeName(number+1))
	}
	kubectl(t, append([]string{"delete", "nodes"}, nodes...)...)
	require.NoError(t, shared.AddNodes(t.Context(), nodes[1:]...))
	eventually(t, "pods elsewhere are still refused", func() error { return refused(t.Context(), client) })

	machines.start()
	admits(t)
	works(t)
}

// leaves uninstalls Tollgate while pods are created, and after it wrote a taint.
func leaves(t *testing.T, uninstall func()) {
	t.Helper()
	node := controlplane.NodeName(1)
	kubectl(t, "label", "node", node, "installing=yes")
	apply(t, `
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: installing-register}
spec:
  taints: [{key: registered.example.com/*}]
  setters: [{subjects: [{kind: Group, name: "system:masters"}]}]
  register:
    - nodeSelector: {matchLabels: {installing: "yes"}}
      taints: [{key: registered.example.com/group, effect: NoSchedule}]
      reconcile: true
`)
	eventually(t, "the taint is registered", func() error {
		if taintOf(t, node, "registered.example.com/group") == nil {
			return errors.New("the node has no such taint")
		}
		return nil
	})
	all := startLoad(t)
	uninstall()
	all.requireUnharmed(t, "while Tollgate was uninstalled")
	leavesNothing(t)
	// What it gave to nodes is theirs, and goes as any other taint does.
	require.NotNil(t, taintOf(t, node, "registered.example.com/group"))
	kubectl(t, "taint", "node", node, "registered.example.com/group-")
	kubectl(t, "label", "node", node, "installing-")
}
