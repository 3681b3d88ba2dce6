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
