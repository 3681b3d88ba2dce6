package evictions

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

func refusingWatch(err error) clienttesting.WatchReactionFunc {
	return func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, err }
}

// shows returns what the command writes of a cluster.
func shows(t *testing.T, clients *cli.Clients, opts options) (out, notes string, err error) {
	t.Helper()
	var stdout, stderr paper
	err = show(t.Context(), clients, commandNoon, &opts, streams{out: &stdout, notes: &stderr})
	for line := range strings.Lines(stderr.String()) {
		require.LessOrEqual(t, len(line), 1+cli.Width)
	}
	return stdout.String(), unwrapped(stderr.String()), err
}

// unwrapped returns notes, each in one line.
func unwrapped(notes string) string { return strings.ReplaceAll(notes, "\n  ", " ") }

func TestShowsWhoHasToLeave(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, allKinds, commandWorld(t)...)
	out, notes, err := shows(t, clients, options{output: cli.Output{Format: "table"}})
	require.NoError(t, err)
	require.Equal(t, `NAMESPACE  POD        WHEN     STATE      REASON
web        due        60s ago  Due        broken of node/node-7
web        waiting    in 2m1s  Waiting    broken of node/node-7
web        paused     60s ago  Paused     broken of node/node-7; policy stop is paused
db         protected  stays    Protected  broken of node/node-7; policy keep protects it
`, out)
	require.Contains(t, notes, "1 pod held by EvictionPolicy/stop: EvictionPolicy stop is paused. To let them go: kubectl tollgate resume policy stop (according to: spec of EvictionPolicy/stop)\n")

	out, _, err = shows(t, clients, options{output: cli.Output{Format: "name"}, filter: Filter{Namespace: "db"}})
	require.NoError(t, err)
	require.Equal(t, "db/protected\n", out)
	for output, want := range map[string]string{
		"wide": "ACCORDING-TO\n", "yaml": "\nkind: EvictionList\n", "json": `"kind": "EvictionList"`,
	} {
		out, _, err = shows(t, clients, options{output: cli.Output{Format: output}})
		require.NoError(t, err)
		require.Contains(t, out, want)
	}
}

func TestSaysThatNobodyHasTo(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		serves  served
		objects []string
		filter  Filter
		want    string
	}{
		"an empty cluster": {allKinds, []string{lease(t)}, Filter{}, "no pod has to leave\n"},
		"without Tollgate": {kubernetesKinds, nil, Filter{}, "Tollgate does not run here (there is no Lease tollgate-system/tollgate): the controllers of Kubernetes evict, past PodDisruptionBudgets and EvictionPolicies\nno pod has to leave\n"},
		"nobody who is asked about": {
			allKinds, commandWorld(t),
			Filter{Namespace: "web", Node: "node-8"},
			"no pod has to leave in namespace web, on node node-8\n",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			out, notes, err := shows(t, clientsOf(t, c.serves, c.objects...), options{output: cli.Output{Format: "table"}, filter: c.filter})
			require.NoError(t, err)
			require.Empty(t, out)
			require.Equal(t, c.want, notes)
		})
	}
}

func TestWhatDoesNotExistIsAnError(t *testing.T) {
	t.Parallel()
	for want, filter := range map[string]Filter{
		"there is no Node nod-7":                {Node: "nod-7"},
		"there is no DeviceTaintRule hot":       {Rule: "hot"},
		"there is no ResourceSlicePatch racks2": {Patch: "racks2"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			_, _, err := shows(t, clientsOf(t, allKinds, commandWorld(t)...), options{output: cli.Output{Format: "table"}, filter: filter})
			require.EqualError(t, err, want)
			require.Equal(t, cli.ExitError, cli.ExitCode(err))
			synctest.Test(t, func(t *testing.T) {
				f := follows(t, clientsOf(t, allKinds, commandWorld(t)...), options{output: cli.Output{Format: "table"}, untilDone: true, filter: filter}, false)
				require.EqualError(t, <-f.ended, want)
			})
		})
	}
	require.Equal(t, " in namespace a, because of DeviceTaintRule hot, because of ResourceSlicePatch racks", where(&Filter{Namespace: "a", Rule: "hot", Patch: "racks"}))
}

