package registration

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// The evictor leads, and may not read the Secret of the CA: it has the bundle from the annotation
// that the webhook writes.
func TestAnEvictorApartRegistersTheWebhooks(t *testing.T) {
	require.NoError(t, tollgate.Terminate(t.Context()))
	require.NoError(t, install.Apply(t.Context(), shared, filepath.Join(programs.Root, "e2e", "registration", "testdata", "apart")))
	// As newly installed.
	out, err := install.Kubectl(t.Context(), shared, "delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", install.Name)
	require.NoError(t, err, string(out))
	out, err = install.Kubectl(t.Context(), shared, "delete", "secret", "-n", "tollgate-system", "tollgate-serving-certificate")
	require.NoError(t, err, string(out))
	require.NoError(t, install.Apply(t.Context(), shared, webhooks()))

	webhook, err := install.Install(t.Context(), shared, install.Options{
		Name: "webhook", Programs: programs, Replica: true, Account: "tollgate-webhook", Managed: true, Patch: succeeding,
		Args: []string{"--components=webhook", "--evictor-user=system:serviceaccount:tollgate-system:tollgate"},
	})
	require.NoError(t, err)
	require.Empty(t, registered(t), "nobody leads")
	evictor, err := install.Install(t.Context(), shared, install.Options{
		Name: "evictor", Programs: programs, Replica: true, Managed: true, Args: []string{"--components=evictor"},
		Patch: func(config map[string]any) {
			succeeding(config)
			config["webhook"] = map[string]any{"url": webhook.WebhookURL}
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, evictor.Terminate(ctx))
		require.NoError(t, webhook.Terminate(ctx))
		require.NoError(t, install.Apply(ctx, shared, filepath.Join(programs.Root, "e2e", "install", "managed", "rights")))
		require.NoError(t, tollgate.Start(ctx))
	})
	guard(t)
	eventually(t, ten, func() error { return refused(t) })
}
