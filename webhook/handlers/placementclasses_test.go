package handlers

import (
	"context"
	"errors"
	"strconv"
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

	"github.com/tollgate-dev/tollgate/policy/placement"
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
}

func TestClassesOfAPodWithoutItsClaim(t *testing.T) {
	there := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "there"}, Spec: requesting("c1", "c2")}
	live, local := storing(there), testingclock.NewFakePassiveClock(time.Unix(0, 0))
	reader := NewDeviceClasses(classList{stored: storing()}, live, local)
	for _, tt := range []struct {
		name    string
		claims  []corev1.PodResourceClaim
		classes []string
		missing placement.MissingClaimError
	}{
		{"a claim", []corev1.PodResourceClaim{{ResourceClaimName: new("x")}, {}}, nil, placement.MissingClaimError{Kind: "ResourceClaim", Name: "x"}},
		{"a template", []corev1.PodResourceClaim{{ResourceClaimTemplateName: new("y")}}, nil, placement.MissingClaimError{Kind: "ResourceClaimTemplate", Name: "y"}},
		{
			"one beside another that is there",
			[]corev1.PodResourceClaim{{ResourceClaimName: new("z")}, {ResourceClaimName: new("there")}},
			[]string{"c1", "c2"},
			placement.MissingClaimError{Kind: "ResourceClaim", Name: "z"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			classes, err := reader.OfPod(t.Context(), "a", tt.claims, nil)
			require.Equal(t, tt.classes, classes)
			missing, ok := errors.AsType[*placement.MissingClaimError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, tt.missing, *missing)
		})
	}

	t.Run("it is not asked for again within a second, and is found after that", func(t *testing.T) {
		late := []corev1.PodResourceClaim{{ResourceClaimName: new("late")}}
		_, err := reader.OfPod(t.Context(), "a", late, nil)
		require.Error(t, err)
		before := live.asked()
		_, err = reader.OfPod(t.Context(), "a", late, nil)
		require.Error(t, err)
		require.Equal(t, before, live.asked())
		_, err = reader.OfPod(t.Context(), "b", late, nil)
		require.Error(t, err, "that of another namespace")
		require.Equal(t, before+1, live.asked())
		local.SetTime(local.Now().Add(missingKept + 1))
		_, err = reader.OfPod(t.Context(), "a", late, nil)
		require.Error(t, err)
		require.Equal(t, before+2, live.asked())
	})
}

func TestReadsOfClaimsAreBounded(t *testing.T) {
	many := func(n int) []corev1.PodResourceClaim {
		claims := make([]corev1.PodResourceClaim, n)
		for i := range claims {
			claims[i].ResourceClaimName = new("c" + strconv.Itoa(i))
		}
		return claims
	}
	stock := func(namespaces ...string) *stored {
		var claims []client.Object
		for _, namespace := range namespaces {
			for i := range 2 * claimReadsReview {
				claims = append(claims, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c" + strconv.Itoa(i)}, Spec: requesting("c1", "c2")})
			}
		}
		return storing(claims...)
	}
	world := func(live *stored) (*DeviceClasses, *testingclock.FakePassiveClock) {
		local := testingclock.NewFakePassiveClock(time.Unix(0, 0))
		return NewDeviceClasses(classList{stored: storing()}, live, local), local
	}

	t.Run("a pod with more claims than are read is not decided about", func(t *testing.T) {
		reader, _ := world(stock("a"))
		_, err := reader.OfPod(t.Context(), "a", many(claimReadsReview), nil)
		require.NoError(t, err)
		_, err = reader.OfPod(t.Context(), "a", many(claimReadsReview+1), nil)
		require.ErrorIs(t, err, errTooManyClaimsOfPod)
		require.ErrorContains(t, err, "more than 16 ResourceClaims")
	})
	t.Run("a namespace that asks for too much is in nobody's way but its own", func(t *testing.T) {
		reader, local := world(stock("a", "b"))
		refused := 0
		for range 100 {
			if _, err := reader.OfPod(t.Context(), "a", many(claimReadsReview), nil); err != nil {
				require.ErrorIs(t, err, errTooManyClaims)
				refused++
			}
			local.SetTime(local.Now().Add(100 * time.Millisecond))
			_, err := reader.OfPod(t.Context(), "b", many(1), nil)
			require.NoError(t, err)
		}
		require.Positive(t, refused)
		local.SetTime(local.Now().Add(time.Minute))
		_, err := reader.OfPod(t.Context(), "a", many(claimReadsReview), nil)
		require.NoError(t, err)
	})
	t.Run("the API server is not flooded by all of them together", func(t *testing.T) {
		var namespaces []string
		for i := range 20 {
			namespaces = append(namespaces, "ns-"+strconv.Itoa(i))
		}
		live := stock(namespaces...)
		reader, _ := world(live)
		for _, namespace := range namespaces {
			for range 3 {
				_, _ = reader.OfPod(t.Context(), namespace, many(claimReadsReview), nil) // Some are refused.
			}
		}
		require.Equal(t, claimReadsOnce, live.asked())
	})
}
