package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

// approveCommand is one run of the command approve or release.
type approveCommand struct {
	command

	// release is true for release, whose target is an EvictionPolicy.
	release bool
	target  target
	// taint is the key of the taint, empty for all taints with held pods.
	taint string
	// pods is the approved number of pods, 0 for the number held.
	pods   int32
	expiry time.Duration
}

// NewApproveCommand returns the command approve.
func NewApproveCommand() *cobra.Command {
	c := &approveCommand{}
	cmd := &cobra.Command{
		Use:   "approve node|rule|patch|policy NAME",
		Short: "Approve evictions that a breaker holds or a limit would refuse",
		Long: `Create EvictionApprovals. An approval lets pods leave because of one taint of one node,
DeviceTaintRule or ResourceSlicePatch, although the breaker of an EvictionPolicy holds them
or the limits of a TaintPolicy would refuse the taint.

The command shows the held pods, asks for confirmation, and approves that number of pods for
each taint of the object. With policy, it does so for each taint because of which that
EvictionPolicy holds pods. --pods sets another number. For a taint that is not set yet, use
--taint and --pods: the node must exist, but the DeviceTaintRule or ResourceSlicePatch need
not exist yet.

An approval is used once, for one appearance of the taint, within the time of --for. Tollgate
chooses which of the held pods leave. An approval does not end a pause, a protection, or the
wait for a PodDisruptionBudget.

The exit code is 1 after an error or if you do not confirm, and otherwise 0. You need the
rights for "kubectl tollgate evictions", and the verb create on evictionapprovals of the API
group tollgate.dev.`,
		Example: `  kubectl tollgate approve node node-7
  kubectl tollgate approve policy default --yes
  kubectl tollgate approve rule quarantine --taint example.com/broken --pods 120 --for 30m --dry-run=server`,
		Args: cobra.ExactArgs(2),
	}
	state.CompleteKinds(cmd, c.build(cmd, c.complete, c.run), "node", "rule", "patch", "policy")
	c.addFlags(cmd)
	return cmd
}

// NewReleaseCommand returns the command release.
func NewReleaseCommand() *cobra.Command {
	c := &approveCommand{release: true}
	cmd := &cobra.Command{
		Use:   "release POLICY",
		Short: "Let the pods go that the breaker of an EvictionPolicy holds",
		Long: `Create an EvictionApproval for the breaker of an EvictionPolicy. It lets pods leave whatever their
taints are, also taints that drivers publish in ResourceSlices. "kubectl tollgate approve" lets pods
leave because of one taint alone.

The command shows the held pods, asks for confirmation, and releases that number of pods. --pods sets
another number. What is left of the number, because some pods stay, releases other pods that the
breaker holds within the time of --for. The breakers of other policies still hold their pods, and so
do a pause, a protection and a PodDisruptionBudget.

The exit code is 1 after an error or if you do not confirm, and otherwise 0. You need the rights for
"kubectl tollgate evictions", and the verb create on evictionapprovals of the API group
tollgate.dev.`,
		Example: `  kubectl tollgate release default
  kubectl tollgate release default --pods 20 --for 30m --yes`,
		Args: cobra.ExactArgs(1),
	}
	state.CompleteNames(cmd, c.build(cmd, c.complete, c.run), "policy", 1)
	c.addFlags(cmd)
	return cmd
}

// addFlags adds the flags of both commands.
func (c *approveCommand) addFlags(cmd *cobra.Command) {
	flags, created := cmd.Flags(), "release"
	if !c.release {
		created = "approval"
		flags.StringVar(&c.taint, "taint", "", "only for the taint with this `key`")
	}
	flags.Int32Var(&c.pods, "pods", 0, "maximum `number` of pods that may leave; 0 for the number of held pods")
	flags.DurationVar(&c.expiry, "for", time.Hour, "`duration` for which the "+created+" can be used")
	c.command.addFlags(cmd, "created", true)
}

// complete reads the arguments, or returns an error if they or the flags are invalid.
func (c *approveCommand) complete(args []string) (err error) {
	if c.release {
		args = []string{"policy", args[0]}
	}
	if c.target, err = targetOf(args[0], args[1]); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	const longest = 7 * 24 * time.Hour
	switch {
	case c.pods < 0:
		return fmt.Errorf("--pods is %d, want 1 or more, or 0 for the pods that are held", c.pods)
	case c.expiry <= 0 || c.expiry > longest:
		return fmt.Errorf("--for is %s, want more than 0s and at most %s", c.expiry, longest)
	}
	return nil
}

