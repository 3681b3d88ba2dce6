package served

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
	groupsName = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
)

// api is an API server that serves what a test says.
type api struct {
	mu     sync.Mutex
	serves map[string][]string
	err    error
	asked  int
}

func (a *api) ServerResourcesForGroupVersionWithContext(_ context.Context, version string) (*metav1.APIResourceList, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.err != nil {
		return nil, a.err
	}
	names, ok := a.serves[version]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	}
	list := &metav1.APIResourceList{GroupVersion: version}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name}, metav1.APIResource{Name: name + "/status"})
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

func (a *api) requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// fakeWatch is a watch whose list ends when a test says so.
type fakeWatch struct {
	world  *world
	name   string
	report func(error)
	synced chan struct{}
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

func (w *fakeWatch) Forget() { w.world.note("forget " + w.name) }

// world is a keeper and all that happens around it.
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
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, what)
}

// news returns what happened since it was last asked.
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

func (w *world) watch(name string) *fakeWatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches[name]
}

// pass lets time pass, and all that is due by then happen.
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

func (w *world) resource(name schema.GroupResource, versions ...string) Resource {
	return Resource{
		Name: name, Versions: versions, Without: "nothing of " + name.Resource,
		Watch: func(version string, report func(error)) Watch {
			w.mu.Lock()
			defer w.mu.Unlock()
			watch := &fakeWatch{world: w, name: name.Resource + " " + version, report: report, synced: make(chan struct{})}
			w.watches[name.Resource] = watch
			return watch
		},
		Probe: func(context.Context, string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.probes++
			return w.denials[name.Resource]
		},
	}
}

