// Package webhooks has the manifests of the webhook configurations. The server derives from
// them the webhooks that it registers itself, so that both ways of registration are one.
package webhooks

import _ "embed"

// The manifests, as YAML.
var (
	//go:embed mutating.yaml
	Mutating []byte
	//go:embed validating.yaml
	Validating []byte
)
