package sidebyside

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// auditPolicy makes the API server write which pods the evictors delete.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users:
  - system:serviceaccount:kube-system:device-taint-eviction-controller
  - system:serviceaccount:tollgate-system:tollgate
  verbs: [delete, deletecollection, create]
  resources: [{group: "", resources: [pods, pods/eviction]}]
- level: None
`

// plane is a control plane with one evictor of tainted devices.
type plane struct {
	client kubernetes.Interface
	audit  auditlog.Log

	mu    sync.Mutex
	marks map[types.NamespacedName][]string // reasons that pods were seen marked with
}

// startPlane starts a control plane, with PodGroups, and its evictor.
func startPlane(t *testing.T, evictor controlplane.Eviction) *plane {
	t.Helper()
	audit, auditArgs, err := auditlog.New(t.TempDir(), auditPolicy)
	require.NoError(t, err)
	p := &plane{audit: audit, marks: map[types.NamespacedName][]string{}}
	const gates = "--feature-gates=GenericWorkload=true,DRAWorkloadResourceClaims=true"
	cp, err := suite.Start(t.Context(), "devices-"+string(evictor), controlplane.Options{
		Nodes: 2, Eviction: evictor,
		ExtraArgs: map[string][]string{
			controlplane.APIServer:         append(auditArgs, gates, "--runtime-config=scheduling.k8s.io/v1beta1=true"),
			controlplane.ControllerManager: {gates},
			controlplane.Scheduler:         {gates},
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cp.Stop(context.WithoutCancel(t.Context()))) })
	if evictor == controlplane.EvictionTollgate {
		programs, err := suite.Binaries(t.Context())
		require.NoError(t, err)
		require.NoError(t, programs.BuildTollgate(t.Context()))
		_, err = install.Install(t.Context(), cp, install.Options{Programs: programs})
		require.NoError(t, err)
	}
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	p.client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	p.watchMarks(t)
	return p
}

// watchMarks notes how pods are marked before they go.
func (p *plane) watchMarks(t *testing.T) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(p.client, 0)
	registration, err := factory.Core().V1().Pods().Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) { p.noteMarks(obj) },
		DeleteFunc: p.noteMarks,
	})
	require.NoError(t, err)
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	require.True(t, toolscache.WaitForCacheSync(t.Context().Done(), registration.HasSynced))
}

func (p *plane) noteMarks(obj any) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && !slices.Contains(p.marks[name], c.Reason) {
			p.marks[name] = append(p.marks[name], c.Reason)
		}
	}
}

// marksOf returns the reasons that a pod was seen marked with.
func (p *plane) marksOf(name types.NamespacedName) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.marks[name])
}

// deletions returns when the evictor had pods deleted.
func (p *plane) deletions() (map[types.NamespacedName][]time.Time, error) {
	events, err := p.audit.Read(func(*auditv1.Event) bool { return true })
	if err != nil {
		return nil, err
	}
	times := map[types.NamespacedName][]time.Time{}
	for _, deletion := range auditlog.Deletions(events) {
		times[deletion.NamespacedName] = append(times[deletion.NamespacedName], deletion.At)
	}
	return times, nil
}
