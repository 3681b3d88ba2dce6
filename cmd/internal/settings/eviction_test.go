package settings

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

func TestWhatIsSaidIsWhatIsRead(t *testing.T) {
	t.Parallel()
	for _, mode := range []configv1alpha1.EvictionMode{configv1alpha1.EvictionReplace, configv1alpha1.EvictionWindow, configv1alpha1.EvictionObserve} {
		for bits := range 16 {
			said := Eviction{
				Mode: mode, ComparisonOperators: bits&1 > 0, MaxHold: time.Duration(bits) * time.Hour,
				Policies: bits&2 > 0, Nodes: bits&4 > 0, Devices: bits&8 > 0,
			}
			for key, value := range said.Labels() {
				require.Empty(t, validation.IsQualifiedName(key))
				require.Empty(t, validation.IsValidLabelValue(value))
			}
			read, err := ParseEviction(said.Labels())
			require.NoError(t, err)
			require.Equal(t, said, read)
		}
	}
}

func TestTheDefaultsAreThoseOfTheConfiguration(t *testing.T) {
	t.Parallel()
	gates, err := NewFeatureGates(nil)
	require.NoError(t, err)
	config := configv1alpha1.Default()
	config.Eviction.MaxHold.Duration = 0 // It matters to taints from the future alone.
	require.Equal(t, DefaultEviction(), EvictionOf(&config.Eviction, gates))
}

func TestNoTermKeepsAnybodyFromLeading(t *testing.T) {
	t.Parallel()
	for _, hold := range []time.Duration{time.Nanosecond, time.Microsecond, time.Millisecond + time.Microsecond, 1 << 62} {
		for _, value := range (Eviction{MaxHold: hold}).Labels() {
			require.Empty(t, validation.IsValidLabelValue(value))
		}
	}
}

func TestNamesTheLabelThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct{ key, value, want string }{
		"an older version": {labelMode, "", "label tollgate.dev/eviction-mode is not set"},
		"no switch":        {labelComparisonOperators, "maybe", `label tollgate.dev/comparison-operators is "maybe", want true or false`},
		"no duration":      {labelMaxHold, "long", `label tollgate.dev/max-hold is "long", want a duration such as 24h0m0s`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			labels := DefaultEviction().Labels()
			labels[c.key] = c.value
			if c.value == "" {
				delete(labels, c.key)
			}
			_, err := ParseEviction(labels)
			require.EqualError(t, err, c.want)
		})
	}
}
