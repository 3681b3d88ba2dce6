// Package explain is the command that explains the state of a pod, a claim, a node or a device:
// what keeps a pod from nodes, what evicts it and when, and where values come from.
//
// An explanation follows from a World, which is a snapshot of a cluster, and from the time. It uses
// the functions by which admission and the evictor decide, and repeats the messages of the
// scheduler for what only the scheduler knows. An explanation is written as JSON or as text.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// The kinds of objects.
const (
	kindPod    = "pod"
	kindClaim  = "claim"
	kindNode   = "node"
	kindDevice = "device"
)

// kinds are the kinds by the names that kubectl also takes.
var kinds = map[string]string{
	kindPod: kindPod, "pods": kindPod, "po": kindPod,
	kindClaim: kindClaim, "claims": kindClaim, "resourceclaim": kindClaim, "resourceclaims": kindClaim,
	kindNode: kindNode, "nodes": kindNode, "no": kindNode,
	kindDevice: kindDevice, "devices": kindDevice,
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "explain (pod NAME | claim NAME | node NAME | device DRIVER/POOL/DEVICE)",
		Short: "Explain why a pod is pending, leaves or is gone, or the state of a claim, node or device",
		Long: `Explain why a pod is pending, has to leave or is gone, or the state of a claim, a node or a
device. The command uses your rights, writes nothing, and works without Tollgate in the
cluster.

The first sentence is the answer. The sections after it give the reasons. A section without
content is left out:

  - scheduling gates, and who may remove them
  - nodes, grouped by the reason for which the pod cannot use them
  - taints, and the tolerations that match them
  - claims and their devices
  - the eviction of the pod, and what holds it
  - topology spread, computed with nodeTaintsPolicy Honor and Ignore
  - the verdicts of TolerationPolicies on the tolerations of the pod
  - the additions by PlacementPolicies
  - events

The command computes taints, tolerations, deadlines, policies and topology spread with the
functions of Tollgate. Reasons that only the scheduler knows, such as free cpu or volumes, are
messages of the scheduler. For a pod that is gone, the command uses events, which clusters keep
for an hour. For a name that never was a pod, it shows the events of the object that should
create the pod: explain pod NAME also accepts the name of a Deployment's ReplicaSet whose pods
are refused.

With -o json or yaml, scripts can rely on "state" and the kinds of "causes"; the texts may
change. The exit code is 0 if there is an answer, even if the object does not exist, and 1 if
there is none.

You need the verbs get and list on pods and nodes. Without list on events, namespaces, claims,
slices, budgets or the kinds of Tollgate, the answer is shorter and names the missing data.`,
		Example: `  kubectl tollgate explain pod web-7d4b9 -n shop
  kubectl tollgate explain pod web-7d4b9 -n shop -o json
  kubectl tollgate explain claim gpu -n ml
  kubectl tollgate explain node node-7 -o wide
  kubectl tollgate explain device gpu.example.com/node-7/gpu-0`,
	}
	connection := cli.Connect(cmd)
	state.CompleteKinds(cmd, connection, kindPod, kindClaim, kindNode, kindDevice)
	wants := state.Wants{}
	wants.AddFlags(cmd)
	output.AddFlag(cmd, "`format`", "text", "wide", "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		of, err := questionOf(arguments)
		if err = cmp.Or(err, output.Validate()); err != nil {
			return err
		}
		of.namespace, _, err = connection.Namespace()
		if err != nil {
			return err
		}
		clients, err := connection.Clients(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		of.lease, of.now = wants.Lease, time.Now()
		return show(cmd.Context(), clients, of, output.Format, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// question is the object to explain.
type question struct {
	kind, namespace, name string
	// device is the device of the name.
	device device.ID
	// lease is the namespace of Tollgate, empty for the usual one.
	lease string
	now   time.Time
}

// questionOf returns the question for the object that arguments name: pod NAME, or pod/NAME.
func questionOf(arguments []string) (of question, err error) {
	word := ""
	switch len(arguments) {
	case 1:
		word, of.name, _ = strings.Cut(arguments[0], "/")
	case 2:
		word, of.name = arguments[0], arguments[1]
	}
	of.kind = kinds[word]
	if of.kind == "" || of.name == "" {
		return of, errors.New("want a kind and a name, such as pod NAME: pod, claim, node, device")
	}
	if of.kind != kindDevice {
		return of, nil
	}
	parts := strings.Split(of.name, "/")
	last := len(parts) - 1
	if last < 2 { // A pool may have slashes in its name, and the others may not.
		return of, fmt.Errorf("device is %q, want DRIVER/POOL/DEVICE", of.name)
	}
	of.device = device.ID{Driver: parts[0], Pool: strings.Join(parts[1:last], "/"), Name: parts[last]}
	return of, nil
}

// explanation is a Pod, Claim, Node or Device.
type explanation interface {
	write(p *page)
}

// show reads the cluster and writes the explanation to out, and sentences about missing data to
// notes.
func show(ctx context.Context, clients *cli.Clients, of question, output string, out, notes io.Writer) error {
	answer, missing, err := explain(ctx, clients, of)
	clients.Progress.End()
	switch {
	case err != nil:
	case cli.IsDocument(output):
		err = cli.Print(out, output, answer)
	default:
		err = writeText(out, answer, output == "wide", of.now)
	}
	if err != nil {
		return err
	}
	return cli.WriteNotes(notes, "note: ", missing)
}

// explain reads the cluster, and returns the explanation and sentences about missing data.
func explain(ctx context.Context, clients *cli.Clients, of question) (answer explanation, missing []string, err error) {
	r := &reader{Clients: clients, question: of}
	world, err := r.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	switch of.kind {
	case kindPod:
		answer, err = world.Pod(ctx, of.namespace, of.name)
	case kindClaim:
		answer, err = world.Claim(ctx, of.namespace, of.name)
	case kindNode:
		answer = world.Node(of.name)
	default:
		answer = world.Device(ctx, of.device)
	}
	return answer, world.Missing(), err
}