// start runs a keeper of claims, slices, rules and PodGroups in a bubble.
func start(t *testing.T, api *api, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: api, registry: prometheus.NewPedanticRegistry(), watches: map[string]*fakeWatch{}, denials: map[string]error{}}
		misleading := w.resource(sliceName, "v1")
		misleading.Misleading = true
		w.keeper = New(Options{
			Discovery: api, Clock: clock.RealClock{}, Metrics: NewMetrics(w.registry),
			Resources: []Resource{
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
			},
			Known: func(known bool) {
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

func TestKeeper(t *testing.T) {
	t.Parallel()

	t.Run("VS-01 all of Kubernetes 1.37 is watched, and known when all is listed", func(t *testing.T) {
		t.Parallel()
		start(t, kubernetes137(), func(w *world) {
			news := w.news()
			slices.Sort(news)
			require.Equal(t, []string{"no groups", "run devicetaintrules v1", "run resourceclaims v1", "run resourceslices v1"}, news)
			require.Equal(t, "v1", w.keeper.Version(ruleName))
			require.Empty(t, w.keeper.Version(groupsName))
			w.list("resourceclaims", "devicetaintrules")
			require.Empty(t, w.news(), "DE-53")
			w.list("resourceslices")
			require.Equal(t, []string{"known"}, w.news())
			require.Len(t, w.log(), 4, "once for each resource")
			w.pass(time.Hour)
			require.Empty(t, w.news())
			require.Empty(t, w.log())
			require.False(t, w.keeper.NeedLeaderElection())
		})
	})

	for _, version := range []string{"v1beta2", "v1alpha3"} {
		t.Run("VS-02 rules are watched in "+version+" where there is nothing newer", func(t *testing.T) {
			t.Parallel()
			api := kubernetes136()
			api.set("resource.k8s.io/"+version, "devicetaintrules")
			start(t, api, func(w *world) {
				require.Contains(t, w.news(), "run devicetaintrules "+version)
				require.Equal(t, version, w.keeper.Version(ruleName))
				w.list("resourceclaims", "resourceslices")
				require.Empty(t, w.news())
				w.list("devicetaintrules")
				require.Equal(t, []string{"known"}, w.news())
			})
		})
	}

	t.Run("VS-06 what is not served is said once and is not waited for", func(t *testing.T) {
		t.Parallel()
		start(t, kubernetes136(), func(w *world) {
			w.list("resourceclaims", "resourceslices")
			require.Equal(t, "known", last(w.news()))
			require.Empty(t, w.keeper.Version(ruleName))
			logged := strings.Join(w.log(), "\n")
			require.Equal(t, 1, strings.Count(logged, `"so"="nothing of devicetaintrules"`), logged)
			w.pass(time.Hour)
			require.Empty(t, w.log())
			require.Empty(t, w.news())
		})
	})

	t.Run("VS-01 with the API group switched off nothing is waited for", func(t *testing.T) {
		t.Parallel()
		start(t, &api{serves: map[string][]string{}}, func(w *world) {
			require.Equal(t, []string{"no groups", "known"}, w.news())
			require.Len(t, w.log(), 4)
		})
	})

	t.Run("VS-01 rules that appear later are watched within a minute, and nobody forgets what was known", func(t *testing.T) {
		t.Parallel()
		start(t, kubernetes136(), func(w *world) {
			w.list("resourceclaims", "resourceslices")
			w.news()
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(lookEvery)
			require.Equal(t, []string{"run devicetaintrules v1"}, w.news())
			w.list("devicetaintrules")
			require.Empty(t, w.news())
		})
	})

	t.Run("VS-01 rules that vanish are forgotten, but not on one word", func(t *testing.T) {
		t.Parallel()
		start(t, kubernetes137(), func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices")
			w.pass(lookEvery)
			require.Empty(t, w.news())
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(lookAgain)
			require.Empty(t, w.news(), "it was the word of another replica")
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices")
			w.pass(lookEvery)
			require.Empty(t, w.news())
			w.pass(lookAgain)
			require.Equal(t, []string{"end devicetaintrules v1", "forget devicetaintrules v1"}, w.news(), "and what is known stays known")
			require.Empty(t, w.keeper.Version(ruleName))
		})
	})

	t.Run("VS-01 a watch that is told that there is no such resource has it looked at at once", func(t *testing.T) {
		t.Parallel()
		start(t, kubernetes137(), func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices")
			missing := apierrors.NewGenericServerResponse(404, "get", ruleName, "", "404 page not found", 0, true)
			w.watch("devicetaintrules").report(missing)
			w.pass(lookAgain)
			require.Equal(t, []string{"end devicetaintrules v1", "forget devicetaintrules v1"}, w.news())
		})
	})

	t.Run("F10 a watch that keeps being told so has nobody ask again and again", func(t *testing.T) {
		t.Parallel()
		start(t, kubernetes137(), func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			asked := w.api.requests()
			for range 100 {
				w.watch("devicetaintrules").report(apierrors.NewNotFound(ruleName, ""))
				synctest.Wait()
			}
			require.LessOrEqual(t, w.api.requests()-asked, len(w.keeper.resources))
		})
	})

	t.Run("VS-02 an upgrade of the control plane changes the version that is watched", func(t *testing.T) {
		t.Parallel()
		api := kubernetes136()
		api.set("resource.k8s.io/v1beta2", "devicetaintrules")
		start(t, api, func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(lookEvery)
			require.Empty(t, w.news(), "what is served is kept")
			require.Equal(t, "v1beta2", w.keeper.Version(ruleName))
			api.set("resource.k8s.io/v1beta2")
			w.pass(lookEvery)
			require.Equal(t, []string{"end devicetaintrules v1beta2", "forget devicetaintrules v1beta2", "run devicetaintrules v1"}, w.news())
			require.Equal(t, "v1", w.keeper.Version(ruleName))
		})
	})

	t.Run("VS-08 PodGroups count in whatever version they are served", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.set("scheduling.k8s.io/v1alpha2", "podgroups")
		start(t, api, func(w *world) {
			require.Contains(t, w.news(), "groups")
			api.set("scheduling.k8s.io/v1alpha2")
			w.pass(lookEvery + lookAgain)
			require.Equal(t, []string{"no groups"}, w.news())
		})
	})

	t.Run("DE-53 nothing is known while the API server does not say what it serves", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.fail(errors.New("etcd is away"))
		start(t, api, func(w *world) {
			require.Empty(t, w.news())
			asked := api.requests()
			w.pass(time.Minute)
			require.Empty(t, w.news())
			require.LessOrEqual(t, api.requests()-asked, 20)
			require.Len(t, w.log(), 1)
			api.fail(nil)
			w.pass(lookAgain)
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			require.Equal(t, "known", last(w.news()))
			api.fail(errors.New("etcd is away"))
			w.pass(time.Hour)
			require.Empty(t, w.news(), "what is known stays known")
		})
	})

	t.Run("DE-53 what is known is unknown while slices are listed anew", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.set("resource.k8s.io/v1", "resourceclaims", "devicetaintrules")
		start(t, api, func(w *world) {
			w.list("resourceclaims", "devicetaintrules")
			require.Equal(t, "known", last(w.news()))
			api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(lookEvery)
			require.Equal(t, []string{"unknown", "run resourceslices v1"}, w.news())
			w.list("resourceslices")
			require.Equal(t, []string{"known"}, w.news())
		})
	})
}

