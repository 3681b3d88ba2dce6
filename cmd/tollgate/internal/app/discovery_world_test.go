package app

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

var (
	ruleName   = schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules"}
	sliceName  = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}
	claimName  = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	statusName = schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules/status"}
	groupsName = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
)

// api is a discovery client with set responses.
type api struct {
	mu     sync.Mutex
	serves map[string][]string
	err    error
	// fails holds the group versions whose discovery fails.
	fails map[string]error
	// plain holds the resources without a status.
	plain []string
	asked int
}

func (a *api) ServerResourcesForGroupVersionWithContext(_ context.Context, version string) (*metav1.APIResourceList, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.err != nil {
		return nil, a.err
	}
	if err := a.fails[version]; err != nil {
		return nil, err
	}
	names, ok := a.serves[version]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	}
	list := &metav1.APIResourceList{GroupVersion: version}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		if !slices.Contains(a.plain, name) {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name + "/status"})
		}
	}
	return list, nil
}

func (a *api) set(version string, names ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(names) == 0 {
		delete(a.serves, version)
		return
	}
	a.serves[version] = names
}

func (a *api) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// failAbout makes discovery of a group version fail.
func (a *api) failAbout(version string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fails == nil {
		a.fails = map[string]error{}
	}
	a.fails[version] = err
}

func (a *api) requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// fakeWatch is a watch whose list the test ends.
type fakeWatch struct {
	world  *world
	name   string
	report func(error)
	synced chan struct{}
	// holds are its objects; known is the last value of Known before it began.
	holds []string
	known bool
	// forgotten is called by Forget if not nil.
	forgotten func()
}

func (w *fakeWatch) Run(ctx context.Context) {
	w.world.note("run " + w.name)
	if err := w.world.denied(w.name); err != nil {
		w.report(err)
	}
	<-ctx.Done()
	w.world.note("end " + w.name)
}

func (w *fakeWatch) Synced() <-chan struct{} { return w.synced }

func (w *fakeWatch) Holds(object any) bool { return slices.Contains(w.holds, object.(string)) }

func (w *fakeWatch) Forget(keep func(any) bool) {
	w.world.note("forget " + w.name)
	if w.forgotten != nil {
		w.forgotten()
	}
	for _, object := range w.holds {
		if keep(object) {
			w.world.note("keep " + object)
		}
	}
}

// world is a keeper with its fakes.
type world struct {
	t        *testing.T
	api      *api
	keeper   *Keeper
	registry *prometheus.Registry

	mu      sync.Mutex
	notes   []string
	logged  []string
	watches map[string]*fakeWatch
	denials map[string]error
	probes  int
	known   bool
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, what)
}

// news returns the events since the last call.
func (w *world) news() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	notes := w.notes
	w.notes = nil
	return notes
}

func (w *world) log() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	logged := w.logged
	w.logged = nil
	return logged
}

func (w *world) deny(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denials[name] = err
}

func (w *world) denied(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.denials[strings.Split(name, " ")[0]]
}

func (w *world) probed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.probes
}

func (w *world) watch(name string) *fakeWatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches[name]
}

// pass advances time and waits for the goroutines.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// list ends the first lists of resources.
func (w *world) list(names ...string) {
	for _, name := range names {
		close(w.watch(name).synced)
	}
}

func (w *world) resource(name schema.GroupResource, versions ...string) apiResource {
	return apiResource{
		Name: name, Versions: versions, Without: "nothing of " + name.Resource,
		Watch: func(version string, report func(error)) resourceWatch {
			w.mu.Lock()
			defer w.mu.Unlock()
			watch := &fakeWatch{world: w, name: name.Resource + " " + version, report: report, synced: make(chan struct{}), known: w.known}
			w.watches[name.Resource] = watch
			return watch
		},
	}
}

// startKeeper runs a keeper of claims, slices, rules and PodGroups in a synctest bubble.
func startKeeper(t *testing.T, api *api, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: api, registry: prometheus.NewPedanticRegistry(), watches: map[string]*fakeWatch{}, denials: map[string]error{}}
		misleading := w.resource(sliceName, "v1")
		misleading.Misleading = true
		w.keeper = NewKeeper(KeeperOptions{
			Discovery: api, Clock: clock.RealClock{}, Metrics: NewResourceMetrics(w.registry),
			Permitted: func(_ context.Context, resource schema.GroupVersionResource) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.probes++
				return w.denials[resource.Resource]
			},
			Resources: []apiResource{
				{
					Name: groupsName, Versions: []string{"v1beta1", "v1alpha2"}, Without: "no groups",
					Served: func(served bool) {
						if served {
							w.note("groups")
						} else {
							w.note("no groups")
						}
					},
				},
				w.resource(claimName, "v1"), misleading, w.resource(ruleName, "v1", "v1beta2", "v1alpha3"),
				{Name: statusName, Versions: []string{"v1", "v1beta2", "v1alpha3"}, Without: "no status is written"},
			},
			Known: func(known bool) {
				w.mu.Lock()
				w.known = known
				w.mu.Unlock()
				if known {
					w.note("known")
				} else {
					w.note("unknown")
				}
			},
		})
		log := funcr.New(func(_, args string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.logged = append(w.logged, args)
		}, funcr.Options{})
		ctx, stop := context.WithCancel(logr.NewContext(t.Context(), log))
		ended := make(chan error)
		go func() { ended <- w.keeper.Start(ctx) }()
		synctest.Wait()
		test(w)
		w.news()
		stop()
		require.NoError(t, <-ended)
		for _, what := range w.news() {
			require.NotContains(t, what, "forget", "nobody is to think that the taints are gone")
		}
	})
}

func kubernetes137() *api {
	return &api{serves: map[string][]string{"resource.k8s.io/v1": {"deviceclasses", "resourceclaims", "resourceslices", "devicetaintrules"}}}
}

func kubernetes136() *api {
	return &api{serves: map[string][]string{"resource.k8s.io/v1": {"deviceclasses", "resourceclaims", "resourceslices"}}}
}

func last(of []string) string { return of[len(of)-1] }
