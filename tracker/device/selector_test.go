package device_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// selectorOf returns the selector that asks for the names that are not "-".
func selectorOf(t *testing.T, driver, pool, name string) device.Selector {
	t.Helper()
	given := func(s string) *string {
		if s == "-" {
			return nil
		}
		return &s
	}
	selector, selects := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: given(driver), Pool: given(pool), Device: given(name)})
	require.True(t, selects)
	return selector
}

func TestSelector(t *testing.T) {
	t.Parallel()

	t.Run("DE-20 TR-02 no selector is none", func(t *testing.T) {
		t.Parallel()
		_, selects := device.SelectorOf(nil)
		require.False(t, selects)
	})

	t.Run("DE-20 TR-02 an empty selector is the zero one and selects every device", func(t *testing.T) {
		t.Parallel()
		selector := selectorOf(t, "-", "-", "-")
		require.Equal(t, device.Selector{}, selector)
		require.True(t, selector.Matches(device.ID{Driver: "d", Pool: "p", Name: "n"}))
		require.True(t, selector.Matches(device.ID{}))
	})

	for _, test := range []struct {
		name               string
		driver, pool, dev  string
		selects, selectNot []device.ID
	}{
		{
			name: "DE-20 a driver alone", driver: "d", pool: "-", dev: "-",
			selects:   []device.ID{{Driver: "d", Pool: "p", Name: "n"}, {Driver: "d"}},
			selectNot: []device.ID{{Driver: "D", Pool: "p", Name: "n"}, {Driver: "e"}, {}},
		},
		{
			name: "DE-20 a pool alone", driver: "-", pool: "p", dev: "-",
			selects:   []device.ID{{Driver: "d", Pool: "p", Name: "n"}, {Driver: "e", Pool: "p"}},
			selectNot: []device.ID{{Driver: "p", Pool: "d", Name: "p"}, {}},
		},
		{
			name: "DE-20 all criteria count", driver: "d", pool: "p", dev: "n",
			selects:   []device.ID{{Driver: "d", Pool: "p", Name: "n"}},
			selectNot: []device.ID{{Driver: "d", Pool: "p", Name: "m"}, {Driver: "d", Pool: "q", Name: "n"}, {Driver: "e", Pool: "p", Name: "n"}},
		},
		{
			name: "K05 names with separators and wildcards are only names", driver: "d/p", pool: "*", dev: "-",
			selects:   []device.ID{{Driver: "d/p", Pool: "*", Name: "n"}},
			selectNot: []device.ID{{Driver: "d", Pool: "p/*", Name: "n"}, {Driver: "d/p", Pool: "q", Name: "n"}},
		},
		{
			name: "K10 an empty name is asked for", driver: "", pool: "-", dev: "-",
			selects:   []device.ID{{Pool: "p", Name: "n"}},
			selectNot: []device.ID{{Driver: "d", Pool: "p", Name: "n"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			selector := selectorOf(t, test.driver, test.pool, test.dev)
			for _, id := range test.selects {
				require.True(t, selector.Matches(id), id)
			}
			for _, id := range test.selectNot {
				require.False(t, selector.Matches(id), id)
			}
		})
	}

	t.Run("K10 a name that is asked for is told from one that is not", func(t *testing.T) {
		t.Parallel()
		selector := selectorOf(t, "", "p", "-")
		driver, asked := selector.Driver()
		require.True(t, asked)
		require.Empty(t, driver)
		pool, asked := selector.Pool()
		require.True(t, asked)
		require.Equal(t, "p", pool)
		_, asked = selector.Name()
		require.False(t, asked)
		require.NotEqual(t, selector, selectorOf(t, "-", "p", "-"))
	})
}

func TestIDString(t *testing.T) {
	t.Parallel()
	require.Equal(t, "gpu.example.com/node-1/gpu-0", device.ID{Driver: "gpu.example.com", Pool: "node-1", Name: "gpu-0"}.String())
}
