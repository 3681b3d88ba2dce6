package controlplane

import (
	"context"
	_ "embed" // The stages are a file so that they can be read as one.
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

//go:embed stages.yaml
var stages []byte

func kwokConfigIn(dir string) string { return filepath.Join(dir, "kwok", "stages.yaml") }

func writeKwokConfig(dir string) error {
	if err := os.WriteFile(kwokConfigIn(dir), stages, 0o600); err != nil {
		return fmt.Errorf("write stages of kwok: %w", err)
	}
	return nil
}

// NodeName is the name of the node with the number, counted from 1.
func NodeName(number int) string { return "node-" + strconv.Itoa(number) }

// AddNodes creates nodes and returns when pods can be scheduled to them.
func (c *ControlPlane) AddNodes(ctx context.Context, names ...string) error {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, name := range names {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		}}
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", name, err)
		}
	}
	return c.waitNodes(ctx, client, names)
}

func (c *ControlPlane) waitNodes(ctx context.Context, client kubernetes.Interface, names []string) error {
	missing := slices.Clone(names)
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("list nodes: %w", err)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool {
			return slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == name && schedulable(&n) })
		})
		return len(missing) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for nodes %v to be ready: %w (logs: %s, %s)",
			missing, err, c.LogPath(Kwok), c.LogPath(ControllerManager))
	}
	return nil
}

// schedulable reports whether a node is Ready and the node lifecycle controller
// has seen it: until then the taint that every node is born with keeps pods away.
func schedulable(node *corev1.Node) bool {
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && !tainted
}
