package tightening

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	options := controlplane.Options{
		Nodes: controlplane.NoNodes,
		// Without the gate the API server drops the scheduling group of a pod (SD-12).
		ExtraArgs: map[string][]string{controlplane.APIServer: {"--feature-gates=GenericWorkload=true"}},
	}
	os.Exit(suite.Run(m, "tightening", options,
		func(_ context.Context, cp *controlplane.ControlPlane) (func(), error) {
			shared = cp
			return nil, nil
		}))
}

func clientOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	config := shared.RESTConfig()
	// That a preferred value is no label value is warned about at each of them.
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func namespaceOf(t *testing.T) string {
	t.Helper()
	namespace, err := shared.CreateNamespace(t.Context(), "tightening-")
	require.NoError(t, err)
	return namespace
}
