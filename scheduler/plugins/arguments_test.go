package plugins

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

func TestArguments(t *testing.T) {
	t.Parallel()

	t.Run("have the defaults of the stock plugins where none are given", func(t *testing.T) {
		t.Parallel()
		stock := map[string]runtime.Object{}
		for _, plugin := range configuration(t, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration").Profiles[0].PluginConfig {
			stock[plugin.Name] = plugin.Args
		}
		for _, name := range []string{"DynamicResources", "NodeResourcesFit", "NodeResourcesBalancedAllocation"} {
			args, err := arguments(nil, name+"Args")
			require.NoError(t, err)
			require.Equal(t, stock[name], args)
		}
	})

	t.Run("keep what is given beside the defaults", func(t *testing.T) {
		t.Parallel()
		args, err := arguments(&runtime.Unknown{Raw: []byte(`{"filterTimeout":"3s"}`)}, "DynamicResourcesArgs")
		require.NoError(t, err)
		dra, ok := args.(*schedulerconfig.DynamicResourcesArgs)
		require.True(t, ok)
		require.Equal(t, 3*time.Second, dra.FilterTimeout.Duration)
	})

	tests := map[string]struct {
		given runtime.Object
		want  string
	}{
		"of another kind": {
			&runtime.Unknown{Raw: []byte(`{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"NodeAffinityArgs"}`)},
			"arguments are of kind NodeAffinityArgs.kubescheduler.config.k8s.io, want DynamicResourcesArgs.kubescheduler.config.k8s.io or none",
		},
		"with a field that is not known": {
			&runtime.Unknown{Raw: []byte(`{"filterTimeOut":"3s"}`)},
			`unknown field "filterTimeOut"`,
		},
		"with a value of another type": {
			&runtime.Unknown{Raw: []byte(`{"filterTimeout":true}`)},
			"decode arguments of kind DynamicResourcesArgs",
		},
		"that are an object": {
			&schedulerconfig.NodeAffinityArgs{},
			"arguments are a *config.NodeAffinityArgs, want those of kind DynamicResourcesArgs",
		},
	}
	for name, test := range tests {
		t.Run("are refused "+name, func(t *testing.T) {
			t.Parallel()
			_, err := arguments(test.given, "DynamicResourcesArgs")
			require.ErrorContains(t, err, test.want)
		})
	}
}
