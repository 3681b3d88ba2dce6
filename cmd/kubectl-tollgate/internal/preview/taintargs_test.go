package preview

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestTaintsAreReadAsKubectlReadsThem(t *testing.T) {
	t.Parallel()
	for argument, want := range map[string]Changes{
		"down=yes:NoExecute":                {Add: []Taint{{Key: "down", Value: "yes", Effect: "NoExecute"}}},
		"down:NoExecute":                    {Add: []Taint{{Key: "down", Effect: "NoExecute"}}},
		"down=:NoSchedule":                  {Add: []Taint{{Key: "down", Effect: "NoSchedule"}}},
		"example.com/down:PreferNoSchedule": {Add: []Taint{{Key: "example.com/down", Effect: "PreferNoSchedule"}}},
		"down:NoExecute-":                   {Remove: []Taint{{Key: "down", Effect: "NoExecute"}}},
		"down-":                             {Remove: []Taint{{Key: "down"}}},
		"down=yes:NoExecute-":               {Remove: []Taint{{Key: "down", Value: "yes", Effect: "NoExecute"}}},
	} {
		changes, err := parse([]string{argument}, OfNodes, false)
		require.NoError(t, err, argument)
		require.Equal(t, want, changes, argument)
		require.True(t, IsTaint(argument))
	}
	require.False(t, IsTaint("node-7"))
}

func TestAFaultyTaintIsRefusedWithWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		arguments, effects []string
		want               string
	}{
		"no effect":        {[]string{"down=yes"}, OfNodes, `taint "down=yes": effect is "", want key=value:EFFECT with one of NoSchedule, PreferNoSchedule, NoExecute`},
		"of devices":       {[]string{"down:PreferNoSchedule"}, OfDevices, `taint "down:PreferNoSchedule": effect is "PreferNoSchedule", want key=value:EFFECT with one of None, NoSchedule, NoExecute`},
		"no key":           {[]string{"=yes:NoExecute"}, OfNodes, `taint "=yes:NoExecute": key "": name part must be non-empty`},
		"no value":         {[]string{"down=a b:NoExecute"}, OfNodes, `taint "down=a b:NoExecute": value "a b": a valid label`},
		"twice":            {[]string{"down=a:NoExecute", "down=b:NoExecute"}, OfNodes, `taint "down=b:NoExecute": there is one with that key and effect before it, want each once`},
		"added and gone":   {[]string{"down=a:NoExecute", "down-"}, OfNodes, `taint "down=a:NoExecute": it is to come and to go, want one of both`},
		"an unknown to go": {[]string{"down:Never-"}, OfNodes, `effect is "Never"`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := parse(c.arguments, c.effects, false)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := parse([]string{"down:NoExecute", "down:NoSchedule-"}, OfNodes, false)
	require.NoError(t, err, "another effect")
}

func TestRemovalsNeedNoDash(t *testing.T) {
	t.Parallel()
	changes, err := parse([]string{"hot", "hot-", "hot:NoExecute", "hot=x:NoExecute-"}, OfDevices, true)
	require.NoError(t, err)
	require.Equal(t, Changes{Remove: []Taint{{Key: "hot"}, {Key: "hot"}, {Key: "hot", Effect: "NoExecute"}, {Key: "hot", Value: "x", Effect: "NoExecute"}}}, changes)
	_, err = parse([]string{"hot:Never"}, OfDevices, true)
	require.ErrorContains(t, err, `taint "hot:Never": effect is "Never"`)
}

// target reads flags and arguments.
func target(t *testing.T, flags []string, arguments ...string) (Target, []string, error) {
	t.Helper()
	var asked Target
	cmd := &cobra.Command{}
	asked.AddFlags(cmd)
	require.NoError(t, cmd.ParseFlags(flags))
	rest, err := asked.Take(arguments, IsTaint)
	return asked, rest, err
}

func TestDevicesAreNamedFromTheDriverOn(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		flags []string
		name  string
		want  Target
		text  string
	}{
		"a device":             {nil, "gpu.example.com/node-7/gpu-0", Target{Driver: "gpu.example.com", Pool: "node-7", Device: "gpu-0"}, "gpu.example.com/node-7/gpu-0"},
		"a pool":               {nil, "gpu.example.com/node-7", Target{Driver: "gpu.example.com", Pool: "node-7"}, "gpu.example.com/node-7"},
		"a driver":             {nil, "gpu.example.com", Target{Driver: "gpu.example.com"}, "gpu.example.com"},
		"a pool with a slash":  {nil, "gpu.example.com/rack/7/gpu-0", Target{Driver: "gpu.example.com", Pool: "rack/7", Device: "gpu-0"}, "gpu.example.com/rack/7/gpu-0"},
		"a pool of any driver": {[]string{"--pool", "node-7"}, "", Target{Pool: "node-7"}, "*/node-7"},
		"a class in a driver": {
			[]string{"--class", "gpus", "--selector", "true"},
			"gpu.example.com",
			Target{Driver: "gpu.example.com", Class: "gpus", Selectors: []string{"true"}},
			"gpu.example.com (class gpus, true)",
		},
		"a class": {[]string{"--class", "gpus"}, "", Target{Class: "gpus"}, "(class gpus)"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			arguments := []string{"hot:NoExecute"}
			if c.name != "" {
				arguments = []string{c.name, "hot:NoExecute"}
			}
			got, rest, err := target(t, c.flags, arguments...)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, []string{"hot:NoExecute"}, rest)
			require.Equal(t, c.text, got.String())
			require.Equal(t, c.want.Class != "", got.Conditional())
			require.Equal(t, c.want.Pool == "", got.DeviceSelector().Pool == nil)
			require.Len(t, got.Filter().Selectors, len(c.want.Selectors))
		})
	}
}

func TestDevicesThatAreNotNamedAreRefused(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		flags     []string
		arguments []string
		want      string
	}{
		"nothing":        {nil, []string{"hot:NoExecute"}, "no devices are named: want DRIVER/POOL/DEVICE, or one of --driver, --pool, --device, --class and --selector"},
		"both":           {[]string{"--pool", "p"}, []string{"gpu.example.com"}, `"gpu.example.com" names devices, and so do --driver, --pool and --device: want one of both`},
		"an empty pool":  {nil, []string{"gpu.example.com/"}, `device "gpu.example.com/": want DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE`},
		"an empty name":  {nil, []string{"gpu.example.com/p/"}, `device "gpu.example.com/p/": want`},
		"no driver":      {nil, []string{"/p/d"}, `device "/p/d": want`},
		"with a * in it": {nil, []string{"gpu.example.com/*/gpu-0"}, `device "gpu.example.com/*/gpu-0": there are no wildcards`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, _, err := target(t, c.flags, c.arguments...)
			require.ErrorContains(t, err, c.want)
		})
	}
}
