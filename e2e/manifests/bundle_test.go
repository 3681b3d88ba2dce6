package manifests

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

// bundle is what stands in a caBundle: that of the API server will do.
func bundle(t *testing.T) string {
	t.Helper()
	config := shared.RESTConfig()
	require.NotEmpty(t, config.CAData)
	return base64.StdEncoding.EncodeToString(config.CAData)
}
