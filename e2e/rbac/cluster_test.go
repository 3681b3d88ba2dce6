package rbac

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

const (
	// patience is far above what anything here takes.
	patience = time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 200 * time.Millisecond
)

// Who asks. RBAC lets the group that both are in do everything but tolerate and taint; paul
// is granted these by policies, alice by nobody.
var (
	paul  = []string{"--as=paul", "--as-group=e2e:tenants", "--as-group=platform"}
	alice = []string{"--as=alice", "--as-group=e2e:tenants"}
)

// as are the arguments to impersonate a controller of Kubernetes.
func as(controller string) []string {
	return []string{"--as=system:serviceaccount:kube-system:" + controller}
}

// kubectl runs kubectl, as somebody or as the administrator; it must succeed.
func kubectl(t *testing.T, who []string, args ...string) string {
	t.Helper()
	out, err := install.Kubectl(t.Context(), shared, append(args, who...)...)
	require.NoError(t, err, "kubectl %v: %s", args, out)
	return string(out)
}

// write runs a command of kubectl about objects in YAML. Those of Tollgate may leave out
// the apiVersion.
func write(t *testing.T, who []string, command, objects string, args ...string) string {
	t.Helper()
	var documents []string
	for document := range strings.SplitSeq(objects, "\n---\n") {
		if !strings.Contains(document, "apiVersion:") {
			document = "apiVersion: tollgate.dev/v1alpha1\n" + strings.TrimLeft(document, "\n")
		}
		documents = append(documents, document)
	}
	path := filepath.Join(t.TempDir(), "objects.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(documents, "\n---\n")), 0o600))
	return kubectl(t, who, append([]string{command, "-f", path}, args...)...)
}

// becomes returns when kubectl prints what is wanted.
func becomes(t *testing.T, what string, wanted func(said string) bool, args ...string) {
	t.Helper()
	var said string
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		// An attempt that is under way when patience is over still says what it sees.
		out, err := install.Kubectl(context.WithoutCancel(ctx), shared, args...)
		said = string(out)
		return err == nil && wanted(said), nil
	})
	require.NoError(t, err, "%s: kubectl %v says %q", what, args, said)
}

// is returns what holds for one text.
func is(want string) func(string) bool { return func(said string) bool { return said == want } }

// has returns what holds for texts with another in them.
func has(want string) func(string) bool {
	return func(said string) bool { return strings.Contains(said, want) }
}

// gone returns when an object does not exist any more.
func gone(t *testing.T, args ...string) {
	t.Helper()
	becomes(t, "it is gone", is(""), append([]string{"get", "-o", "name", "--ignore-not-found"}, args...)...)
}

// inForce returns when all policies say that they are.
func inForce(t *testing.T) {
	t.Helper()
	kubectl(t, nil, "wait", "--for=condition=Ready", "--timeout=60s", "--all",
		"tolerationpolicies,placementpolicies,taintpolicies,gatepolicies,evictionpolicies")
}

// asked returns what either component asked for since a moment.
func asked(t *testing.T, since time.Time, keep func(*auditv1.Event) bool) []auditv1.Event {
	t.Helper()
	events, err := audit.Read(func(event *auditv1.Event) bool {
		return !event.RequestReceivedTimestamp.Time.Before(since) && keep(event)
	})
	require.NoError(t, err)
	return events
}

// by keeps the requests of a component.
func by(account string) func(*auditv1.Event) bool {
	return func(event *auditv1.Event) bool { return event.User.Username == accounts+account }
}

// forbidden returns what keeps the requests that were refused for one permission.
func forbidden(what grant) func(*auditv1.Event) bool {
	return func(event *auditv1.Event) bool {
		return event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusForbidden && what.covers(askedFor(event))
	}
}

// taint sets a taint with NoExecute on a node, or takes it away.
func taint(t *testing.T, node, what string) {
	t.Helper()
	kubectl(t, paul, "taint", "node", node, what, "--overwrite")
}

// podOn is a pod on a node, with an app.
func podOn(namespace, name, node, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %s}}
spec:
  nodeName: %s
  containers: [{name: c, image: image}]
%s`, name, namespace, name, node, more)
}
