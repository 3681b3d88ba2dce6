package operate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// StopEvictions is the name of the EvictionPolicy that pauses all evictions.
const StopEvictions = "stop-evictions"

// stopAll returns the EvictionPolicy that pauses all evictions. "*" selects no taints of Kubernetes
// itself, so their keys are listed.
func stopAll() *v1alpha1.EvictionPolicy {
	return &v1alpha1.EvictionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EvictionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: StopEvictions},
		Spec: v1alpha1.EvictionPolicySpec{
			Priority: math.MaxInt32, Paused: true,
			Taints: []v1alpha1.TaintSelector{
				{Key: "*"}, {Key: "node.kubernetes.io/*"}, {Key: "node.cloudprovider.kubernetes.io/*"}, {Target: v1alpha1.TaintTargetDevice, Key: "*"},
			},
		},
	}
}

// pauseCommand is one run of pause or resume.
type pauseCommand struct {
	command

	// policy is the name of the EvictionPolicy, StopEvictions for the one that pauses all evictions.
	policy string
}

// NewPauseCommand returns the command pause.
func NewPauseCommand() *cobra.Command {
	c := &pauseCommand{}
	cmd := &cobra.Command{
		Use:   "pause all|policy NAME",
		Short: "Hold all evictions, or those of one EvictionPolicy",
		Long: `Hold evictions until "kubectl tollgate resume". With all, the command creates the EvictionPolicy
stop-evictions, which selects all taints, has the highest priority and is paused. With policy, it
sets spec.paused of that EvictionPolicy. Tollgate obeys within a second. Pods whose deletion has
begun leave nevertheless.

A pause holds what Tollgate evicts. In mode Window, Kubernetes deletes the pods when their window
ends, and in mode Observe, Kubernetes evicts all pods. Remove the taint to keep the pods there.

The exit code is 1 after an error, and otherwise 0. You need the verbs get, create and patch on
evictionpolicies of the API group tollgate.dev.`,
		Example: `  kubectl tollgate pause all
  kubectl tollgate pause policy default`,
	}
	return c.build(cmd, false, c.pause)
}

// NewResumeCommand returns the command resume.
func NewResumeCommand() *cobra.Command {
	c := &pauseCommand{}
	cmd := &cobra.Command{
		Use:   "resume all|policy NAME",
		Short: "End a pause of evictions",
		Long: `End what "kubectl tollgate pause" began. With all, the command deletes the EvictionPolicy
stop-evictions. With policy, it unsets spec.paused of that EvictionPolicy. The policy stop-evictions
itself is always deleted: without its pause, it would decide about all evictions.

The command first shows how many pods the policy pauses, and the states that they would have without
the pause, as "kubectl tollgate evictions" explains them. It asks for confirmation. Due pods leave
within the limits of their policies.

The exit code is 1 after an error or if you do not confirm, and otherwise 0. You need the rights for
"kubectl tollgate evictions", and the verbs get, patch and delete on evictionpolicies of the API
group tollgate.dev.`,
		Example: `  kubectl tollgate resume all
  kubectl tollgate resume policy default --yes`,
	}
	return c.build(cmd, true, c.resume)
}

// build adds the flags of a command, and what it runs.
func (c *pauseCommand) build(cmd *cobra.Command, asks bool, run func(context.Context, *cli.Clients) error) *cobra.Command {
	cmd.Args = cobra.RangeArgs(1, 2)
	state.CompleteKinds(cmd, c.command.build(cmd, c.complete, run), "all", "policy")
	c.addFlags(cmd, "written", asks)
	return cmd
}

// complete reads the arguments, or returns an error if they or the flags are invalid.
func (c *pauseCommand) complete(args []string) error {
	switch kind := strings.ToLower(args[0]); {
	case kind == "all" && len(args) == 1:
		c.policy = StopEvictions
	case slices.Contains(policyNames, kind) && len(args) == 2:
		c.policy = args[1]
	default:
		return fmt.Errorf("cannot pause or resume %q: want all, or policy and the name of an EvictionPolicy", strings.Join(args, " "))
	}
	return c.Validate()
}

// pause pauses the policy, and writes what that does not hold here. It creates the policy that pauses all
// evictions.
func (c *pauseCommand) pause(ctx context.Context, clients *cli.Clients) error {
	object, policy, err := c.get(ctx, clients)
	switch {
	case apierrors.IsNotFound(err) && c.policy == StopEvictions:
		err = c.pauseAll(ctx)
	case err != nil:
		return err
	case policy.Spec.Paused:
		err = c.print(object, "paused already")
	default:
		err = c.patch(ctx, object, true, "paused")
	}
	if err != nil {
		return err
	}
	found, err := state.ReadTollgate(ctx, clients, c.wants.Lease, c.clock.Now())
	lack := found.Lack()
	if err != nil {
		lack = "it is not known whether Tollgate runs: " + err.Error()
	}
	var warnings, others []string
	if lack != "" {
		warnings = append(warnings, lack)
	}
	if !found.Terms.Nodes {
		others = append(others, "nodes")
	}
	if !found.Terms.Devices {
		others = append(others, "devices")
	}
	switch {
	case !found.Installed:
	case found.Terms.Mode == configv1alpha1.EvictionWindow:
		warnings = append(warnings, "the mode is Window: Kubernetes deletes the pods when their window ends, paused or not")
	case found.Terms.Mode == configv1alpha1.EvictionObserve:
		warnings = append(warnings, "the mode is Observe: Kubernetes evicts, and a pause holds no pod")
	case !found.Terms.Policies:
		warnings = append(warnings, "EvictionPolicies are switched off (feature gate EvictionPolicies): a pause holds no pod")
	case len(others) > 0:
		warnings = append(warnings, "Kubernetes evicts because of taints of "+cli.And(others)+", paused or not")
	}
	return cli.WriteWrapped(c.notes, "warning: ", warnings)
}

