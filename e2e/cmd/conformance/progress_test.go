package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var told []string
		p := &progress{log: &log, say: func(step string) { told = append(told, step) }}
		for _, text := range []string{"Will run 3 specs\n", "•", "•"} {
			n, err := p.Write([]byte(text))
			require.NoError(t, err)
			require.Len(t, text, n)
		}
		require.Equal(t, []string{"specs that have ended: 1"}, told)

		<-time.After(2 * progressInterval)
		_, err := p.Write([]byte("• [FAILED]"))
		require.NoError(t, err)
		require.Equal(t, []string{"specs that have ended: 1", "specs that have ended: 3"}, told)
		require.Equal(t, "Will run 3 specs\n••• [FAILED]", log.String())
	})
}
