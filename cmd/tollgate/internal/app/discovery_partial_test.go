package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestF10DiscoveryThatAnswersInPart(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no discovery"))

	t.Run("F10 one group about which there is no answer keeps no other from being watched", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.failAbout("scheduling.k8s.io/v1beta1", forbidden)
		startKeeper(t, api, func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			news := w.news()
			require.Contains(t, news, "run devicetaintrules v1")
			require.NotContains(t, news, "known", "DE-53")
			w.pass(grace - retryInterval)
			require.Empty(t, w.news())
			w.log()
			w.pass(2 * retryInterval)
			require.Equal(t, []string{"known"}, w.news())
			require.False(t, w.keeper.Answered(groupsName), "it is not waited for, but not known either")
			require.Contains(t, strings.Join(w.log(), ""), `"so"="no groups"`)
			asked := api.requests()
			w.pass(10 * discoveryInterval)
			require.LessOrEqual(t, api.requests()-asked, 22, "it is asked for once a minute then")
			require.Empty(t, w.log())
			require.Empty(t, w.news())

			api.failAbout("scheduling.k8s.io/v1beta1", nil)
			api.set("scheduling.k8s.io/v1beta1", "podgroups")
			w.pass(discoveryInterval)
			require.Equal(t, []string{"groups"}, w.news())
			require.True(t, w.keeper.Answered(groupsName))

			api.failAbout("scheduling.k8s.io/v1beta1", forbidden)
			w.pass(discoveryInterval)
			asked = api.requests()
			w.pass(grace - retryInterval)
			require.GreaterOrEqual(t, api.requests()-asked, 2*int(grace/retryInterval-1), "a new refusal has its own time")
		})
	})

	t.Run("F10 what is watched stays so when there is no answer about it", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes137(), func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			w.log()
			w.api.failAbout("resource.k8s.io/v1", forbidden)
			w.pass(time.Hour)
			require.Empty(t, w.news())
			require.True(t, w.keeper.Watched(claimName))
			require.Len(t, w.log(), 1)
			w.api.failAbout("resource.k8s.io/v1", nil)
			w.pass(discoveryInterval)
			w.api.failAbout("resource.k8s.io/v1", forbidden)
			w.pass(discoveryInterval)
			require.Len(t, w.log(), 1, "it is said again when it is news again")
		})
	})

	t.Run("DE-53 devices about which there is no answer are never taken for known", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.failAbout("resource.k8s.io/v1", forbidden)
		startKeeper(t, api, func(w *world) {
			w.pass(time.Hour)
			require.NotContains(t, w.news(), "known")
			api.failAbout("resource.k8s.io/v1", nil)
			w.pass(discoveryInterval)
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			require.Contains(t, w.news(), "known")
		})
	})

	t.Run("F10 rules about which there is no answer are not taken for those of an older version", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.failAbout("resource.k8s.io/v1", forbidden)
		api.set("resource.k8s.io/v1beta2", "devicetaintrules")
		startKeeper(t, api, func(w *world) {
			w.pass(discoveryInterval)
			require.NotContains(t, w.news(), "run devicetaintrules v1beta2")
		})
	})

	t.Run("VS-03 rules without a status are watched, and it is said that they have none", func(t *testing.T) {
		t.Parallel()
		api := kubernetes136()
		api.set("resource.k8s.io/v1alpha3", "devicetaintrules")
		api.plain = []string{"devicetaintrules"}
		startKeeper(t, api, func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			require.Equal(t, "known", last(w.news()))
			require.Equal(t, "v1alpha3", w.keeper.Version(ruleName))
			require.Empty(t, w.keeper.Version(statusName))
			w.pass(time.Hour)
			require.Equal(t, 1, strings.Count(strings.Join(w.log(), ""), `"so"="no status is written"`))
		})
	})
}

func TestWatched(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(claimName, "", errors.New("no role"))

	t.Run("claims count as watched once they are listed, and not before", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes137(), func(w *world) {
			require.False(t, w.keeper.Watched(claimName))
			w.list("resourceclaims")
			w.news()
			require.True(t, w.keeper.Watched(claimName))
			require.False(t, w.keeper.Watched(sliceName))
			require.False(t, w.keeper.Watched(groupsName))
		})
	})

	t.Run("F10 claims that one may not watch are not watched, though all else is known", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, &api{serves: map[string][]string{}, err: errors.New("starting")}, func(w *world) {
			w.deny("resourceclaims", forbidden)
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.api.fail(nil)
			w.pass(retryInterval)
			w.list("resourceslices", "devicetaintrules")
			w.pass(grace + retryInterval)
			require.Contains(t, w.news(), "known")
			require.False(t, w.keeper.Watched(claimName))
			w.deny("resourceclaims", nil)
			w.pass(discoveryInterval)
			w.list("resourceclaims")
			w.news()
			require.True(t, w.keeper.Watched(claimName))
			w.watch("resourceclaims").report(forbidden)
			w.news()
			require.False(t, w.keeper.Watched(claimName), "what is known of them grows old")
		})
	})

	t.Run("VS-02 claims that vanish with v1 are not watched from before the first is forgotten", func(t *testing.T) {
		t.Parallel()
		api := kubernetes137()
		api.set("resource.k8s.io/v1beta2", "devicetaintrules")
		startKeeper(t, api, func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.news()
			claims := w.watch("resourceclaims")
			claims.holds = []string{"claim"}
			watched := true
			claims.forgotten = func() { watched = w.keeper.Watched(claimName) }
			api.set("resource.k8s.io/v1")
			w.pass(discoveryInterval + retryInterval)
			require.Contains(t, w.news(), "forget resourceclaims v1")
			require.False(t, watched)
			require.Equal(t, "v1beta2", w.keeper.Version(ruleName))
		})
	})

	t.Run("VS-02 rules are not forgotten while one may not list them in their new version yet", func(t *testing.T) {
		t.Parallel()
		api := kubernetes136()
		api.set("resource.k8s.io/v1beta2", "devicetaintrules")
		startKeeper(t, api, func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.deny("devicetaintrules", forbidden)
			api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			api.set("resource.k8s.io/v1beta2")
			w.pass(discoveryInterval)
			w.pass(grace - 2*retryInterval)
			require.NotContains(t, strings.Join(w.news(), " "), "forget")
			w.deny("devicetaintrules", nil)
			w.pass(retryInterval)
			require.NotContains(t, strings.Join(w.news(), " "), "forget")
			w.list("devicetaintrules")
			require.Contains(t, strings.Join(w.news(), " "), "forget devicetaintrules v1beta2")
		})
	})

	t.Run("F10 rules are forgotten when one may not list them in their new version at all", func(t *testing.T) {
		t.Parallel()
		api := kubernetes136()
		api.set("resource.k8s.io/v1beta2", "devicetaintrules")
		startKeeper(t, api, func(w *world) {
			w.list("resourceclaims", "resourceslices", "devicetaintrules")
			w.deny("devicetaintrules", forbidden)
			api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			api.set("resource.k8s.io/v1beta2")
			w.pass(discoveryInterval + 2*grace)
			require.Contains(t, strings.Join(w.news(), " "), "forget devicetaintrules v1beta2")
		})
	})
}
