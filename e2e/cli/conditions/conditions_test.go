package conditions

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// asks is a command line, and what comes of it.
type asks struct {
	line string
	// code is the exit code, and says are words of what is written, in one line.
	code int
	says string
}

// What the commands write in several places.
const (
	without     = "Tollgate does not run here"
	toInstall   = "install Tollgate"
	unpublished = `device "gpu.example.com": no ResourceSlice publishes such a device`
	noNodes     = `you (USER) may not list nodes (ask for a ClusterRole with the verb list on nodes of API group "")`
	noPods      = `you (USER) may not list pods (ask for a ClusterRole with the verb list on pods of API group "")`
	nothingSeen = noNodes + "; " + noPods
	noOwnPods   = `you (USER) may not list pods in namespace NAMESPACE (ask for a Role there with the verb list on pods of API group "")`
	noRules     = "devicetaintrules.resource.k8s.io (ask for a ClusterRole with the verb list on devicetaintrules of API group resource.k8s.io)"
	noNewRule   = "(ask for a ClusterRole with the verb create on devicetaintrules of API group resource.k8s.io)"
	taint       = "gpu.example.com example.com/broken:NoExecute"
)

// emptyWithout is what is said of a cluster with nothing in it, not even Tollgate.
var emptyWithout = []asks{
	{"preview -f MANIFEST", 0, "evicts no pods note: " + without},
	{"preview node node-1 example.com/broken:NoExecute", 1, `node "node-1": there is no such node`},
	{"preview device " + taint, 1, unpublished},
	{"taint device " + taint, 1, unpublished + "; there are no published devices; give --allow-unpublished"},
	{"taint device " + taint + " --allow-unpublished", 1, "there is no terminal to ask on, give --yes"},
	{"taint device " + taint + " --yes --allow-unpublished --dry-run=server", 0, "created (server dry run)"},
	{"taint device --class gpus example.com/broken:NoExecute --yes", 1, toInstall + ", or name driver, pool and device"},
	{"untaint device gpu.example.com example.com/broken", 1, "taint device made none for these devices"},
	{"devices", 0, "there is no ResourceSlice"},
	{"evictions -A", 0, without},
	{"evictions -n NAMESPACE", 0, "no pod has to leave in namespace NAMESPACE"},
	{"evictions --node node-1", 1, "there is no Node node-1"},
	{"evictions -A --until-done --timeout 20s", 0, "no pod has to leave"},
	{"status", 0, "Tollgate does not run here"},
	{"pause all", 1, "until its CustomResourceDefinitions are installed"},
	{"resume all --yes", 1, "until its CustomResourceDefinitions are installed"},
	{"release default --yes", 1, "until its CustomResourceDefinitions are installed"},
	{"approve node node-1 --yes", 1, "until its CustomResourceDefinitions are installed"},
	{"explain pod web -n NAMESPACE", 0, "Not found: namespace NAMESPACE has no pod web"},
	{"explain claim gpu -n NAMESPACE", 0, "Not found: namespace NAMESPACE has no ResourceClaim gpu"},
	{"explain node node-1", 0, "Not found: the cluster has no node node-1"},
	{"explain device gpu.example.com/pool/d0", 0, "Not found: no ResourceSlice publishes device gpu.example.com/pool/d0"},
	{"check --cluster", 1, "name policies with -p, or install Tollgate's CustomResourceDefinitions"},
	{"check --cluster -f MANIFEST", 0, "Tollgate's CustomResourceDefinitions are not installed in the cluster"},
	{"export vap", 1, "name policies with -f, or install Tollgate's CustomResourceDefinitions"},
	{"export map", 1, `required flag(s) "filename" not set`},
}

