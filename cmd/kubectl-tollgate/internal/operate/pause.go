package operate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

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

	// policy is the name of the EvictionPolicy. all is true if it is the one that pauses all
	// evictions.
	policy string
	all    bool
}

const pauseUse = " all|policy NAME"

// NewPauseCommand returns the command pause.
func NewPauseCommand() *cobra.Command {
	c := &pauseCommand{command: command{clock: clock.RealClock{}}}
	cmd := &cobra.Command{
		Use:   "pause" + pauseUse,
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
	c := &pauseCommand{command: command{clock: clock.RealClock{}}}
	cmd := &cobra.Command{
		Use:   "resume" + pauseUse,
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
		c.policy, c.all = StopEvictions, true
	case slices.Contains(policyNames, kind) && len(args) == 2:
		c.policy, c.all = args[1], args[1] == StopEvictions
	default:
		return fmt.Errorf("cannot pause or resume %q: want all, or policy and the name of an EvictionPolicy", strings.Join(args, " "))
	}
	return c.Validate()
}

// pause pauses the policy. It creates the one that pauses all evictions.
func (c *pauseCommand) pause(ctx context.Context, clients *cli.Clients) error {
	client, err := c.policies(ctx, clients)
	if err != nil {
		return err
	}
	object, policy, err := c.get(ctx, client)
	switch {
	case apierrors.IsNotFound(err) && c.all:
		err = c.create(ctx, client)
	case err != nil:
		return err
	case c.all && !isStopAll(policy):
		return errForeign
	case policy.Spec.Paused:
		err = c.print(object, "paused already")
	default:
		err = c.patch(ctx, client, object, true, "paused")
	}
	if err != nil {
		return err
	}
	return c.warn(ctx, clients)
}

// errForeign is the error for a policy with the name StopEvictions that pause did not create.
var errForeign = fmt.Errorf("EvictionPolicy %s is not the one that pause creates (deploy/samples/stop-evictions.yaml): pause, resume or delete it yourself", StopEvictions)

// isStopAll reports whether a policy is the one of stopAll, paused or not.
func isStopAll(policy *v1alpha1.EvictionPolicy) bool {
	want, got := stopAll().Spec, *policy.Spec.DeepCopy()
	got.Paused = true
	// The API server fills in defaults.
	got.Method, got.Mark = want.Method, want.Mark
	for i := range got.Taints {
		if got.Taints[i].Target == v1alpha1.TaintTargetNode {
			got.Taints[i].Target = ""
		}
	}
	return equality.Semantic.DeepEqual(want, got)
}

func (c *pauseCommand) create(ctx context.Context, client dynamic.ResourceInterface) error {
	object, err := unstructuredOf(stopAll())
	if err != nil {
		return err
	}
	if c.DryRun != cli.DryRunClient {
		object, err = client.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager, DryRun: c.RequestDryRun()})
		if err != nil {
			return cli.Failed(err, "create EvictionPolicy "+StopEvictions, "create", state.PolicyResource)
		}
	}
	return c.print(object, "created, all evictions are paused")
}

// resume shows what would leave, asks for confirmation, and ends the pause.
func (c *pauseCommand) resume(ctx context.Context, clients *cli.Clients) error {
	client, err := c.policies(ctx, clients)
	if err != nil {
		return err
	}
	object, policy, err := c.get(ctx, client)
	switch {
	case apierrors.IsNotFound(err) && c.all:
		return fmt.Errorf("evictions are not paused as a whole: there is no EvictionPolicy %s", StopEvictions)
	case err != nil:
		return err
	case c.all && !isStopAll(policy): // Without its pause, it would decide about all evictions.
		return errForeign
	case !c.all && !policy.Spec.Paused:
		return c.print(object, "not paused")
	}
	shown, found, err := c.read(ctx, clients)
	if err != nil {
		return err
	}
	if err := cli.WriteWrapped(c.notes, "", append(found.Missing(), c.effect(shown, found, c.clock.Now()))); err != nil {
		return err
	}
	if err := c.confirm(ctx, "Resume?", "nothing was resumed"); err != nil {
		return err
	}
	if !c.all {
		return c.patch(ctx, client, object, false, "resumed")
	}
	if c.DryRun != cli.DryRunClient {
		err := client.Delete(ctx, c.policy, metav1.DeleteOptions{DryRun: c.RequestDryRun(), Preconditions: &metav1.Preconditions{UID: new(object.GetUID())}})
		if err != nil {
			return cli.Failed(err, "delete EvictionPolicy "+c.policy, "delete", state.PolicyResource)
		}
	}
	return c.print(object, "deleted, evictions go on")
}

