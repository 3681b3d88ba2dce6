package settings_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
)

func TestCapabilitiesAreOnUnlessSwitchedOff(t *testing.T) {
	gates, err := settings.NewFeatureGates(map[string]bool{"NodeTaintEviction": false})
	require.NoError(t, err)
	require.True(t, gates.Enabled(settings.TolerationPolicies))
	require.False(t, gates.Enabled(settings.NodeTaintEviction))
}

func TestL07AnUnknownFeatureGateIsNamed(t *testing.T) {
	_, err := settings.NewFeatureGates(map[string]bool{"NodeEviction": true})
	require.ErrorContains(t, err, "NodeEviction")
	require.ErrorContains(t, err, "NodeTaintEviction", "and the known ones are listed")
}