func TestItIsNotDoneWhereReasonsAreNotKnown(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"resourceclaims", "resourceslices"} {
		for _, verb := range []string{"list", "watch"} {
			synctest.Test(t, func(t *testing.T) {
				clients := clientsOf(t, allKinds, lease(t))
				if verb == "list" {
					forbid(t, clients, resource, forbidden(resource))
				} else {
					clients.Kubernetes.(*fake.Clientset).PrependWatchReactor(resource, refusingWatch(forbidden(resource)))
				}
				f := follows(t, clients, options{output: cli.Output{Format: "table"}, untilDone: true}, false)
				err := <-f.ended
				require.ErrorContains(t, err, "the verb "+verb+" on "+resource)
				require.Equal(t, cli.ExitError, cli.ExitCode(err))
			})
		}
	}
}

func TestOneNamespaceIsEnough(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, allKinds, commandWorld(t)...)
	for _, resource := range []string{"pods", "nodes", "poddisruptionbudgets", "resourceclaims", "namespaces"} {
		clients.Kubernetes.(*fake.Clientset).PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			return action.GetNamespace() == "", nil, forbidden(resource)
		})
	}
	opts := options{output: cli.Output{Format: "table"}, filter: Filter{Namespace: "web"}, wants: state.Wants{Namespace: "web"}}
	out, notes, err := shows(t, clients, opts)
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, 3, strings.Count(notes, "\n"), notes)
	require.Contains(t, notes, "you may not list nodes: which taints nodes have, and which pods leave because of them, is not known (ask for")
	require.Contains(t, notes, "you may list resourceclaims in namespace web alone")
	require.Contains(t, notes, "no pod has to leave in namespace web\n")
}

func TestOneNamespaceIsEnoughToFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clients := clientsOf(t, allKinds, commandWorld(t)...)
		typed := clients.Kubernetes.(*fake.Clientset)
		for _, resource := range []string{"pods", "nodes", "poddisruptionbudgets", "resourceclaims", "namespaces", "events", "resourceslices"} {
			typed.PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.GetNamespace() == "", nil, forbidden(resource)
			})
			typed.PrependWatchReactor(resource, func(action clienttesting.Action) (bool, watch.Interface, error) {
				return action.GetNamespace() == "", nil, forbidden(resource)
			})
		}
		f := follows(t, clients, options{output: cli.Output{Format: "table"}, filter: Filter{Namespace: "web"}, wants: state.Wants{Namespace: "web"}}, false)
		f.pass(time.Minute)
		require.Contains(t, unwrapped(f.notes.String()), "you may not list nodes: which taints nodes have")
		require.Contains(t, unwrapped(f.notes.String()), "you may list events in namespace web alone")
		require.NotContains(t, f.notes.String(), "what is shown may be old")
		f.stop()
		require.NoError(t, <-f.ended)
		watches := 0
		for _, action := range typed.Actions() {
			if watching, ok := action.(clienttesting.WatchAction); ok && watching.GetResource().Resource == "pods" {
				require.Equal(t, "web", watching.GetNamespace())
				watches++
			}
		}
		require.Positive(t, watches)
	})
}

func TestWithoutTollgateKubernetesEvicts(t *testing.T) {
	t.Parallel()
	out, notes, err := shows(t, clientsOf(t, kubernetesKinds, commandWorld(t)[1:8]...), options{output: cli.Output{Format: "table"}})
	require.NoError(t, err)
	require.Contains(t, out, "db         protected  60s ago  Due      broken of node/node-7; by Kubernetes\n")
	require.Contains(t, notes, "Tollgate does not run here")
}

func TestWhatTheLeaseSaysIsSwitchedOffIsByKubernetes(t *testing.T) {
	t.Parallel()
	said := settings.DefaultEviction()
	said.Nodes = false
	out, _, err := shows(t, clientsOf(t, allKinds, append(commandWorld(t)[1:], leaseOf(t, said))...), options{output: cli.Output{Format: "table"}})
	require.NoError(t, err)
	require.Contains(t, out, "web        paused     60s ago  Due      broken of node/node-7; by Kubernetes\n")
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("User \"eve\" cannot list resource"))
}