const fieldManager = "tollgate-pause"

// policies returns the client for EvictionPolicies.
func (c *pauseCommand) policies(ctx context.Context, clients *cli.Clients) (dynamic.ResourceInterface, error) {
	if err := c.served(ctx, clients, state.PolicyResource, "EvictionPolicies"); err != nil {
		return nil, err
	}
	return clients.Dynamic.Resource(state.PolicyResource.WithVersion(v1alpha1.GroupVersion.Version)), nil
}

// get reads the policy.
func (c *pauseCommand) get(ctx context.Context, client dynamic.ResourceInterface) (*unstructured.Unstructured, *v1alpha1.EvictionPolicy, error) {
	object, err := client.Get(ctx, c.policy, metav1.GetOptions{})
	if err != nil {
		return nil, nil, cli.Failed(err, "read EvictionPolicy "+c.policy, "get", state.PolicyResource)
	}
	policy, err := cli.As[v1alpha1.EvictionPolicy](object)
	return object, policy, err
}

// patch sets spec.paused of the policy.
func (c *pauseCommand) patch(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured, paused bool, done string) error {
	if c.DryRun == cli.DryRunClient {
		if err := unstructured.SetNestedField(object.Object, paused, "spec", "paused"); err != nil {
			return fmt.Errorf("set spec.paused: %w", err)
		}
		return c.print(object, done)
	}
	body := []byte(`{"metadata":{"uid":"` + string(object.GetUID()) + `"},"spec":{"paused":` + strconv.FormatBool(paused) + `}}`)
	written, err := client.Patch(ctx, c.policy, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager, DryRun: c.RequestDryRun()})
	if err != nil {
		return cli.Failed(err, "patch EvictionPolicy "+c.policy, "patch", state.PolicyResource)
	}
	return c.print(written, done)
}

// warn writes what a pause does not hold here.
func (c *pauseCommand) warn(ctx context.Context, clients *cli.Clients) error {
	found, err := state.ReadTollgate(ctx, clients, c.wants.Lease, c.clock.Now())
	if err != nil {
		return cli.WriteWrapped(c.notes, "warning: ", []string{"it is not known whether Tollgate runs: " + err.Error()})
	}
	var warnings, others []string
	if lack := found.Lack(); lack != "" {
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

// effect says how many pods the policy pauses, and the states that they would have otherwise.
func (c *pauseCommand) effect(shown *evictions.Cluster, found *state.Cluster, now time.Time) string {
	paused := sets.Set[tracker.Key]{}
	for _, e := range shown.List(now, &evictions.Filter{}) {
		if e.State == evictions.Paused && e.Policy == c.policy {
			paused.Insert(e.Key)
		}
	}
	if len(paused) == 0 {
		return "EvictionPolicy " + c.policy + " pauses no pod"
	}
	policies := slices.Clone(found.EvictionPolicies)
	at := slices.IndexFunc(policies, func(p v1alpha1.EvictionPolicy) bool { return p.Name == c.policy })
	if policies[at].Spec.Paused = false; c.all {
		policies = slices.Delete(policies, at, at+1)
	}
	after := *shown
	after.Set = eviction.Compile(policies)
	states := map[evictions.State]int{}
	for _, e := range after.List(now, &evictions.Filter{}) {
		if paused.Has(e.Key) {
			states[e.State]++
		}
	}
	var counts []string
	for _, s := range evictions.States() {
		if states[s] > 0 {
			counts = append(counts, strconv.Itoa(states[s])+" "+string(s))
		}
	}
	return fmt.Sprintf("EvictionPolicy %s pauses %s; without the pause: %s", c.policy, cli.Counted(len(paused), "pod"), strings.Join(counts, ", "))
}
