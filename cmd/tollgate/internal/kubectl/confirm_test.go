package kubectl

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyYesIsYes(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "yes": true, "\ty\n": true, "\n": false, "": false, "n\n": false, "yep\n": false} {
		var out bytes.Buffer
		got, err := confirm(strings.NewReader(answer), &out, "Go?")
		require.NoError(t, err)
		require.Equal(t, want, got, answer)
		require.Equal(t, "Go? [y/N] ", out.String())
	}
	var out bytes.Buffer
	_, err := Confirm(strings.NewReader("y\n"), &out, "Go?")
	require.ErrorIs(t, err, ErrNobodyToAsk)
	nobody, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { require.NoError(t, nobody.Close()) }()
	_, err = Confirm(nobody, &out, "Go?")
	require.ErrorIs(t, err, ErrNobodyToAsk)
	require.Empty(t, out.String())
}
