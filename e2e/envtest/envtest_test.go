package envtest

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	tollgatev1alpha1 "github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

func TestEnvtestServesOurTypes(t *testing.T) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	programs, err := suite.Binaries(t.Context())
	require.NoError(t, err)
	env := &envtest.Environment{
		BinaryAssetsDirectory: programs.Envtest(),
		CRDDirectoryPaths:     []string{filepath.Join(programs.Root, "deploy", "crd")},
		ErrorIfCRDPathMissing: true,
		// All of this is far above what it takes.
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: time.Minute},
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}
	config, err := env.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, env.Stop()) })

	version, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerVersion()
	require.NoError(t, err)
	require.Equal(t, binaries.KubernetesVersion, version.GitVersion)

	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	policies := tollgatev1alpha1.GroupVersion.WithResource("tolerationpolicies")
	list, err := client.Resource(policies).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
}
