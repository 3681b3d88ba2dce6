package informer_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

func ignore(error) {}

func none(any) bool { return false }

// dynamicRule is a rule as the API server returns it.
func dynamicRule(t *testing.T, version string, rule *resourcev1.DeviceTaintRule) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rule)
	require.NoError(t, err)
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: resourcev1.GroupName, Version: version, Kind: "DeviceTaintRule"})
	return object
}

// probed is a client of slices and claims, the first of which may not be listed if refused is an error.
func probed(refused error) *dynamicfake.FakeDynamicClient {
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		slicesResource: "ResourceSliceList", claimsResource: "ResourceClaimList",
	})
	if refused != nil {
		client.PrependReactor("list", slicesResource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, refused
		})
	}
	return client
}

var slicesResource, claimsResource = resourcev1.SchemeGroupVersion.WithResource("resourceslices"), resourcev1.SchemeGroupVersion.WithResource("resourceclaims")

func dynamicClient(version string, objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{informer.RuleResource.WithVersion(version): "DeviceTaintRuleList"}, objects...)
}

func TestWatch(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
		t.Run("VS-02 slices, claims, and rules in "+version+" are followed, and forgotten without a rest", func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(slice("s", "1", deviceTaint("slice")), claim("c", "2"))
			rules := dynamicClient(version, dynamicRule(t, version, rule("r", "3", "rule")))
			d := newDevices(t)
			watches := []*informer.Watch{
				informer.NewSliceWatch(client, d.feed.Slices(), ignore),
				informer.NewClaimWatch(client, d.feed.Claims(), ignore),
				informer.NewRuleWatch(rules, version, d.feed.Rules(), ignore),
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			for _, watch := range watches {
				running.Go(func() { watch.Run(ctx) })
			}
			for _, watch := range watches {
				<-watch.Synced()
			}
			d.feed.SetKnown(true)
			require.Equal(t, []string{"slice", "rule"}, d.keys(t))

			stop()
			running.Wait()
			require.Equal(t, []string{"slice", "rule"}, d.keys(t), "a watch that has ended leaves what it did")
			watches[2].Forget(none)
			require.Equal(t, []string{"slice"}, d.keys(t))
			watches[0].Forget(none)
			require.Empty(t, d.keys(t))
			require.Len(t, d.tracker.PodsUsing(gpu), 1)
			watches[1].Forget(none)
			require.Empty(t, d.tracker.PodsUsing(gpu))
			require.Empty(t, d.tracker.Rules())
		})
	}

	t.Run("VS-02 rules that are watched in another version are the same, and the rest of those of before are forgotten", func(t *testing.T) {
		t.Parallel()
		d := newDevices(t)
		watch := func(version string, rules ...*resourcev1.DeviceTaintRule) *informer.Watch {
			objects := make([]runtime.Object, 0, len(rules))
			for _, rule := range rules {
				objects = append(objects, dynamicRule(t, version, rule))
			}
			watch := informer.NewRuleWatch(dynamicClient(version, objects...), version, d.feed.Rules(), ignore)
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { watch.Run(ctx) })
			<-watch.Synced()
			stop()
			running.Wait()
			return watch
		}
		named := func(name, uid string) *resourcev1.DeviceTaintRule {
			r := rule(uid, "5", "key")
			r.Name = name
			return r
		}
		before := watch("v1beta2", named("same", "1"), named("gone", "2"), named("anew", "3"))
		require.Equal(t, []string{"anew", "gone", "same"}, d.tracker.Rules())
		after := watch("v1", named("same", "1"), named("anew", "4"))
		require.Equal(t, []string{"anew", "gone", "same"}, d.tracker.Rules(), "nothing is missing meanwhile")
		var kept []string
		before.Forget(func(object any) bool {
			held := after.Holds(object)
			if held {
				accessor, err := meta.Accessor(object)
				require.NoError(t, err)
				kept = append(kept, accessor.GetName())
			}
			return held
		})
		require.Equal(t, []string{"same"}, kept)
		require.Equal(t, []string{"anew", "same"}, d.tracker.Rules())
		require.EqualValues(t, "4", d.tracker.UIDOf(tracker.Source{Kind: tracker.SourceRule, Name: "anew"}))
	})

	t.Run("F10 the answers to its requests are reported", func(t *testing.T) {
		t.Parallel()
		client := fake.NewClientset()
		forbidden := apierrors.NewForbidden(resourcev1.Resource("resourceslices"), "", errors.New("no role"))
		client.PrependReactor("list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, forbidden
		})
		reports := make(chan error, 100)
		watch := informer.NewSliceWatch(client, newDevices(t).feed.Slices(), func(err error) { reports <- err })
		run(t, watch.Run)
		require.ErrorIs(t, <-reports, forbidden)
		require.ErrorIs(t, informer.Permitted(t.Context(), probed(forbidden).Resource(slicesResource)), forbidden)
		require.NoError(t, informer.Permitted(t.Context(), probed(forbidden).Resource(claimsResource)))
	})

	t.Run("F10 to be permitted is to list and to watch", func(t *testing.T) {
		t.Parallel()
		client := probed(nil)
		client.PrependWatchReactor("resourceclaims", clienttesting.DefaultWatchReactor(nil, errors.New("no role")))
		require.ErrorContains(t, informer.Permitted(t.Context(), client.Resource(claimsResource)), "no role")
	})
}

func TestRuleOf(t *testing.T) {
	t.Parallel()
	want := rule("r", "3", "rule")
	want.Spec.Taint.TimeAdded = new(metav1.NewTime(start.Local()))
	got, err := informer.RuleOf(dynamicRule(t, "v1beta2", want))
	require.NoError(t, err)
	require.Equal(t, tracker.RuleOf(want), got)
}

func TestVS03ARuleWithASelectorThatIsNotUnderstoodSelectsNothing(t *testing.T) {
	t.Parallel()
	expressions := []any{map[string]any{"cel": map[string]any{"expression": `device.driver == "gpu.example.com"`}}}
	tests := map[string]struct {
		selector map[string]any
		want     []string
	}{
		"VS-03 a class alone, without which the selector is empty": {map[string]any{"deviceClassName": "gpu"}, []string{"deviceClassName"}},
		"VS-03 expressions alone":                                  {map[string]any{"selectors": expressions}, []string{"selectors"}},
		"VS-03 both beside a driver":                               {map[string]any{"selectors": expressions, "deviceClassName": "gpu", "driver": "gpu.example.com"}, []string{"deviceClassName", "selectors"}},
		"VS-03 a field of a later version":                         {map[string]any{"node": "n", "pool": "p"}, []string{"node"}},
		"the empty selector selects every device":                  {map[string]any{}, nil},
		"a field that is null is not set":                          {map[string]any{"deviceClassName": nil}, nil},
		"driver, pool and device":                                  {map[string]any{"driver": "gpu.example.com", "pool": "p", "device": "d"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := dynamicRule(t, "v1alpha3", rule("r", "3", "rule"))
			require.NoError(t, unstructured.SetNestedMap(object.Object, tt.selector, "spec", "deviceSelector"))
			got, err := informer.RuleOf(object)
			require.NoError(t, err)
			require.Equal(t, tt.want, got.Unsupported)
			require.Equal(t, len(tt.want) == 0, got.Selects)
			require.Equal(t, len(tt.want) == 0, got.Matches(device.ID{Driver: "gpu.example.com", Pool: "p", Name: "d"}))
			require.Equal(t, "rule", got.Name)
			require.Equal(t, rule("r", "3", "rule").Spec.Taint.Key, got.Taint.Key, "the rest is read")
		})
	}
}