// empty is what is said of a cluster with Tollgate, and with nothing else.
var empty = []asks{
	{"preview -f MANIFEST", 0, "evicts no pods"},
	{"preview node node-1 example.com/broken:NoExecute", 1, `node "node-1": there is no such node`},
	{"preview device " + taint, 1, unpublished},
	{"taint device " + taint + " --yes --dry-run=server", 1, unpublished},
	{"taint device " + taint + " --yes --allow-unpublished --dry-run=server", 0, "created (server dry run)"},
	{"taint device --class gpus example.com/broken:NoExecute --yes --allow-unpublished --dry-run=server", 0, "created (server dry run)"},
	{"untaint device gpu.example.com example.com/broken", 1, "taint device made none for these devices"},
	{"devices", 0, "there is no ResourceSlice"},
	{"evictions -A", 0, "no pod has to leave"},
	{"evictions -A --until-done --timeout 20s", 0, "no pod has to leave"},
	{"status", 0, "Evictions no pod has to leave"},
	{"pause all --dry-run=server", 0, "created, all evictions are paused (server dry run)"},
	{"pause policy nosuch", 1, `evictionpolicies.tollgate.dev "nosuch" not found`},
	{"resume all --yes", 1, "evictions are not paused as a whole"},
	{"release nosuch --yes", 1, `evictionpolicies "nosuch" not found`},
	{"approve node node-1 --yes", 1, `nodes "node-1" not found`},
	{"approve rule rule-1 --yes", 1, "no pod is held by a breaker because of rule rule-1: give --taint and --pods"},
	{"approve rule rule-1 --taint example.com/broken --pods 3", 1, "nobody can be asked, since the input is no terminal: give --yes"},
	{"approve rule rule-1 --taint example.com/broken --pods 3 --yes --dry-run=server", 0, "created (server dry run)"},
	{"explain pod web -n NAMESPACE", 0, "Not found: namespace NAMESPACE has no pod web"},
	{"explain node node-1", 0, "Not found: the cluster has no node node-1"},
	{"check --cluster", 0, "there is no TolerationPolicy to judge by"},
	{"export vap", 0, "There are no TolerationPolicies and no TaintPolicies: nothing to export."},
}

// refused is what somebody is told who may see nothing, with Tollgate and without.
var refused = []asks{
	{"preview -f MANIFEST", 1, nothingSeen},
	{"preview node node-1 example.com/broken:NoExecute", 1, nothingSeen},
	{"preview device " + taint, 1, nothingSeen},
	{"taint device " + taint, 1, "you (USER) may not read devicetaintrule.resource.k8s.io/"},
	{"taint device " + taint + " --yes", 1, noNewRule},
	{"untaint device gpu.example.com example.com/broken", 1, "you (USER) may not list " + noRules},
	{"devices", 1, "you (USER) may not list "},
	{"devices -w", 1, "you (USER) may not "},
	{"status", 1, nothingSeen},
	{"evictions -A", 1, nothingSeen},
	{"evictions -n NAMESPACE", 1, noOwnPods},
	{"evictions -n NAMESPACE -w", 1, noOwnPods},
	{"evictions -A --until-done --timeout 20s", 1, nothingSeen},
	{"explain pod web -n NAMESPACE", 1, noOwnPods},
	{"explain claim gpu -n NAMESPACE", 1, noOwnPods},
	{"explain node node-1", 1, nothingSeen},
	{"explain device gpu.example.com/pool/d0", 1, nothingSeen},
}

// refusedBy is what somebody is told besides whom Tollgate's own objects are not shown.
var refusedBy = []asks{
	{"taint device --class gpus example.com/broken:NoExecute --yes", 1, "(ask for a ClusterRole with the verb create on resourceslicepatches of API group tollgate.dev)"},
	{"pause all", 1, "(ask for a ClusterRole with the verb get on evictionpolicies of API group tollgate.dev)"},
	{"resume all --yes", 1, "(ask for a ClusterRole with the verb get on evictionpolicies of API group tollgate.dev)"},
	{"release default --yes", 1, nothingSeen},
	{"approve node node-1 --yes", 1, nothingSeen},
	{"check --cluster", 1, "(ask for a ClusterRole with the verb list on tolerationpolicies of API group tollgate.dev)"},
	{"check --cluster -n NAMESPACE", 1, "(ask for a ClusterRole with the verb list on tolerationpolicies of API group tollgate.dev)"},
	{"export vap", 1, "(ask for a ClusterRole with the verb list on tolerationpolicies of API group tollgate.dev)"},
}