func TestF10MissingPermissions(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(ruleName, "", errors.New("no role"))

	t.Run("what may not be watched is said once, asked for once a minute, and not waited for", func(t *testing.T) {
		t.Parallel()
		start(t, kubernetes136(), func(w *world) {
			w.deny("devicetaintrules", forbidden)
			w.list("resourceclaims", "resourceslices")
			require.Equal(t, "known", last(w.news()))
			w.log()
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(lookEvery)
			require.Equal(t, []string{"run devicetaintrules v1", "end devicetaintrules v1", "forget devicetaintrules v1"}, w.news())
			logged := w.log()
			require.Len(t, logged, 1)
			require.Contains(t, logged[0], "not permitted to watch")
			require.Equal(t, "v1", w.keeper.Version(ruleName), "one may still write its status")
			require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(states), "tollgate_api_resources"))
			w.pass(10 * lookEvery)
			require.Empty(t, w.news())
			require.Empty(t, w.log())
			require.Equal(t, 10, w.probes)
			w.deny("devicetaintrules", nil)
			w.pass(lookEvery)
			require.Equal(t, []string{"run devicetaintrules v1"}, w.news())
			w.list("devicetaintrules")
			require.Empty(t, w.news())
			require.Contains(t, strings.Join(w.log(), ""), "watching")
		})
	})

	t.Run("a permission that is taken away leaves what is known, and is said", func(t *testing.T) {
		t.Parallel()
		start(t, kubernetes137(), func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			w.log()
			watch := w.watch("devicetaintrules")
			for range 100 {
				watch.report(forbidden)
			}
			require.Empty(t, w.news())
			require.Len(t, w.log(), 1)
			watch.report(nil)
			require.Empty(t, w.news())
			require.Contains(t, strings.Join(w.log(), ""), "watching")
		})
	})
}

const states = `# HELP tollgate_api_resources 1 for the state that a resource of the API server is in: unknown, unserved, served, denied, listing, watched or stale.
# TYPE tollgate_api_resources gauge
tollgate_api_resources{resource="devicetaintrules",state="denied"} 1
tollgate_api_resources{resource="devicetaintrules",state="listing"} 0
tollgate_api_resources{resource="devicetaintrules",state="served"} 0
tollgate_api_resources{resource="devicetaintrules",state="stale"} 0
tollgate_api_resources{resource="devicetaintrules",state="unknown"} 0
tollgate_api_resources{resource="devicetaintrules",state="unserved"} 0
tollgate_api_resources{resource="devicetaintrules",state="watched"} 0
tollgate_api_resources{resource="podgroups",state="denied"} 0
tollgate_api_resources{resource="podgroups",state="listing"} 0
tollgate_api_resources{resource="podgroups",state="served"} 0
tollgate_api_resources{resource="podgroups",state="stale"} 0
tollgate_api_resources{resource="podgroups",state="unknown"} 0
tollgate_api_resources{resource="podgroups",state="unserved"} 1
tollgate_api_resources{resource="podgroups",state="watched"} 0
tollgate_api_resources{resource="resourceclaims",state="denied"} 0
tollgate_api_resources{resource="resourceclaims",state="listing"} 0
tollgate_api_resources{resource="resourceclaims",state="served"} 0
tollgate_api_resources{resource="resourceclaims",state="stale"} 0
tollgate_api_resources{resource="resourceclaims",state="unknown"} 0
tollgate_api_resources{resource="resourceclaims",state="unserved"} 0
tollgate_api_resources{resource="resourceclaims",state="watched"} 1
tollgate_api_resources{resource="resourceslices",state="denied"} 0
tollgate_api_resources{resource="resourceslices",state="listing"} 0
tollgate_api_resources{resource="resourceslices",state="served"} 0
tollgate_api_resources{resource="resourceslices",state="stale"} 0
tollgate_api_resources{resource="resourceslices",state="unknown"} 0
tollgate_api_resources{resource="resourceslices",state="unserved"} 0
tollgate_api_resources{resource="resourceslices",state="watched"} 1
`

func last(of []string) string { return of[len(of)-1] }
