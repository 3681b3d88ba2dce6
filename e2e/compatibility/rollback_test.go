package compatibility

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

const (
	// previous is the commit that Tollgate is upgraded from, unless TOLLGATE_PREVIOUS names
	// another: the last one with other CRDs. Its EvictionApprovals cannot name a
	// ResourceSlicePatch.
	previous = "d24eff3b85a8d1760605c5c688cc7e9e862cbcbf"

	// tolerated is how many seconds the pods tolerate their taints that are to leave. The
	// changes of version fit in.
	tolerated = 45
)

// upgrade is a Tollgate that is upgraded and taken back, and what it must not lose.
type upgrade struct {
	old      binaries.Binaries
	from, to *install.Tollgate
	// pods of namespaces that are to leave at a time, and those that stay.
	leave []departure
	// started is when the last Tollgate was started.
	started time.Time
}

// departure is that of the pod named later: others of the namespace stay.
type departure struct {
	namespace string
	at        time.Time
	stay      []string
}

func TestE11UpgradedTakenBackAndUpgradedAgainWhileEvictionsAreDue(t *testing.T) {
	u := &upgrade{old: buildPrevious(t)}
	ctx := afterwards(t)
	// The last cleanup of all: the Tollgate of the other tests is back.
	t.Cleanup(func() {
		require.NoError(t, install.Apply(ctx, shared, filepath.Join(programs.Root, "deploy", "base", "rights")))
		require.NoError(t, install.Apply(ctx, shared, filepath.Join(programs.Root, "deploy", "overlays", "outside")))
		require.NoError(t, tollgate.Start(ctx))
	})
	require.NoError(t, tollgate.Terminate(ctx))
	var err error
	u.from, err = install.Install(ctx, shared, install.Options{Name: "previous", Programs: u.old, Patch: quickLease})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, version := range []*install.Tollgate{u.from, u.to} {
			if version != nil && version.Alive() {
				require.NoError(t, version.Terminate(ctx))
			}
		}
	})
	u.stage(t)

	// The new one beside the old, while the CRDs are the old ones: what a rollout passes through.
	u.requireSameVerdictsBeside(t, "beside")

	u.change(t, u.from, programs, "base/rights", "overlays/outside")
	u.to, err = install.Install(ctx, shared, install.Options{Name: "upgraded", Programs: programs, Replica: true, Patch: quickLease})
	require.NoError(t, err)
	u.requireNobodyEarly(t)
	apply(t, approval)
	require.Equal(t, "later-than-previous", mustKubectl(t, "get", "evictionapproval", "compatibility-e11", "-o", "jsonpath={.spec.resourceSlicePatch}"))

	// Back: the CRDs stay, as the manual says.
	u.change(t, u.to, u.old, "overlays/outside")
	require.NoError(t, u.from.Start(ctx))
	u.requireNobodyEarly(t)
	u.requireSameVerdictsBeside(t, "beside-again")

	u.change(t, u.from, programs, "overlays/outside")
	require.NoError(t, u.to.Start(ctx))
	require.Equal(t, "later-than-previous", mustKubectl(t, "get", "evictionapproval", "compatibility-e11", "-o", "jsonpath={.spec.resourceSlicePatch}"),
		"the previous version keeps what it does not know")
	u.requireOnTime(t)
}

// approval has a field that the previous version does not know.
const approval = `
apiVersion: tollgate.dev/v1alpha1
kind: EvictionApproval
metadata: {name: compatibility-e11}
spec: {resourceSlicePatch: later-than-previous, taint: {key: ` + deviceKey + `, effect: NoExecute}, maxPods: 1, expiresAfter: 1h}
`

// buildPrevious builds the previous version of Tollgate from the history of the repository.
func buildPrevious(t *testing.T) binaries.Binaries {
	t.Helper()
	commit := previous
	if asked := os.Getenv("TOLLGATE_PREVIOUS"); asked != "" {
		commit = asked
	}
	git := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "git", append([]string{"-C", programs.Root}, args...)...)
	}
	if said, err := git("cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("the history of this repository does not have commit %s (git fetch --unshallow gets it): %v: %s", commit, err, said)
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "source.tar")
	out, err := git("archive", "--output="+archive, commit).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	old := binaries.Binaries{Root: dir}
	require.NoError(t, old.BuildTollgate(t.Context()))
	return old
}