// run shows the held pods, asks for confirmation, and creates the approvals. Approvals created before
// an error stay.
func (c *approveCommand) run(ctx context.Context, clients *cli.Clients) error {
	if err := c.connect(ctx, clients, approvalResource, "EvictionApprovals"); err != nil {
		return err
	}
	now := c.clock.Now()
	shown, cluster, err := evictions.Read(ctx, clients, now, c.wants)
	clients.Progress.End()
	if err != nil {
		return err
	}
	if err := c.target.check(cluster); err != nil {
		return err
	}
	makePlan, question, notDone := c.approvals, "Approve?", "nothing was approved"
	if c.release {
		makePlan, question, notDone = c.releases, "Release?", "nothing was released"
	}
	held, others, err := makePlan(shown, now)
	if err != nil {
		return err
	}
	notes, planned := cluster.Missing(), held.sorted()
	for _, a := range planned {
		notes = append(notes, fmt.Sprintf("%s: %s; up to %s may go, until %s",
			a, heldPods(held[a]), cli.Counted(int(c.most(held[a])), "pod"), now.Add(c.expiry).UTC().Format(time.RFC3339)))
	}
	if err := c.confirm(ctx, append(notes, others...), question, notDone); err != nil {
		return err
	}
	var created []cli.Written
	for _, a := range planned {
		var object *unstructured.Unstructured
		if object, err = c.approve(ctx, a, c.most(held[a])); err != nil {
			break
		}
		created = append(created, cli.Written{Object: object, Done: "created"})
	}
	return errors.Join(err, c.WriteObjects(c.out, created...))
}

// most returns the approved number of pods.
func (c *approveCommand) most(held []evictions.Eviction) int32 {
	return cmp.Or(c.pods, int32(min(len(held), math.MaxInt32)))
}

var approvalResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "evictionapprovals"}

// approve creates an approval, unless in a dry run. The API server generates its name from the object
// and the taint, since the same taint may be approved again later.
func (c *approveCommand) approve(ctx context.Context, a approval, most int32) (*unstructured.Unstructured, error) {
	text := a.name
	spec := v1alpha1.EvictionApprovalSpec{MaxPods: most, ExpiresAfter: metav1.Duration{Duration: c.expiry}}
	if a.key != "" {
		text += "-" + a.key[strings.LastIndex(a.key, "/")+1:]
		spec.Taint = v1alpha1.ApprovedTaint{Key: a.key, Effect: corev1.TaintEffectNoExecute}
	}
	switch a.kind {
	case tracker.SourceRule:
		spec.DeviceTaintRule = a.name
	case tracker.SourcePatch:
		spec.ResourceSlicePatch = a.name
	case tracker.SourceNode:
		spec.Node = a.name
	case tracker.SourceSlice:
	default:
		spec.EvictionPolicy = a.name
	}
	return c.create(ctx, &v1alpha1.EvictionApproval{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EvictionApproval"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: strings.Trim(cli.PartOfName(text), "-") + "-"}, Spec: spec,
	}, "EvictionApproval", metav1.CreateOptions{FieldManager: "tollgate-approve", FieldValidation: metav1.FieldValidationStrict})
}

// target is the object of an approval.
type target struct {
	// kind is the kind of the object with the taint, empty for an EvictionPolicy.
	kind tracker.SourceKind
	name string
}

// targetKinds are the names of the kinds in arguments, the usual name first and the resource last.
var targetKinds = map[tracker.SourceKind][]string{
	tracker.SourceNode:  {"node", "no", "nodes"},
	tracker.SourceRule:  {"rule", "devicetaintrule", "devicetaintrules"},
	tracker.SourcePatch: {"patch", "resourceslicepatch", "resourceslicepatches"},
	"":                  policyNames,
}

// policyNames are names of EvictionPolicies.
var policyNames = []string{"policy", "evpol", "evictionpolicy", "evictionpolicies"}

func targetOf(kind, name string) (target, error) {
	for k, names := range targetKinds {
		if slices.Contains(names, strings.ToLower(kind)) {
			return target{k, name}, nil
		}
	}
	return target{}, fmt.Errorf("cannot approve %q %s: want one of node, rule, patch, policy", kind, name)
}

func (t target) String() string { return targetKinds[t.kind][0] + " " + t.name }

// check returns an error if a node or an EvictionPolicy does not exist. Rules and patches may be
// approved before they are created, with a note.
func (t target) check(c *state.Cluster) error {
	exists := c.Has(t.kind, t.name) || t.kind == tracker.SourcePatch && len(c.Tracker.PatchRules(t.name)) > 0 ||
		t.kind == "" && slices.ContainsFunc(c.EvictionPolicies, func(policy v1alpha1.EvictionPolicy) bool { return policy.Name == t.name })
	names := targetKinds[t.kind]
	resource := names[len(names)-1]
	if exists || c.Unread(resource) {
		return nil
	}
	if t.kind == tracker.SourceRule || t.kind == tracker.SourcePatch {
		c.Note(fmt.Sprintf("warning: %s %q not found: the approval is for one that is created with this name", resource, t.name))
		return nil
	}
	return fmt.Errorf("%s %q not found", resource, t.name)
}

