package command

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestTheExitCodeAndTheErrorOfACommand(t *testing.T) {
	for name, tt := range map[string]struct {
		run  func(ctx context.Context) error
		code int
		text string
	}{
		"a command that succeeds": {func(context.Context) error { return nil }, 0, ""},
		"a command that fails":    {func(context.Context) error { return errors.New("no etcd") }, 1, "name: no etcd\n"},
		"a command that is interrupted": {func(ctx context.Context) error {
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}, 1, "name: context canceled\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			cmd := &cobra.Command{
				Use: "name", SilenceUsage: true, SilenceErrors: true,
				RunE: func(cmd *cobra.Command, _ []string) error { return tt.run(cmd.Context()) },
			}
			cmd.SetArgs(nil)
			cmd.SetErr(&stderr)
			require.Equal(t, tt.code, Run(cmd))
			require.Equal(t, tt.text, stderr.String())
		})
	}
}

func TestProgressTellsTheSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		say := Progress(&out)
		say("round %d", 1)
		<-time.After(90 * time.Second)
		say("done")
		require.Equal(t, "    0.0s  round 1\n   90.0s  done\n", out.String())
	})
}
