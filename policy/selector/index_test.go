package selector

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestTheIndexLeavesOutPoliciesOfOtherKeysAndValues(t *testing.T) {
	tests := map[string]struct {
		tolerates string
		nodes     int
		devices   int
	}{
		"the value of a star":                 {`{key: other, value: starred}`, 1, 1},
		"a system key is a star's of devices": {`{key: node.kubernetes.io/x, value: starred}`, 0, 1},
		"one key":                             {`{key: key-1007, value: x}`, 1, 1},
		"one prefix":                          {`{key: example1007.com/a, value: x}`, 1, 1},
		"one value of a shared key":           {`{key: dedicated, value: team-1007}`, 1, 1},
		"every value of a shared key":         {`{key: dedicated, operator: Exists}`, 101, 101},
		"a key that nobody guards":            {`{key: other, value: x}`, 0, 0},
		"a value that nobody guards":          {`{key: dedicated, value: other}`, 0, 0},
		"one value of every key":              {`{operator: Equal, value: team-1007}`, 201, 201},
		"everything, each policy only once":   {`{operator: Exists}`, 301, 301},
	}
	nodes, devices := indexOf(v1alpha1.TaintTargetNode), indexOf(v1alpha1.TaintTargetDevice)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var pod corev1.Toleration
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.tolerates), &pod))
			var device resourcev1.DeviceToleration
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.tolerates), &device))
			ofPod, ofDevice := OfPod(&pod), OfDevice(FromDevice(&device), "gpu")
			require.Equal(t, tt.nodes, walk(t, nodes, &ofPod))
			require.Equal(t, tt.devices, walk(t, devices, &ofDevice))
			require.Zero(t, walk(t, nodes, &ofDevice), "a device has no taint of a node")
			require.Zero(t, walk(t, devices, &ofPod))
		})
	}
}

// indexOf returns an index of 301 policies, each with two selectors alike.
func indexOf(target v1alpha1.TaintTarget) Index {
	index := Index{}
	position := 0
	add := func(key string, values ...string) {
		sel := Compile(&v1alpha1.TaintSelector{Target: target, Key: key, Values: values})
		index.add(position, &sel)
		index.add(position, &sel)
		position++
	}
	for i := range 100 {
		n := strconv.Itoa(1000 + i)
		add("key-" + n)
		add("example" + n + ".com/*")
		add("dedicated", "team-"+n)
	}
	add("*", "starred")
	return index
}

func walk(t *testing.T, index Index, tol *Toleration) int {
	t.Helper()
	seen, last := 0, -1
	for position := range index.Candidates(tol) {
		require.Greater(t, position, last, "in order and once")
		last = position
		seen++
	}
	return seen
}
