package webhook

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// classList is a cache that has DeviceClasses besides what is stored.
type classList struct {
	*stored

	classes []resourcev1.DeviceClass
	fault   error
}

func (c classList) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*resourcev1.DeviceClassList).Items = c.classes
	return c.fault
}

func requesting(classes ...string) resourcev1.ResourceClaimSpec {
	var spec resourcev1.ResourceClaimSpec
	spec.Devices.Requests = []resourcev1.DeviceRequest{
		{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: classes[0]}},
		{FirstAvailable: []resourcev1.DeviceSubRequest{{DeviceClassName: classes[1]}}},
	}
	return spec
}

func TestClassesOfAPod(t *testing.T) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c"}, Spec: requesting("c1", "c2")}
	cached := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "old"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: requesting("t1", "c1")}}
	fresh := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "new"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: requesting("n1", "n2")}}
	cache := classList{stored: storing(cached), classes: []resourcev1.DeviceClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "named"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "implicit"}},
	}}
	live := storing(claim, fresh)
	reader := NewDeviceClasses(cache, live, clock.RealClock{})
	tests := []struct {
		name      string
		claims    []corev1.PodResourceClaim
		resources []string
		want      []string
		reads     int
	}{
		{"nothing", nil, []string{"cpu"}, nil, 0},
		{"a claim, from the API server", []corev1.PodResourceClaim{{ResourceClaimName: new("c")}}, nil, []string{"c1", "c2"}, 1},
		{"a template, from the cache", []corev1.PodResourceClaim{{ResourceClaimTemplateName: new("old")}}, nil, []string{"c1", "t1"}, 0},
		{"a template that the cache does not know yet", []corev1.PodResourceClaim{{ResourceClaimTemplateName: new("new")}}, nil, []string{"n1", "n2"}, 1},
		{"what is not there", []corev1.PodResourceClaim{{ResourceClaimTemplateName: new("x")}, {ResourceClaimName: new("x")}, {}}, nil, nil, 2},
		{"several", []corev1.PodResourceClaim{{ResourceClaimName: new("c")}, {ResourceClaimTemplateName: new("old")}}, nil, []string{"c1", "c2", "t1"}, 1},
		{"C27 extended resources", nil, []string{"memory", "example.com/gpu", "deviceclass.resource.kubernetes.io/implicit"}, []string{"implicit", "named"}, 0},
		{"another extended resource", nil, []string{"example.com/other"}, nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := live.asked()
			names, err := reader.OfPod(t.Context(), "a", tt.claims, tt.resources)
			require.NoError(t, err)
			require.Equal(t, tt.want, names)
			require.Equal(t, tt.reads, live.asked()-before)
		})
	}
}

func TestClassesThatCannotBeRead(t *testing.T) {
	fault := errors.New("no answer")
	claims := []corev1.PodResourceClaim{{ResourceClaimName: new("c")}}
	templates := []corev1.PodResourceClaim{{ResourceClaimTemplateName: new("t")}}
	broken := storing()
	broken.fault = fault
	reader := NewDeviceClasses(classList{stored: broken, fault: fault}, broken, clock.RealClock{})
	for _, list := range [][]corev1.PodResourceClaim{claims, templates} {
		_, err := reader.OfPod(t.Context(), "a", list, nil)
		require.ErrorIs(t, err, fault)
	}
	_, err := reader.OfPod(t.Context(), "a", nil, []string{"example.com/gpu"})
	require.ErrorIs(t, err, fault)

	t.Run("where the API is not served nothing is requested", func(t *testing.T) {
		unserved := storing()
		unserved.fault = &meta.NoKindMatchError{}
		reader := NewDeviceClasses(classList{stored: unserved, fault: unserved.fault}, unserved, clock.RealClock{})
		names, err := reader.OfPod(t.Context(), "a", append(claims, templates...), []string{"example.com/gpu"})
		require.NoError(t, err)
		require.Empty(t, names)
	})
	t.Run("the API server is not flooded", func(t *testing.T) {
		local := testingclock.NewFakePassiveClock(time.Unix(0, 0))
		reader := NewDeviceClasses(classList{stored: storing()}, storing(), local)
		var err error
		for range claimReadsOnce {
			_, err = reader.OfPod(t.Context(), "a", claims, nil)
			require.NoError(t, err)
		}
		_, err = reader.OfPod(t.Context(), "a", claims, nil)
		require.ErrorIs(t, err, errTooManyClaims)
		local.SetTime(time.Unix(1, 0))
		_, err = reader.OfPod(t.Context(), "a", claims, nil)
		require.NoError(t, err)
	})
}
