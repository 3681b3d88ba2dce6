package devices

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// cluster returns the devices of the cluster in testdata that satisfy a filter.
func cluster(t *testing.T, filter Filter) *Inventory {
	t.Helper()
	data, err := os.ReadFile("testdata/cluster.yaml")
	require.NoError(t, err)
	return inventory(t, filter, string(data))
}

// inventory returns the devices of objects in YAML.
func inventory(t *testing.T, filter Filter, text string) *Inventory {
	t.Helper()
	v := NewTable(filter)
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader([]byte(text))))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return v
		}
		require.NoError(t, err)
		add(t, v, document)
	}
}

func add(t *testing.T, v *Inventory, document []byte) {
	t.Helper()
	var kind struct {
		Kind string `json:"kind"`
	}
	require.NoError(t, yaml.Unmarshal(document, &kind))
	switch kind.Kind {
	case "ResourceSlice":
		v.AddSlice(parsed[resourcev1.ResourceSlice](t, document))
	case "ResourceSlicePatch":
		v.AddPatch(parsed[v1alpha1.ResourceSlicePatch](t, document))
	case "DeviceTaintRule":
		v.AddRule(parsed[resourcev1.DeviceTaintRule](t, document), nil)
	case "DeviceClass":
		v.AddClass(parsed[resourcev1.DeviceClass](t, document))
	case "ResourceClaim":
		v.AddClaim(parsed[resourcev1.ResourceClaim](t, document))
	default:
		t.Fatalf("unknown kind %q", kind.Kind)
	}
}

func parsed[T any](t *testing.T, document []byte) *T {
	t.Helper()
	object := new(T)
	require.NoError(t, yaml.UnmarshalStrict(document, object))
	return object
}
