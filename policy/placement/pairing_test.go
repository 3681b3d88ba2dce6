package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestNeedsPair(t *testing.T) {
	taint := func(key, value string, effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaint {
		return &resourcev1.DeviceTaint{Key: key, Value: value, Effect: effect}
	}
	noExecute := resourcev1.DeviceTaintEffectNoExecute
	equal := resourcev1.DeviceToleration{Key: "k", Operator: resourcev1.DeviceTolerationOpEqual, Value: "v", Effect: noExecute, TolerationSeconds: new(int64(0))}
	tests := []struct {
		name  string
		given []resourcev1.DeviceToleration
		taint *resourcev1.DeviceTaint
		want  bool
	}{
		{"it is tolerated for a while", []resourcev1.DeviceToleration{tolerating("k", new(int64(300)))}, taint("k", "v", noExecute), true},
		{"it is tolerated for ever", []resourcev1.DeviceToleration{tolerating("k", nil)}, taint("k", "v", noExecute), false},
		{"it is tolerated for ever by no effect", []resourcev1.DeviceToleration{{Key: "k", Operator: resourcev1.DeviceTolerationOpExists}}, taint("k", "v", noExecute), false},
		{"another key is", []resourcev1.DeviceToleration{tolerating("l", new(int64(300)))}, taint("k", "v", noExecute), false},
		{"every key is", []resourcev1.DeviceToleration{tolerating("", new(int64(300)))}, taint("k", "v", noExecute), true},
		{"its value is", []resourcev1.DeviceToleration{equal}, taint("k", "v", noExecute), true},
		{"another value is", []resourcev1.DeviceToleration{equal}, taint("k", "w", noExecute), false},
		{"one of several does", []resourcev1.DeviceToleration{tolerating("l", nil), tolerating("k", new(int64(300)))}, taint("k", "v", noExecute), true},
		{"it evicts nobody", []resourcev1.DeviceToleration{tolerating("k", new(int64(300)))}, taint("k", "v", resourcev1.DeviceTaintEffectNone), false},
		{"it is a pair itself", []resourcev1.DeviceToleration{tolerating("k", new(int64(300)))}, taint("k", "v", resourcev1.DeviceTaintEffectNoSchedule), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := Compile([]v1alpha1.PlacementPolicy{givesClaims("a", tt.given...)})
			require.Empty(t, set.Problems())
			require.Equal(t, tt.want, set.NeedsPair(tt.taint))
		})
	}
}

func TestOnlyWhatIsGivenForAWhileIsBounded(t *testing.T) {
	require.False(t, Compile([]v1alpha1.PlacementPolicy{givesClaims("a", tolerating("k", nil))}).GivesBounded())
	require.True(t, Compile([]v1alpha1.PlacementPolicy{givesClaims("a", tolerating("k", new(int64(1))))}).GivesBounded())
}

func TestPairOf(t *testing.T) {
	taint := resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: &metav1.Time{}}
	require.Equal(t, resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: resourcev1.DeviceTaintEffectNoSchedule}, PairOf(&taint))
}
