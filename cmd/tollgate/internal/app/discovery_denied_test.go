package app

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestF10MissingPermissions(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(ruleName, "", errors.New("no role"))

	t.Run("what may not be watched is said once, asked for once a minute, and not waited for", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes136(), func(w *world) {
			w.deny("devicetaintrules", forbidden)
			w.list("resourceclaims", "resourceslices")
			require.Equal(t, "known", last(w.news()))
			w.log()
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(discoveryInterval)
			require.Equal(t, []string{"run devicetaintrules v1", "end devicetaintrules v1"}, w.news())
			require.NotContains(t, strings.Join(w.log(), ""), "permitted")
			w.pass(grace)
			require.Equal(t, []string{"forget devicetaintrules v1"}, w.news())
			logged := w.log()
			require.Len(t, logged, 1)
			require.Contains(t, logged[0], "not permitted to watch")
			require.Equal(t, "v1", w.keeper.Version(ruleName), "one may still write its status")
			require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(states), "tollgate_api_resources"))
			probes := w.probed()
			require.LessOrEqual(t, probes, int(grace/retryInterval)+1)
			w.pass(10 * discoveryInterval)
			require.Empty(t, w.news())
			require.Empty(t, w.log())
			require.Equal(t, probes+10, w.probed())
			w.deny("devicetaintrules", nil)
			w.pass(discoveryInterval)
			require.Equal(t, []string{"run devicetaintrules v1"}, w.news())
			w.list("devicetaintrules")
			require.Empty(t, w.news())
			require.Contains(t, strings.Join(w.log(), ""), "watching")

			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices")
			w.pass(discoveryInterval + retryInterval)
			w.deny("devicetaintrules", forbidden)
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.pass(discoveryInterval)
			require.Contains(t, w.news(), "run devicetaintrules v1")
			require.NotContains(t, strings.Join(w.log(), ""), "permitted", "a new refusal has its own time")
			w.pass(grace)
			require.Contains(t, strings.Join(w.log(), ""), "not permitted")
		})
	})

	t.Run("DE-53 an API server that does not know its roles yet is waited for", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, &api{serves: map[string][]string{}, err: errors.New("starting")}, func(w *world) {
			for _, name := range []string{"resourceclaims", "resourceslices", "devicetaintrules"} {
				w.deny(name, forbidden)
			}
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.api.fail(nil)
			w.pass(grace - retryInterval)
			require.NotContains(t, w.news(), "known")
			for _, name := range []string{"resourceclaims", "resourceslices", "devicetaintrules"} {
				w.deny(name, nil)
			}
			w.pass(retryInterval)
			w.list("resourceclaims", "resourceslices")
			require.NotContains(t, w.news(), "known")
			w.list("devicetaintrules")
			require.Equal(t, []string{"forget devicetaintrules v1", "known"}, w.news(), "nothing is left of the one that was refused")
			require.NotContains(t, strings.Join(w.log(), ""), "permitted")
		})
	})

	t.Run("nothing is known of what is not permitted, and the rest is known after a while", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, &api{serves: map[string][]string{}, err: errors.New("starting")}, func(w *world) {
			w.deny("resourceslices", forbidden)
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.api.fail(nil)
			w.pass(retryInterval)
			w.list("resourceclaims", "devicetaintrules")
			require.NotContains(t, w.news(), "known")
			w.pass(grace + retryInterval)
			require.Equal(t, []string{"forget resourceslices v1", "known"}, w.news())
			w.deny("resourceslices", nil)
			w.pass(discoveryInterval)
			require.Equal(t, []string{"unknown", "run resourceslices v1"}, w.news())
			w.list("resourceslices")
			require.Equal(t, []string{"known"}, w.news())
		})
	})

	t.Run("a probe that fails otherwise decides nothing", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, &api{serves: map[string][]string{}, err: errors.New("starting")}, func(w *world) {
			w.deny("resourceslices", forbidden)
			w.api.set("resource.k8s.io/v1", "resourceclaims", "resourceslices", "devicetaintrules")
			w.api.fail(nil)
			w.pass(retryInterval)
			w.list("resourceclaims", "devicetaintrules")
			w.deny("resourceslices", apierrors.NewInternalError(errors.New("etcd is away")))
			w.pass(discoveryInterval)
			require.NotContains(t, w.news(), "known")
			w.deny("resourceslices", nil)
			w.pass(retryInterval)
			w.list("resourceslices")
			require.Equal(t, "known", last(w.news()))
		})
	})

	t.Run("a permission that is taken away leaves what is known, and is said", func(t *testing.T) {
		t.Parallel()
		startKeeper(t, kubernetes137(), func(w *world) {
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

const states = `# HELP tollgate_api_resources 1 for the current state of a resource of the API server: unknown, unserved, served, denied, listing, watched or stale.
# TYPE tollgate_api_resources gauge
tollgate_api_resources{resource="devicetaintrules",state="denied"} 1
tollgate_api_resources{resource="devicetaintrules",state="listing"} 0
tollgate_api_resources{resource="devicetaintrules",state="served"} 0
tollgate_api_resources{resource="devicetaintrules",state="stale"} 0
tollgate_api_resources{resource="devicetaintrules",state="unknown"} 0
tollgate_api_resources{resource="devicetaintrules",state="unserved"} 0
tollgate_api_resources{resource="devicetaintrules",state="watched"} 0
tollgate_api_resources{resource="devicetaintrules/status",state="denied"} 0
tollgate_api_resources{resource="devicetaintrules/status",state="listing"} 0
tollgate_api_resources{resource="devicetaintrules/status",state="served"} 1
tollgate_api_resources{resource="devicetaintrules/status",state="stale"} 0
tollgate_api_resources{resource="devicetaintrules/status",state="unknown"} 0
tollgate_api_resources{resource="devicetaintrules/status",state="unserved"} 0
tollgate_api_resources{resource="devicetaintrules/status",state="watched"} 0
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
