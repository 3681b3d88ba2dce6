package plugins

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// written are the rules that a test wrote for the one pool that there is.
type written []*resourcev1.DeviceTaintRule

func (w written) WrittenFor(string, string) []*resourcev1.DeviceTaintRule { return w }

func taint(key string, effect resourcev1.DeviceTaintEffect) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: key, Effect: effect, TimeAdded: new(metav1.NewTime(time.Unix(1000, 0)))}
}

func rule(uid string, device *string, taint resourcev1.DeviceTaint) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelPatch: uid}, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: "one", UID: types.UID(uid), Controller: new(true),
		}}},
		Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: &resourcev1.DeviceTaintSelector{Device: device}, Taint: taint},
	}
}

// labelled returns a rule without its owner: anybody may set the label.
func labelled(rule *resourcev1.DeviceTaintRule) *resourcev1.DeviceTaintRule {
	rule.OwnerReferences = nil
	return rule
}

func TestViewLeavesOutRulesThatWereWrittenOutForItsPatches(t *testing.T) {
	t.Parallel()
	noSchedule, noExecute := taint("a", "NoSchedule"), taint("a", "NoExecute")
	later := noSchedule
	later.TimeAdded = new(metav1.NewTime(time.Unix(2000, 0)))
	tests := map[string]struct {
		rules          written
		applied, shown []resourcev1.DeviceTaint
	}{
		"of a patch of the set": {
			written{rule("uid-one", new("device"), noSchedule)}, []resourcev1.DeviceTaint{noSchedule}, nil,
		},
		"and not one that only has the label": {
			written{labelled(rule("uid-one", nil, noSchedule))}, []resourcev1.DeviceTaint{noSchedule}, []resourcev1.DeviceTaint{noSchedule},
		},
		"for a whole pool": {
			written{rule("uid-one", nil, noSchedule)}, []resourcev1.DeviceTaint{noSchedule}, nil,
		},
		"and not those of a patch that is not valid, or not known yet": {
			written{rule("uid-not-valid", nil, noSchedule)}, []resourcev1.DeviceTaint{noSchedule}, []resourcev1.DeviceTaint{noSchedule},
		},
		"and not those for another device": {
			written{rule("uid-one", new("other"), noSchedule)}, []resourcev1.DeviceTaint{noSchedule}, []resourcev1.DeviceTaint{noSchedule},
		},
		"that the tracker has not applied yet": {
			written{rule("uid-one", nil, noSchedule)}, []resourcev1.DeviceTaint{noExecute}, []resourcev1.DeviceTaint{noExecute},
		},
		"of which the tracker has an older version": {
			written{rule("uid-one", nil, later)}, []resourcev1.DeviceTaint{noSchedule}, []resourcev1.DeviceTaint{noSchedule},
		},
		"and keeps the driver's own of the same words": {
			written{rule("uid-one", nil, noSchedule)}, []resourcev1.DeviceTaint{noSchedule, noExecute, noSchedule}, []resourcev1.DeviceTaint{noSchedule, noExecute},
		},
		"each once": {
			written{rule("uid-one", nil, noSchedule), rule("uid-one", new("device"), noSchedule)},
			[]resourcev1.DeviceTaint{noSchedule, noSchedule, noSchedule},
			[]resourcev1.DeviceTaint{noSchedule},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			published := slice("a", "one")
			published.Spec.Devices[0].Taints = test.applied
			before := published.DeepCopy()
			c.do(func(c *cluster) {
				c.slices["a"] = published
				c.patches["one"] = patch("one", 1, "x")
			})
			v := newView(c, compile)
			v.rules = test.rules.WrittenFor
			listed, err := v.ListWithDeviceTaintRules()
			require.NoError(t, err)
			require.ElementsMatch(t, test.shown, listed[0].Spec.Devices[0].Taints)
			require.Equal(t, "x", attributes(listed)["a"], "the patch was not applied")
			require.Equal(t, before, published, "what the tracker has was written to")
		})
	}
}
