package app_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/app"
)

func TestLinesAreWrittenInTheirOrderBeforeItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		lost := app.NewLost(prometheus.NewRegistry())
		sink := app.NewLogSink(&log, lost)
		var want strings.Builder
		line := make([]byte, 0, 16)
		for i := range 1000 {
			// The caller reuses the buffer, as loggers do.
			line = fmt.Appendf(line[:0], "line %d\n", i)
			want.Write(line)
			n, err := sink.Write(line)
			require.NoError(t, err)
			require.Equal(t, len(line), n)
		}
		sink.Close(t.Context())
		require.Equal(t, want.String(), log.String())
		require.Zero(t, testutil.ToFloat64(lost))
	})
}

func TestE14WhoLogsDoesNotWaitForALogThatNobodyReads(t *testing.T) {
	for name, line := range map[string]string{
		"many short lines":            "a line\n",
		"a few lines that are large":  strings.Repeat("x", 1<<20),
		"a line larger than all fits": strings.Repeat("x", 5<<20),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reader, writer := io.Pipe()
				lost := app.NewLost(prometheus.NewRegistry())
				sink := app.NewLogSink(writer, lost)
				const lines = 10_000
				for range lines {
					n, err := sink.Write([]byte(line))
					require.NoError(t, err)
					require.Equal(t, len(line), n)
				}
				missing := testutil.ToFloat64(lost)
				require.Positive(t, missing)

				read := make(chan int)
				go func() {
					content, _ := io.ReadAll(reader)
					read <- strings.Count(string(content), line)
				}()
				sink.Close(t.Context())
				require.NoError(t, writer.Close())
				require.InDelta(t, lines, float64(<-read)+missing, 0, "each line is written or counted")
			})
		})
	}
}

func TestWhatCannotBeWrittenIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		require.NoError(t, reader.CloseWithError(errors.New("no space left on device")))
		lost := app.NewLost(prometheus.NewRegistry())
		sink := app.NewLogSink(writer, lost)
		_, err := sink.Write([]byte("a line\n"))
		require.NoError(t, err)
		sink.Close(t.Context())
		require.InDelta(t, 1, testutil.ToFloat64(lost), 0)

		_, err = sink.Write([]byte("a line after the end\n"))
		require.NoError(t, err)
		require.InDelta(t, 2, testutil.ToFloat64(lost), 0)
	})
}

func TestTheEndDoesNotWaitForALogThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		defer func() { _ = reader.Close() }()
		sink := app.NewLogSink(writer, app.NewLost(prometheus.NewRegistry()))
		_, err := sink.Write([]byte("a line\n"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		sink.Close(ctx)
		require.Equal(t, time.Second, time.Since(begun))
	})
}
