package app

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestKeeper(t *testing.T) {
	t.Parallel()

	t.Run("VS-01 all of Kubernetes 1.37 is watched, and known when all is listed", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes137(), func(w *world) {
			news := w.news()
			slices.Sort(news)
			require.Equal(t, []string{"no groups", "run devicetaintrules v1", "run resourceclaims v1", "run resourceslices v1"}, news)
			require.Equal(t, "v1", w.keeper.Version(ruleName))
			require.Empty(t, w.keeper.Version(groupsName))
			w.list("resourceclaims", "devicetaintrules")
			require.Empty(t, w.news(), "DE-53")
			w.list("resourceslices")
			require.Equal(t, []string{"known"}, w.news())
			require.Len(t, w.log(), 5, "once for each resource")
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
			startKeeper(t, api, func(w *world) {
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
		startKeeper(t, kubernetes136(), func(w *world) {
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
		startKeeper(t, &api{serves: map[string][]string{}}, func(w *world) {
			require.Equal(t, []string{"no groups", "known"}, w.news())
			require.Len(t, w.log(), 5)
		})
	})

	t.Run("VS-01 rules that appear later are watched within a minute, and nobody forgets what was known", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes136(), func(w *world) {
			w.list("resourceclaims", "resourceslices")
			w.news()
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(discoveryInterval)
			require.Equal(t, []string{"run devicetaintrules v1"}, w.news())
			w.list("devicetaintrules")
			require.Empty(t, w.news())
		})
	})

	t.Run("VS-01 rules that vanish are forgotten, but not on one word", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes137(), func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices")
			w.pass(discoveryInterval)
			require.Empty(t, w.news())
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(retryInterval)
			require.Empty(t, w.news(), "it was the word of another replica")
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices")
			w.pass(discoveryInterval)
			require.Empty(t, w.news())
			w.pass(retryInterval)
			require.Equal(t, []string{"end devicetaintrules v1", "forget devicetaintrules v1"}, w.news(), "and what is known stays known")
			require.Empty(t, w.keeper.Version(ruleName))
		})
	})

	t.Run("VS-01 a watch that is told that there is no such resource has it looked at at once", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes137(), func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices")
			missing := apierrors.NewGenericServerResponse(404, "get", ruleName, "", "404 page not found", 0, true)
			w.watch("devicetaintrules").report(missing)
			w.pass(retryInterval)
			require.Equal(t, []string{"end devicetaintrules v1", "forget devicetaintrules v1"}, w.news())
		})
	})

	t.Run("F10 a watch that keeps being told so has nobody ask again and again", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes137(), func(w *world) {
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
		startKeeper(t, api, func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			w.watch("devicetaintrules").holds = []string{"same", "gone"}
			api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(discoveryInterval)
			require.Empty(t, w.news(), "what is served is kept")
			require.Equal(t, "v1beta2", w.keeper.Version(ruleName))
			api.set("resource.k8s.io/v1beta2")
			w.pass(discoveryInterval)
			require.Equal(t, []string{"end devicetaintrules v1beta2", "run devicetaintrules v1"}, w.news(), "no rule is gone yet")
			require.Equal(t, "v1", w.keeper.Version(ruleName))
			require.Equal(t, "v1", w.keeper.Version(statusName))
			w.watch("devicetaintrules").holds = []string{"same"}
			w.list("devicetaintrules")
			require.Equal(t, []string{"forget devicetaintrules v1beta2", "keep same"}, w.news())
		})
	})

	t.Run("VS-08 PodGroups count in whatever version they are served", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.set("scheduling.k8s.io/v1alpha2", "podgroups")
		startKeeper(t, api, func(w *world) {
			require.Contains(t, w.news(), "groups")
			api.set("scheduling.k8s.io/v1alpha2")
			w.pass(discoveryInterval + retryInterval)
			require.Equal(t, []string{"no groups"}, w.news())
		})
	})

	t.Run("DE-53 nothing is known while the API server does not say what it serves", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.fail(errors.New("etcd is away"))
		startKeeper(t, api, func(w *world) {
			require.Empty(t, w.news())
			asked := api.requests()
			w.pass(time.Minute)
			require.Empty(t, w.news())
			require.LessOrEqual(t, api.requests()-asked, 2*20, "two groups, once in lookAgain")
			require.Len(t, w.log(), 1)
			api.fail(nil)
			w.pass(retryInterval)
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			require.Equal(t, "known", last(w.news()))
			w.log()
			api.fail(errors.New("etcd is away"))
			w.pass(time.Hour)
			require.Empty(t, w.news(), "what is known stays known")
			require.Len(t, w.log(), 1, "a second outage is said again")
		})
	})

	t.Run("DE-53 what is known is unknown while slices are listed anew", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.set("resource.k8s.io/v1", "resourceclaims", "devicetaintrules")
		startKeeper(t, api, func(w *world) {
			w.list("resourceclaims", "devicetaintrules")
			require.Equal(t, "known", last(w.news()))
			api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(discoveryInterval)
			require.Equal(t, []string{"unknown", "run resourceslices v1"}, w.news())
			require.False(t, w.watch("resourceslices").known, "it is said before anything of them can arrive")
			w.list("resourceslices")
			require.Equal(t, []string{"known"}, w.news())
		})
	})

	t.Run("DE-16 what is known is unknown before the first slice is forgotten", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes137(), func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			w.api.set("resource.k8s.io/v1", "resourceclaims", "devicetaintrules")
			w.pass(discoveryInterval + retryInterval)
			require.Equal(t, []string{"unknown", "end resourceslices v1", "forget resourceslices v1", "known"}, w.news())
		})
	})
}
