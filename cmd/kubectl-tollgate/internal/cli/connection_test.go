package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// Exec plugins have replaced the auth provider, which kubectl still has.
func TestAKubeconfigWithAnAuthProviderOfOIDCConnects(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {auth-provider: {name: oidc, config: {idp-issuer-url: "https://127.0.0.1:2", client-id: kubernetes}}}}]
`), 0o600))
	cmd := &cobra.Command{}
	connection := cli.Connect(cmd)
	require.NoError(t, cmd.Flags().Set("kubeconfig", kubeconfig))
	_, err := connection.Clients(io.Discard)
	require.NoError(t, err)
}

// A command that another one runs later must reach the same cluster.
func TestAConnectionStaysAsItWas(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	write := func(current string) {
		require.NoError(t, os.WriteFile(kubeconfig, []byte(`apiVersion: v1
kind: Config
current-context: `+current+`
contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}]
clusters: [{name: a, cluster: {server: "https://a.example.com"}}, {name: b, cluster: {server: "https://b.example.com"}}]
`), 0o600))
	}
	write("a")
	parse := func(args ...string) (*cobra.Command, *cli.Connection) {
		cmd := &cobra.Command{}
		connection := cli.Connect(cmd)
		require.NoError(t, cmd.ParseFlags(args))
		return cmd, connection
	}
	for sentence, c := range map[string]struct {
		args       []string
		name, host string
	}{
		"the current context":    {nil, "a", "https://a.example.com"},
		"a context":              {[]string{"--context=b"}, "b", "https://b.example.com"},
		"an address":             {[]string{"--server=https://c.example.com"}, "https://c.example.com", "https://c.example.com"},
		"with groups of another": {[]string{"--as=eve", "--as-group=x,y", "--as-group=z"}, "a", "https://a.example.com"},
	} {
		cmd, connection := parse(append(c.args, "--kubeconfig="+kubeconfig)...)
		name, args, err := connection.Fixed(cmd)
		require.NoError(t, err, sentence)
		require.Equal(t, c.name, name, sentence)
		write("b")
		config, err := cli.ConfigOf(args)
		require.NoError(t, err, sentence)
		require.Equal(t, c.host, config.Host, sentence)
		if len(c.args) == 3 {
			require.Equal(t, []string{"x,y", "z"}, config.Impersonate.Groups)
		}
		write("a")
	}
}
