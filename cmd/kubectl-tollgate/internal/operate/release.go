package operate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/checks"
)

// releaseCommand is one run of the command release.
type releaseCommand struct {
	command

	policy string
	// pods is the number of pods that are let go, 0 for the number held.
	pods   int32
	expiry time.Duration
}

// NewReleaseCommand returns the command release.
func NewReleaseCommand() *cobra.Command {
	c := &releaseCommand{command: command{clock: clock.RealClock{}}}
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

func (c *releaseCommand) addFlags(cmd *cobra.Command) {
	cmd.Flags().Int32Var(&c.pods, "pods", 0, "maximum `number` of pods that may leave; 0 for the number of held pods")
	cmd.Flags().DurationVar(&c.expiry, "for", time.Hour, "`duration` for which the release can be used")
	c.command.addFlags(cmd, "created", true)
}

func (c *releaseCommand) complete(args []string) error {
	c.policy = args[0]
	if err := c.Validate(); err != nil {
		return err
	}
	return validTerms(c.pods, c.expiry)
}

// run shows the held pods, asks for confirmation, and creates the approval.
func (c *releaseCommand) run(ctx context.Context, clients *cli.Clients) error {
	if err := c.served(ctx, clients, approvalResource, "EvictionApprovals"); err != nil {
		return err
	}
	now := c.clock.Now()
	shown, cluster, err := c.read(ctx, clients)
	if err != nil {
		return err
	}
	if _, err := (target{"", c.policy}).check(cluster); err != nil {
		return err
	}
	held, others := c.heldBy(shown, now)
	if len(held) == 0 {
		return fmt.Errorf("the breaker of EvictionPolicy %s holds no pod", c.policy)
	}
	most := c.pods
	if most == 0 {
		most = int32(min(len(held), math.MaxInt32))
	}
	sentence := fmt.Sprintf("EvictionPolicy %s: %s; up to %s may go, until %s",
		c.policy, heldPods(held), cli.Counted(int(most), "pod"), now.Add(c.expiry).UTC().Format(time.RFC3339))
	notes := append(cluster.Missing(), sentence)
	if len(others) > 0 {
		notes = append(notes, "the breakers of "+cli.And(others)+" hold some of these pods too, and have to release them as well")
	}
	if err := cli.WriteWrapped(c.notes, "", notes); err != nil {
		return err
	}
	if err := c.confirm(ctx, "Release?", "nothing was released"); err != nil {
		return err
	}
	return c.approve(ctx, clients, &v1alpha1.EvictionApproval{
		ObjectMeta: metav1.ObjectMeta{GenerateName: generatedName(c.policy)},
		Spec: v1alpha1.EvictionApprovalSpec{
			EvictionPolicy: c.policy, MaxPods: most, ExpiresAfter: metav1.Duration{Duration: c.expiry},
		},
	})
}

// heldBy returns the pods that the breaker of the policy holds, and the other policies whose breakers
// hold some of them.
func (c *releaseCommand) heldBy(shown *evictions.Cluster, now time.Time) (held []evictions.Eviction, others []string) {
	tripped := shown.At(now).Tripped
	for _, e := range shown.List(now, &evictions.Filter{}) {
		if e.Hold.Reason != checks.BreakerTripped {
			continue
		}
		var names []string
		for _, policy := range e.Way.Breakers {
			if _, holds := tripped[policy.UID]; holds {
				names = append(names, policy.Name)
			}
		}
		if !slices.Contains(names, c.policy) {
			continue
		}
		held = append(held, e)
		for _, name := range names {
			if name != c.policy && !slices.Contains(others, name) {
				others = append(others, name)
			}
		}
	}
	slices.Sort(others)
	return held, others
}

// heldPods returns the number of held pods, and the names of the first.
func heldPods(held []evictions.Eviction) string {
	const most = 5
	text := cli.Counted(len(held), "pod") + " held"
	if len(held) == 0 {
		return text
	}
	var names []string
	for _, e := range held[:min(len(held), most)] {
		names = append(names, e.String())
	}
	if more := len(held) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return text + " (" + strings.Join(names, ", ") + ")"
}
