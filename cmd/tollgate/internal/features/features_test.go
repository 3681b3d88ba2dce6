package features_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/features"
)

func TestCapabilitiesAreOnUnlessSwitchedOff(t *testing.T) {
	gates, err := features.New(map[string]bool{"NodeTaintEviction": false})
	require.NoError(t, err)
	require.True(t, gates.Enabled(features.TolerationPolicies))
	require.False(t, gates.Enabled(features.NodeTaintEviction))
}

func TestL07AnUnknownFeatureGateIsNamed(t *testing.T) {
	_, err := features.New(map[string]bool{"NodeEviction": true})
	require.ErrorContains(t, err, "NodeEviction")
	require.ErrorContains(t, err, "NodeTaintEviction", "and the known ones are listed")
}
