package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestProgressIsSaidOnceItTakesLong(t *testing.T) {
	t.Parallel()
	var out, table bytes.Buffer
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	p := startProgress(&out, clk)
	p.Tell(1, "resourceslices read")
	clk.Step(3 * time.Second)
	p.Tell(2, "resourceslices read")
	p.Tell(3, "resourceslices read")
	clk.Step(time.Second)
	p.Tell(4, "resourceslices read")
	require.Equal(t, []string{"", "2 resourceslices read ...", "4 resourceslices read ..."}, trimmed(out.String()))

	_, err := p.Before(&table).Write([]byte("x"))
	require.NoError(t, err)
	clk.Step(time.Hour)
	p.Tell(5, "devices looked at")
	require.Equal(t, []string{"", "2 resourceslices read ...", "4 resourceslices read ...", "", ""}, trimmed(out.String()))
	require.Equal(t, "x", table.String())
}

func TestProgressIsNotSaidToNobody(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "errors"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, null.Close()) }()
	for _, out := range []io.Writer{&bytes.Buffer{}, file, null} {
		p := NewProgress(out, clocktesting.NewFakeClock(time.Unix(0, 0)))
		require.Nil(t, p)
		p.Tell(1, "x")
		p.End()
	}
}

// trimmed returns the texts between carriage returns.
func trimmed(text string) []string {
	var lines []string
	for line := range bytes.SplitSeq([]byte(text), []byte("\r")) {
		lines = append(lines, string(bytes.TrimRight(line, " ")))
	}
	return lines
}