// tenants is what somebody is told who may see one namespace.
var tenants = []asks{
	{"preview node node-1 example.com/broken:NoExecute", 1, nothingSeen},
	{"taint device " + taint + " --yes", 1, noNewRule},
	{"evictions -A", 1, nothingSeen},
	{"evictions -n NAMESPACE", 0, "you may not list nodes: which taints nodes have, and which pods leave because of them, is not known"},
	{"evictions -n NAMESPACE --until-done --timeout 20s", 1, "whether no pod has to leave cannot be told: you may not list nodes"},
	{"explain pod web -n NAMESPACE", 0, "Not found: namespace NAMESPACE has no pod web, and no event tells of one"},
	{"explain claim gpu -n NAMESPACE", 0, "Not found: namespace NAMESPACE has no ResourceClaim gpu"},
	{"explain node node-1", 1, nothingSeen},
}

func manifest(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: broken}
spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: example.com/broken, effect: NoExecute}}
`), 0o600))
	return file
}

// The stages are one test: what comes later is installed by then.
func TestEveryCommandSaysWhatIsMissing(t *testing.T) {
	stage(t, "an empty cluster without Tollgate", boss, emptyWithout)
	stage(t, "without Tollgate, by somebody who may see nothing", nobody, refused)
	stage(t, "without Tollgate, by somebody who may see a namespace", tenant, tenants)

	_, err := install.Install(t.Context(), shared, install.Options{Programs: programs})
	require.NoError(t, err)
	stage(t, "an empty cluster", boss, empty)
	stage(t, "by somebody who may see nothing", nobody, append(refused, refusedBy...))
	stage(t, "by somebody who may see a namespace", tenant, append(tenants, asks{
		"check --cluster -n NAMESPACE", 1, "(ask for a ClusterRole with the verb list on tolerationpolicies of API group tollgate.dev)",
	}))
	t.Run("one namespace is enough to follow evictions", followsOneNamespace)
	for _, user := range []string{boss, nobody, tenant} {
		for _, event := range asked(t, user) {
			require.False(t, writes(&event), "%s: %s %s", user, event.Verb, event.RequestURI)
		}
	}
	require.NoError(t, shared.AddNodes(t.Context(), controlplane.NodeName(1)))
	t.Run("a cluster with many pods", crowd)
	stage(t, "many pods, by somebody who may see a namespace", tenant, []asks{
		{"explain pod crowd-0 -n NAMESPACE", 0, "Pod: NAMESPACE/crowd-0"},
		{"evictions -n NAMESPACE", 0, "no pod has to leave in namespace NAMESPACE"},
	})
}

// stage runs commands, some beside each other.
func stage(t *testing.T, name, user string, lines []asks) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		const atOnce = 4
		var running sync.WaitGroup
		free := make(chan struct{}, atOnce)
		answers := make([]answer, len(lines))
		errs := make([]error, len(lines))
		file := manifest(t)
		for i := range lines {
			free <- struct{}{}
			running.Go(func() {
				answers[i], errs[i] = ask(t.Context(), user, lines[i].line, file)
				<-free
			})
		}
		running.Wait()
		require.NoError(t, errors.Join(errs...))
		for i := range lines {
			meets(t, user, &lines[i], &answers[i])
		}
	})
}

// meets fails the test unless an answer is the expected one, and one for people.
func meets(t *testing.T, user string, want *asks, got *answer) {
	t.Helper()
	said := got.out + got.notes
	require.Equal(t, want.code, got.code, "%s\n%s", want.line, said)
	require.Contains(t, got.all(), strings.NewReplacer("NAMESPACE", team, "USER", user).Replace(want.says), want.line)
	require.NotRegexp(t, `(?m)^[EWIF]\d{4} `, said, "%s: a line for the log of a server", want.line)
	for _, word := range []string{"%!", "goroutine", "context canceled", "context deadline", "is forbidden: User", "<nil>"} {
		require.NotContains(t, said, word, want.line)
	}
	if got.code != 0 {
		lines := strings.Split(strings.TrimSuffix(got.notes, "\n"), "\n")
		require.True(t, strings.HasPrefix(lines[len(lines)-1], "kubectl tollgate: "), "%s: %q", want.line, got.notes)
	}
}

// writes reports whether a request has changed something, or would have.
func writes(event *auditv1.Event) bool {
	reviews := strings.HasSuffix(event.ObjectRef.Resource, "reviews")
	refused := event.ResponseStatus.Code == http.StatusForbidden
	dry := strings.Contains(event.RequestURI, "dryRun=All")
	reads := event.Verb == "get" || event.Verb == "list" || event.Verb == "watch"
	return !reads && !reviews && !refused && !dry
}