func TestWithoutRightsItSaysWhichAreNeeded(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"pods", "nodes"} {
		clients := clientsOf(t, allKinds, commandWorld(t)...)
		forbid(t, clients, resource, forbidden(resource))
		_, _, err := shows(t, clients, options{output: cli.Output{Format: "table"}})
		require.ErrorContains(t, err, "eve")
		require.ErrorContains(t, err, "ask for a ClusterRole with the verb list on "+resource)
		require.Equal(t, cli.ExitError, cli.ExitCode(err))
	}
	clients := clientsOf(t, allKinds, commandWorld(t)...)
	forbid(t, clients, "events", forbidden("events"))
	out, notes, err := shows(t, clients, options{output: cli.Output{Format: "table"}})
	require.NoError(t, err)
	require.Contains(t, out, "due")
	require.Contains(t, notes, "you may not list events: what only they say of pods that are held is not known (ask for a ClusterRole with the verb list on events")
	clients = clientsOf(t, allKinds, commandWorld(t)...)
	forbid(t, clients, "events", errors.New("connection refused"))
	_, _, err = shows(t, clients, options{output: cli.Output{Format: "table"}})
	require.ErrorContains(t, err, "list events: connection refused")
}

// runEvictions runs the command line.
func runEvictions(t *testing.T, arguments ...string) error {
	t.Helper()
	cmd := NewCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(arguments)
	return cmd.ExecuteContext(t.Context())
}

func TestRefusesFlagsThatItCannotObey(t *testing.T) {
	t.Parallel()
	require.EqualError(t, runEvictions(t, "-o", "xml"), `--output is "xml", want one of table, wide, yaml, json, name`)
	require.EqualError(t, runEvictions(t, "-w", "-o", "yaml"), `--output is "yaml", want one of table, json`)
	require.EqualError(t, runEvictions(t, "--timeout", "5m"), "--timeout says when to give up: give --until-done as well")
	require.EqualError(t, runEvictions(t, "--until-done", "--timeout", "-1s"), "--timeout is -1s, want 0s or more")
	require.ErrorContains(t, runEvictions(t, "node-7"), "unknown command")
	require.ErrorIs(t, runEvictions(t, "--kubeconfig", filepath.Join(t.TempDir(), "none")), os.ErrNotExist)
}

func TestNamespacesAreAskedAboutAsKubectlDoes(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: http://192.0.2.1:1}}]\ncontexts: [{name: c, context: {cluster: c, namespace: mine}}]\n"), 0o600))
	for arguments, want := range map[string]string{
		"": "mine", "-n web": "web", "-A": "", "-n web -A": "", "--node n": "", "--rule r -n web": "web", "--patch p": "",
	} {
		cmd := &cobra.Command{}
		connection, opts := cli.Connect(cmd), newOptions(cmd)
		require.NoError(t, cmd.ParseFlags(strings.Fields(arguments+" --kubeconfig "+kubeconfig)))
		require.NoError(t, opts.complete(connection))
		require.Equal(t, want, opts.filter.Namespace, arguments)
	}
}

// followed is a command that follows a cluster.
type followed struct {
	clients    *cli.Clients
	out, notes paper
	stop       func()
	ended      chan error
}

// follows runs the command with -w in a bubble.
func follows(t *testing.T, clients *cli.Clients, opts options, terminal bool) *followed {
	t.Helper()
	f := &followed{clients: clients, ended: make(chan error, 1)}
	to := streams{out: &f.out, notes: &f.notes, terminal: terminal, size: func() (int, int) { return 100, 30 }}
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	go func() { f.ended <- follow(ctx, clients, &opts, viewOf(&opts, to)) }()
	f.pass(2500 * time.Millisecond) // between two looks
	return f
}

// pass lets time go by.
func (f *followed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *followed) deletePod(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, f.clients.Kubernetes.CoreV1().Pods("web").Delete(t.Context(), name, metav1.DeleteOptions{}))
	f.pass(time.Second)
}

func TestFollowsWithALineForEachChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follows(t, clientsOf(t, allKinds, commandWorld(t)...), options{output: cli.Output{Format: "table"}}, false)
		require.Equal(t, `TIME      NAMESPACE  POD        WHEN     STATE      REASON
00:00:00  web        due        60s ago  Due        broken of node/node-7
00:00:00  web        waiting    in 2m1s  Waiting    broken of node/node-7
00:00:00  web        paused     60s ago  Paused     broken of node/node-7; policy stop is paused
00:00:00  db         protected  stays    Protected  broken of node/node-7; policy keep protects it
`, f.out.take())
		f.deletePod(t, "due")
		require.Equal(t, "00:00:02  web        due        -        Gone       broken of node/node-7\n", f.out.take())
		require.NoError(t, f.clients.Dynamic.Resource(customKinds["EvictionPolicy"]).Delete(t.Context(), "stop", metav1.DeleteOptions{}))
		f.pass(time.Second)
		require.Equal(t, "00:00:03  web        paused     63s ago  Due        broken of node/node-7\n", f.out.take())
		f.pass(2 * time.Minute)
		require.Equal(t, "00:02:01  web        waiting    now      Due        broken of node/node-7\n", f.out.take())
		node, err := f.clients.Kubernetes.CoreV1().Nodes().Get(t.Context(), "node-7", metav1.GetOptions{})
		require.NoError(t, err)
		node.Spec.Taints = nil
		_, err = f.clients.Kubernetes.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		f.pass(time.Second)
		require.Equal(t, 3, strings.Count(f.out.take(), "Staying"))
		require.Contains(t, f.notes.take(), "no Tollgate leads at the moment", "nobody renews the Lease")
		f.stop()
		require.NoError(t, <-f.ended)
		require.Equal(t, "no pod has to leave\n", f.notes.String())
	})
}

func TestFollowsHowTollgateEvicts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follows(t, clientsOf(t, allKinds, commandWorld(t)...), options{output: cli.Output{Format: "table"}}, false)
		require.NotContains(t, f.out.take(), "by Kubernetes")
		require.NoError(t, f.clients.Kubernetes.CoordinationV1().Leases("tollgate-system").Delete(t.Context(), "tollgate", metav1.DeleteOptions{}))
		f.pass(20 * time.Second)
		require.Contains(t, f.out.take(), "Due        broken of node/node-7; by Kubernetes")
		require.Contains(t, f.notes.take(), "Tollgate does not run here")
		f.stop()
		require.NoError(t, <-f.ended)
	})
}

func TestFollowsInJSON(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follows(t, clientsOf(t, allKinds, commandWorld(t)...), options{output: cli.Output{Format: "json"}}, false)
		require.Equal(t, 4, strings.Count(f.out.take(), "\n"))
		f.deletePod(t, "due")
		require.Contains(t, f.out.take(), `"pod":"due","uid":"due","node":"node-7","state":"Gone"`)
		f.stop()
		require.NoError(t, <-f.ended)
	})
}

func TestDrawsOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follows(t, clientsOf(t, allKinds, commandWorld(t)...), options{output: cli.Output{Format: "table"}}, true)
		first := f.out.take()
		require.Equal(t, 1, strings.Count(first, enter))
		require.Contains(t, first, "in 2m1s")
		f.pass(time.Second)
		second := f.out.take()
		require.Equal(t, 1, strings.Count(second, home), "once a second")
		require.Contains(t, second, "in 118s")
		f.deletePod(t, "due")
		require.Contains(t, f.out.take(), "1 of 4 gone, 1 to go, 1 held, 1 protected")
		f.stop()
		require.NoError(t, <-f.ended)
		last := f.out.take()
		require.True(t, strings.HasPrefix(last, leave))
		require.Contains(t, last, "1 of 4 gone")
	})
}

func TestEndsWhenItIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follows(t, clientsOf(t, allKinds, commandWorld(t)...), options{output: cli.Output{Format: "table"}, untilDone: true, timeout: time.Hour}, false)
		for _, name := range []string{"due", "waiting"} {
			f.deletePod(t, name)
		}
		require.Empty(t, f.ended)
		f.deletePod(t, "paused")
		require.NoError(t, <-f.ended)
		require.Contains(t, f.notes.String(), "1 pod held by EvictionPolicy/keep")
	})
}

func TestGivesUpWhenItIsToldTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follows(t, clientsOf(t, allKinds, commandWorld(t)...), options{output: cli.Output{Format: "table"}, untilDone: true, timeout: 5 * time.Minute}, false)
		f.pass(5 * time.Minute)
		err := <-f.ended
		require.EqualError(t, err, "after 5m0s there are pods that have to leave: 2 Due, 1 Paused")
		require.Equal(t, cli.ExitVerdict, cli.ExitCode(err))
	})
}

func TestAClusterThatMayNotBeFollowedIsAnError(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"list", "watch"} {
		synctest.Test(t, func(t *testing.T) {
			clients := clientsOf(t, allKinds, commandWorld(t)...)
			typed := clients.Kubernetes.(*fake.Clientset)
			if verb == "list" {
				typed.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden("pods") })
			} else {
				typed.PrependWatchReactor("pods", refusingWatch(forbidden("pods")))
			}
			f := follows(t, clients, options{output: cli.Output{Format: "table"}}, true)
			f.pass(time.Minute)
			err := <-f.ended
			require.ErrorContains(t, err, "ask for a ClusterRole with the verb "+verb+" on pods")
			require.Equal(t, cli.ExitError, cli.ExitCode(err))
		})
	}
}

func TestWhatMayNotBeFollowedIsSaid(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"namespaces", "poddisruptionbudgets", "events", "resourceclaims", "resourceslices"} {
		synctest.Test(t, func(t *testing.T) {
			clients := clientsOf(t, allKinds, commandWorld(t)...)
			forbid(t, clients, resource, forbidden(resource))
			f := follows(t, clients, options{output: cli.Output{Format: "table"}}, false)
			f.pass(time.Minute)
			require.Contains(t, f.out.String(), "due")
			require.Equal(t, 1, strings.Count(unwrapped(f.notes.String()), "ask for a ClusterRole"), f.notes.String())
			require.Contains(t, f.notes.String(), resource)
			f.stop()
			require.NoError(t, <-f.ended)
		})
	}
}

func TestWhatGoesWrongIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clients := clientsOf(t, allKinds, commandWorld(t)...)
		clients.Kubernetes.(*fake.Clientset).PrependWatchReactor("pods", refusingWatch(errors.New("connection reset")))
		f := follows(t, clients, options{output: cli.Output{Format: "table"}}, true)
		require.Contains(t, f.out.take(), "what is shown may be old: watch pods: connection reset")
		f.stop()
		require.NoError(t, <-f.ended)
	})
}

func TestEndsWhenItIsInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		var out paper
		opts := &options{output: cli.Output{Format: "table"}}
		err := follow(ctx, clientsOf(t, allKinds, commandWorld(t)...), opts, viewOf(opts, streams{out: &out, notes: &out}))
		require.NoError(t, err)
	})
}

// commandManyPods answers with that many pods on a tainted node.
func commandManyPods(b *testing.B, count int) *cli.Clients {
	b.Helper()
	clients := clientsOf(b, allKinds, commandWorld(b)[:3]...)
	pods := &corev1.PodList{}
	for i := range count {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-" + strconv.Itoa(i%50), Name: "pod-" + strconv.Itoa(i), UID: types.UID("uid-" + strconv.Itoa(i)),
			Labels: map[string]string{"app": "app-" + strconv.Itoa(i%200)},
		}}
		pod.Spec.NodeName = "node-7"
		pods.Items = append(pods.Items, pod)
	}
	clients.Kubernetes.(*fake.Clientset).PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, pods, nil })
	return clients
}

func BenchmarkShow10000Pods(b *testing.B) {
	clients := commandManyPods(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, show(b.Context(), clients, commandNoon, &options{output: cli.Output{Format: "table"}}, streams{out: io.Discard, notes: io.Discard}))
	}
}
