package slicepatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// at returns a time so many hours after the start, nil for none.
func at(hours int) *metav1.Time {
	if hours == 0 {
		return nil
	}
	return new(metav1.NewTime(start.Add(time.Duration(hours) * time.Hour)))
}

func tainted(key, value string, effect resourcev1.DeviceTaintEffect, hours int) v1alpha1.PatchedTaint {
	return v1alpha1.PatchedTaint{Key: key, Value: value, Effect: effect, TimeAdded: at(hours)}
}

func TestSince(t *testing.T) {
	t.Parallel()
	const no, exec = resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute
	type taints = []v1alpha1.PatchedTaint
	tests := map[string]struct {
		spec, status taints
		// want are hours by taint of the spec, 0 for nothing recorded.
		want []int
	}{
		"nothing is recorded":                            {taints{tainted("a", "x", no, 0)}, nil, []int{0}},
		"the same taint":                                 {taints{tainted("a", "x", no, 0)}, taints{tainted("a", "x", no, 1)}, []int{1}},
		"another key":                                    {taints{tainted("a", "x", no, 0)}, taints{tainted("b", "x", no, 1)}, []int{0}},
		"another effect":                                 {taints{tainted("a", "x", no, 0)}, taints{tainted("a", "x", exec, 1)}, []int{0}},
		"an entry without a time":                        {taints{tainted("a", "x", no, 0)}, taints{tainted("a", "x", no, 0)}, []int{0}},
		"another value goes on counting":                 {taints{tainted("a", "y", no, 0)}, taints{tainted("a", "x", no, 1)}, []int{1}},
		"a second taint does not count from the first":   {taints{tainted("a", "x", no, 0), tainted("a", "y", no, 0)}, taints{tainted("a", "x", no, 1)}, []int{1, 0}},
		"nor where the second comes first":               {taints{tainted("a", "y", no, 0), tainted("a", "x", no, 0)}, taints{tainted("a", "x", no, 1)}, []int{0, 1}},
		"nor from a first that says its time itself":     {taints{tainted("a", "x", no, 5), tainted("a", "y", no, 0)}, taints{tainted("a", "x", no, 1)}, []int{1, 0}},
		"each of two counts from its own":                {taints{tainted("a", "x", no, 0), tainted("a", "y", no, 0)}, taints{tainted("a", "y", no, 2), tainted("a", "x", no, 1)}, []int{1, 2}},
		"its own goes before one that is gone":           {taints{tainted("a", "y", no, 0)}, taints{tainted("a", "x", no, 1), tainted("a", "y", no, 2)}, []int{2}},
		"of two that are gone the first counts":          {taints{tainted("a", "z", no, 0)}, taints{tainted("a", "x", no, 1), tainted("a", "y", no, 2)}, []int{1}},
		"a new value counts from the one that is gone":   {taints{tainted("a", "x", no, 0), tainted("a", "z", no, 0)}, taints{tainted("a", "x", no, 1), tainted("a", "y", no, 2)}, []int{1, 2}},
		"the same value of another effect keeps nothing": {taints{tainted("a", "y", no, 0), tainted("a", "x", exec, 0)}, taints{tainted("a", "x", no, 1)}, []int{1, 0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &v1alpha1.ResourceSlicePatch{}
			p.Spec.Devices.Taints, p.Status.Taints = tt.spec, tt.status
			compiled := taintsOf(p)
			for i, hours := range tt.want {
				require.Equal(t, at(hours), Since(p, &p.Spec.Devices.Taints[i]), "taints[%d]", i)
				if own := tt.spec[i].TimeAdded; own != nil {
					require.Equal(t, own, compiled[i].TimeAdded, "taints[%d] says its time itself", i)
				} else {
					require.Equal(t, at(hours), compiled[i].TimeAdded, "taints[%d]", i)
				}
			}
		})
	}
}
