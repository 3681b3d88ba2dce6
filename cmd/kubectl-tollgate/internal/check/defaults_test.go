package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// schemaDefaults lists the defaults in a schema, by their paths.
func schemaDefaults(path string, schema map[string]any) []string {
	var found []string
	if value, ok := schema["default"]; ok {
		found = append(found, fmt.Sprintf("%s=%v", path, value))
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		found = append(found, schemaDefaults(path+"."+name, property.(map[string]any))...)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		found = append(found, schemaDefaults(path+"[]", items)...)
	}
	return found
}

// What the schemas of our kinds have as defaults is filled in here by hand: whoever adds one
// there adds it to defaultOwn too, and to this list.
func TestTheDefaultsOfTheSchemasAreThoseThatAreFilledIn(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "deploy", "crd", "tollgate.dev_*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var found []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(content, &crd))
		found = append(found, schemaDefaults(crd.Spec.Names.Kind, crd.Spec.Versions[0].Schema.OpenAPIV3Schema)...)
	}
	// A status is written by Tollgate, which needs no defaults there.
	found = slices.DeleteFunc(found, func(field string) bool { return strings.Contains(field, ".status.") })
	slices.Sort(found)
	require.Equal(t, []string{
		"EvictionApproval.spec.expiresAfter=1h",
		"EvictionPolicy.spec.breaker.scope=Decided",
		"EvictionPolicy.spec.breaker.window=10m",
		"EvictionPolicy.spec.mark=Before",
		"EvictionPolicy.spec.method=Delete",
		"EvictionPolicy.spec.pace.scope=Decided",
		"EvictionPolicy.spec.taints[].target=Node",
		"GatePolicy.spec.validationActions=[Deny]",
		"PlacementPolicy.spec.claim.tolerations[].operator=Equal",
		"PlacementPolicy.spec.guard.validationActions=[Deny]",
		"TaintPolicy.spec.limits.window=10m",
		"TaintPolicy.spec.taints[].target=Node",
		"TaintPolicy.spec.validationActions=[Deny]",
		"TolerationPolicy.spec.taints[].target=Node",
		"TolerationPolicy.spec.validationActions=[Deny]",
	}, found)
}
