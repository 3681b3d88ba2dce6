package v1alpha1_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestTwinsAreReadAsTheyWereWritten(t *testing.T) {
	for _, twins := range []map[string]string{
		{"example.com/maintenance": "disk", "rack": "", "b.c/d": "e-f_g.h"},
		{"rack": "7"},
	} {
		require.Equal(t, twins, v1alpha1.ParseTwins(v1alpha1.FormatTwins(twins)))
	}
	require.Equal(t, "a=,b=c", v1alpha1.FormatTwins(map[string]string{"b": "c", "a": ""}))
	require.Empty(t, v1alpha1.FormatTwins(nil))
	require.Empty(t, v1alpha1.ParseTwins(""))
}

func TestWhatCannotBeReadAsATwinIsLeftOut(t *testing.T) {
	require.Equal(t, map[string]string{"a": "b=c", "d": "e"}, v1alpha1.ParseTwins("a=b=c,=x,none,,d=e"))
}