// approval is the planned approval of one taint of one object, or of the breaker of an EvictionPolicy.
type approval struct {
	target

	// key is the key of the taint, empty for a breaker.
	key string
}

// String returns what is approved.
func (a approval) String() string {
	if a.key == "" {
		return "EvictionPolicy " + a.name
	}
	return "Taint " + a.key + " of " + a.target.String()
}

// plan has the held pods of each planned approval.
type plan map[approval][]evictions.Eviction

// sorted returns the approvals, the most pods first.
func (p plan) sorted() []approval {
	return slices.SortedFunc(maps.Keys(p), func(a, b approval) int {
		return cmp.Or(cmp.Compare(len(p[b]), len(p[a])), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.key, b.key))
	})
}

// heldPods returns the number of held pods, and the names of the first five.
func heldPods(held []evictions.Eviction) string {
	var names []string
	for _, e := range held[:min(len(held), 5)] {
		names = append(names, e.String())
	}
	if more := len(held) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	text := cli.Counted(len(held), "pod") + " held"
	if len(names) > 0 {
		text += " (" + strings.Join(names, ", ") + ")"
	}
	return text
}

// approvals plans the approvals for the held pods. Notes are about the pods that need another one, and
// the error describes missing data.
func (c *approveCommand) approvals(shown *evictions.Cluster, now time.Time) (planned plan, notes []string, err error) {
	published := 0
	planned = plan{}
	for _, e := range shown.List(now, &evictions.Filter{}) {
		taint := &e.Because[0].Taint
		included := taint.From(c.target.kind, c.target.name)
		if c.target.kind == "" {
			included = e.Hold.By == "EvictionPolicy/"+c.target.name
		}
		if e.Hold.Reason != checks.BreakerTripped || !included || (c.taint != "" && c.taint != taint.Key) {
			continue
		}
		// A request about a rule approves the rule, others the object in which the taint was written.
		source := taint.Author()
		if c.target.kind == taint.Source.Kind {
			source = taint.Source
		}
		if source.Kind == tracker.SourceSlice { // Drivers publish its taints.
			published++
			continue
		}
		of := approval{target{source.Kind, source.Name}, taint.Key}
		planned[of] = append(planned[of], e)
	}
	if len(planned) == 0 {
		return plan{{c.target, c.taint}: nil}, nil, c.ahead(published)
	}
	if c.pods > 0 && len(planned) > 1 {
		var taints []string
		for _, a := range planned.sorted() {
			taints = append(taints, a.key+" of "+a.target.String())
		}
		return nil, nil, fmt.Errorf("--pods is %d for %d taints (%s): name one, with --taint if need be", c.pods, len(taints), strings.Join(taints, ", "))
	}
	if published > 0 {
		notes = []string{cli.Counted(published, "pod") + " held because of taints that drivers publish, for which there are no approvals"}
	}
	return planned, notes, nil
}

// ahead returns an error if a taint without held pods cannot be approved. Published is the number of
// pods held because of taints that drivers publish.
func (c *approveCommand) ahead(published int) error {
	ofTaint := ""
	if c.taint != "" {
		ofTaint = " for taint " + c.taint
	}
	switch {
	case published > 0:
		return fmt.Errorf("%s held by EvictionPolicy %s because of taints that drivers publish, for which there are no approvals: raise spec.breaker, or run kubectl tollgate release %s",
			cli.Counted(published, "pod"), c.target.name, c.target.name)
	case c.target.kind == "":
		return fmt.Errorf("the breaker of EvictionPolicy %s holds no pod%s", c.target.name, ofTaint)
	case c.taint == "" || c.pods == 0:
		return fmt.Errorf("no pod is held by a breaker%s because of %s: give --taint and --pods for a taint that is yet to come", ofTaint, c.target)
	}
	return nil
}

// releases plans the approval for the pods that the breaker of the policy holds. Notes are about other
// policies whose breakers hold some of them.
func (c *approveCommand) releases(shown *evictions.Cluster, now time.Time) (planned plan, notes []string, err error) {
	var held []evictions.Eviction
	others, tripped := sets.Set[string]{}, shown.At(now).Tripped
	for _, e := range shown.List(now, &evictions.Filter{}) {
		breakers := sets.Set[string]{}
		for _, policy := range e.Way.Breakers {
			if _, holds := tripped[policy.UID]; holds {
				breakers.Insert(policy.Name)
			}
		}
		if e.Hold.Reason == checks.BreakerTripped && breakers.Has(c.target.name) {
			held, others = append(held, e), others.Union(breakers)
		}
	}
	if len(held) == 0 {
		return nil, nil, fmt.Errorf("the breaker of EvictionPolicy %s holds no pod", c.target.name)
	}
	if others.Delete(c.target.name); len(others) > 0 {
		notes = []string{"the breakers of " + cli.And(sets.List(others)) + " hold some of these pods too, and have to release them as well"}
	}
	return plan{{target: c.target}: held}, notes, nil
}
