package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// nodes previews taints that are added to or removed from nodes.
type nodes struct {
	// labels is the label selector.
	labels   string
	names    []string
	selector labels.Selector
	changes  Changes
}

// parse reads the arguments: names of nodes, then taints.
func (n *nodes) parse(arguments []string) (err error) {
	at := slices.IndexFunc(arguments, IsTaint)
	if at < 0 {
		return errors.New("no taint is given, want NAME... KEY[=VALUE]:EFFECT")
	}
	n.names = arguments[:at]
	switch {
	case len(n.names) == 0 && n.labels == "":
		return errors.New("no node is named: want NAME..., or --selector")
	case len(n.names) > 0 && n.labels != "":
		return fmt.Errorf("nodes are named, and --selector is %q: want one of both", n.labels)
	}
	if n.selector, err = labels.Parse(n.labels); err != nil {
		return fmt.Errorf("--selector is %q: %w", n.labels, err)
	}
	n.changes, err = Parse(arguments[at:], OfNodes)
	return err
}

func (n *nodes) wants(w *state.Wants) {
	w.Node = func(node *corev1.Node) bool {
		if n.labels != "" {
			return n.selector.Matches(labels.Set(node.Labels))
		}
		return slices.Contains(n.names, node.Name)
	}
}

func (n *nodes) tell(ctx context.Context, _ *cli.Clients, c *state.Cluster, t *Teller) ([]Preview, error) {
	for _, name := range n.names {
		if !slices.ContainsFunc(c.Nodes, func(node *corev1.Node) bool { return node.Name == name }) {
			return nil, fmt.Errorf("node %q: there is no such node", name)
		}
	}
	if len(c.Nodes) == 0 {
		return nil, fmt.Errorf("--selector is %q: there is no such node", n.labels)
	}
	var all []Preview
	for _, node := range c.Nodes {
		p, err := t.Node(ctx, node.Name, node.Spec.Taints, changed(node.Spec.Taints, &n.changes))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// changed returns taints with changes applied. An added taint replaces that with its key and
// effect.
func changed(taints []corev1.Taint, changes *Changes) []corev1.Taint {
	var left []corev1.Taint
	for i := range taints {
		taint := &taints[i]
		replaced := slices.ContainsFunc(changes.Add, func(t Taint) bool {
			return t.Key == taint.Key && t.Effect == string(taint.Effect)
		})
		if !replaced && !changes.Removes(taint.Key, string(taint.Effect)) {
			left = append(left, *taint)
		}
	}
	for _, taint := range changes.Add {
		left = append(left, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: corev1.TaintEffect(taint.Effect)})
	}
	return left
}