// pauseAll creates the policy that pauses all evictions.
func (c *pauseCommand) pauseAll(ctx context.Context) error {
	object, err := c.create(ctx, stopAll(), "EvictionPolicy "+StopEvictions, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return err
	}
	return c.print(object, "created, all evictions are paused")
}

// resume shows what would leave, asks for confirmation, and ends the pause.
func (c *pauseCommand) resume(ctx context.Context, clients *cli.Clients) error {
	object, policy, err := c.get(ctx, clients)
	switch {
	case apierrors.IsNotFound(err) && c.policy == StopEvictions:
		return fmt.Errorf("evictions are not paused as a whole: there is no EvictionPolicy %s", StopEvictions)
	case err != nil:
		return err
	case c.policy != StopEvictions && !policy.Spec.Paused:
		return c.print(object, "not paused")
	}
	shown, found, err := evictions.Read(ctx, clients, c.clock.Now(), c.wants)
	clients.Progress.End()
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, append(found.Missing(), c.effect(shown, found, c.clock.Now())), "Resume?", "nothing was resumed"); err != nil {
		return err
	}
	if c.policy != StopEvictions {
		return c.patch(ctx, object, false, "resumed")
	}
	if c.DryRun != cli.DryRunClient {
		err := c.client.Delete(ctx, c.policy, metav1.DeleteOptions{DryRun: c.RequestDryRun(), Preconditions: &metav1.Preconditions{UID: new(object.GetUID())}})
		if err != nil {
			return cli.Failed(err, "delete EvictionPolicy "+c.policy, "delete", c.resource)
		}
	}
	return c.print(object, "deleted, evictions go on")
}

const fieldManager = "tollgate-pause"

// get reads the policy. A policy with the name StopEvictions is an error if it is not the one of stopAll,
// paused or not: without its pause, it would decide about all evictions.
func (c *pauseCommand) get(ctx context.Context, clients *cli.Clients) (*unstructured.Unstructured, *v1alpha1.EvictionPolicy, error) {
	if err := c.connect(ctx, clients, state.PolicyResource, "EvictionPolicies"); err != nil {
		return nil, nil, err
	}
	object, err := c.client.Get(ctx, c.policy, metav1.GetOptions{})
	if err != nil {
		return nil, nil, cli.Failed(err, "read EvictionPolicy "+c.policy, "get", c.resource)
	}
	policy, err := cli.As[v1alpha1.EvictionPolicy](object)
	if err != nil || c.policy != StopEvictions {
		return object, policy, err
	}
	want, got := stopAll().Spec, policy.Spec
	// The API server fills in defaults.
	want.Paused, want.Method, want.Mark = got.Paused, got.Method, got.Mark
	for i, taint := range got.Taints {
		if taint.Target == v1alpha1.TaintTargetNode {
			got.Taints[i].Target = ""
		}
	}
	if !equality.Semantic.DeepEqual(want, got) {
		err = fmt.Errorf("EvictionPolicy %s is not the one that pause creates (deploy/samples/stop-evictions.yaml): pause, resume or delete it yourself", StopEvictions)
	}
	return object, policy, err
}

// patch sets spec.paused of the policy.
func (c *pauseCommand) patch(ctx context.Context, object *unstructured.Unstructured, paused bool, done string) error {
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"paused":%t}}`, object.GetUID(), paused)
	err := unstructured.SetNestedField(object.Object, paused, "spec", "paused")
	if c.DryRun != cli.DryRunClient {
		options := metav1.PatchOptions{FieldManager: fieldManager, DryRun: c.RequestDryRun()}
		object, err = c.client.Patch(ctx, c.policy, types.MergePatchType, body, options)
	}
	if err != nil {
		return cli.Failed(err, "patch EvictionPolicy "+c.policy, "patch", c.resource)
	}
	return c.print(object, done)
}

// effect says how many pods the policy pauses, and the states that they would have otherwise.
func (c *pauseCommand) effect(shown *evictions.Cluster, found *state.Cluster, now time.Time) string {
	paused := map[tracker.Key]bool{}
	for _, e := range shown.List(now, &evictions.Filter{}) {
		if e.State == evictions.Paused && e.Policy == c.policy {
			paused[e.Key] = true
		}
	}
	if len(paused) == 0 {
		return "EvictionPolicy " + c.policy + " pauses no pod"
	}
	policies := slices.Clone(found.EvictionPolicies)
	at := slices.IndexFunc(policies, func(p v1alpha1.EvictionPolicy) bool { return p.Name == c.policy })
	if policies[at].Spec.Paused = false; c.policy == StopEvictions {
		policies = slices.Delete(policies, at, at+1)
	}
	after := *shown
	after.Set = eviction.Compile(policies)
	states := map[evictions.State]int{}
	for _, e := range after.List(now, &evictions.Filter{}) {
		if paused[e.Key] {
			states[e.State]++
		}
	}
	return fmt.Sprintf("EvictionPolicy %s pauses %s; without the pause: %s", c.policy, cli.Counted(len(paused), "pod"), evictions.Counts(states))
}