// requireSameVerdictsBeside starts the new version beside the old one, as a replica to which
// the API server sends no reviews, and compares what they answer.
func (u *upgrade) requireSameVerdictsBeside(t *testing.T, name string) {
	t.Helper()
	beside, err := install.Install(t.Context(), shared, install.Options{
		Name: name, Programs: programs, Replica: true,
		Patch: func(config map[string]any) {
			quickLease(config)
			webhook, ok := config["webhook"].(map[string]any)
			require.True(t, ok)
			webhook["url"] = u.from.WebhookURL
		},
	})
	require.NoError(t, err)
	requireSameVerdicts(t, u.from, beside)
	require.NoError(t, beside.Terminate(t.Context()))
}

// stage puts a TolerationPolicy, a ResourceSlicePatch where there are DeviceTaintRules,
// taints, and pods that tolerate them for a while or for ever.
func (u *upgrade) stage(t *testing.T) {
	t.Helper()
	const key = "compatibility.example.com/upgrade"
	sample(t, "tolerationpolicy.yaml")
	ready(t, "tolerationpolicies/dedicated")
	namespace(t, "banana", nil)
	namespace(t, "apple", nil)
	if byDefault[minor].rules != "" {
		s := newSiteWith(t, map[string][]resourcev1.DeviceToleration{
			"later": {dra.TolerateFor(deviceKey, tolerated)}, "stays": {dra.Tolerate(deviceKey)},
		})
		apply(t, s.patch())
		u.leave = append(u.leave, departure{s.namespace, writtenOut(t, s.namespace).Add(tolerated * time.Second), []string{"stays"}})
	}
	node, in := controlplane.NodeName(5), namespace(t, "upgraded", nil)
	create(t, in, pod("later", node, tolerates(key, tolerated)), pod("stays", node, tolerates(key)))
	u.leave = append(u.leave, departure{in, taint(t, node, key).TimeAdded.Add(tolerated * time.Second), []string{"stays"}})
}

// writtenOut waits until the taint of a patch is written out as a DeviceTaintRule, and returns
// since when it counts: the pods have their time from then on.
func writtenOut(t *testing.T, patch string) (since time.Time) {
	t.Helper()
	rules := func() string {
		return mustKubectl(t, "get", "devicetaintrules", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.taint.timeAdded}{"\n"}{end}`)
	}
	eventually(t, "the patch has its rule", func(context.Context) error {
		for line := range strings.Lines(rules()) {
			name, written, found := strings.Cut(strings.TrimSpace(line), " ")
			if found && strings.HasPrefix(name, patch+"-") {
				var err error
				since, err = time.Parse(time.RFC3339, written)
				return err
			}
		}
		return errNotYet
	})
	return since
}

// change ends one version, and applies parts of the manifests of another.
func (u *upgrade) change(t *testing.T, ends *install.Tollgate, begins binaries.Binaries, manifests ...string) {
	t.Helper()
	u.requireNobodyEarly(t)
	require.NoError(t, ends.Terminate(t.Context()))
	for _, part := range manifests {
		require.NoError(t, install.Apply(t.Context(), shared, filepath.Join(begins.Root, "deploy", filepath.FromSlash(part))))
	}
	u.started = time.Now()
}

// requireNobodyEarly fails if a pod has left before its time.
func (u *upgrade) requireNobodyEarly(t *testing.T) {
	t.Helper()
	for _, d := range u.leave {
		left, err := alive(t.Context(), admin(t), d.namespace)
		require.NoError(t, err)
		if seen := time.Now(); seen.Before(d.at) {
			require.Equal(t, append([]string{"later"}, d.stay...), left, "%s: at %s, %s before it is due", d.namespace, seen, d.at.Sub(seen))
		}
	}
}

// requireOnTime waits until all have left who are to leave, and fails if one left early, or
// as late as if the last Tollgate had begun to count when it was started.
func (u *upgrade) requireOnTime(t *testing.T) {
	t.Helper()
	u.requireNobodyEarly(t)
	anew := u.started.Add(tolerated * time.Second)
	for _, d := range u.leave {
		eventually(t, "the pod leaves", func(ctx context.Context) error {
			left, err := alive(ctx, admin(t), d.namespace)
			if err == nil && slices.Contains(left, "later") {
				err = errNotYet
			}
			return err
		})
		gone := time.Now()
		t.Logf("%s: gone %s after it was due; counted from the last start it would be %s", d.namespace,
			gone.Sub(d.at).Round(time.Millisecond), anew.Sub(d.at).Round(time.Millisecond))
		require.False(t, gone.Before(d.at), "%s: it left early", d.namespace)
		require.True(t, gone.Before(anew), "%s: counted anew", d.namespace)
		left, err := alive(t.Context(), admin(t), d.namespace)
		require.NoError(t, err)
		require.Equal(t, d.stay, left)
	}
}
