package policies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/policy"
)

// rawClaim creates a claim as it is written, which no client would do.
func (p *person) rawClaim(t *testing.T, namespace, claim string) error {
	t.Helper()
	return p.ResourceV1().RESTClient().Post().Namespace(namespace).Resource("resourceclaims").
		SetHeader("Content-Type", "application/json").Body([]byte(claim)).Do(t.Context()).Error()
}

// storedClaim returns a claim as the API server writes it.
func (p *person) storedClaim(t *testing.T, namespace, name string) string {
	t.Helper()
	text, err := p.ResourceV1().RESTClient().Get().Namespace(namespace).Resource("resourceclaims").Name(name).
		SetHeader("Accept", "application/json").Do(t.Context()).Raw()
	require.NoError(t, err)
	return string(text)
}

// An API server stores the parameters for a driver as they are written, whatever it makes of the rest.
func TestB06ParametersThatADriverMayReadInAnotherWayAreRefusedByPoliciesThatReadThem(t *testing.T) {
	const driver = "parameters-gpu.example.com"
	namespaces(t, "parameters")
	deviceClass(t, driver)
	enforce(t, `
kind: TolerationPolicy
metadata: {name: parameters-read}
spec:
  taints: [{target: Device, key: read.example.com/x}]
  grants: [{expression: "claim.spec.devices.config.all(c, c.opaque.parameters.?sharing.orValue('Exclusive') == 'Exclusive')"}]
---
kind: TolerationPolicy
metadata: {name: parameters-passed}
spec:
  taints: [{target: Device, key: passed.example.com/x}]
  grants: [{expression: "claim.metadata.name.startsWith('claim-') && claim.spec.devices.config.all(c, c.opaque.driver == '`+driver+`')"}]
`)
	alice := tenant(t, "alice")
	claim := func(name, key, parameters string) string {
		return fmt.Sprintf(`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":%q},"spec":{"devices":{
			"requests":[{"name":"r","exactly":{"deviceClassName":%q,"tolerations":[{"key":%q,"operator":"Exists"}]}}],
			"config":[{"opaque":{"driver":%q,"parameters":%s}}]}}}`, name, driver, key, driver, parameters)
	}
	for name, tt := range map[string]struct{ stored, parameters, refusal string }{
		"a key that is there twice": {"claim-twice", `{"sharing":"TimeSlicing","sharing":"Exclusive"}`, "opaque.parameters have a key twice, or in several cases"},
		"a key in two cases":        {"claim-cases", `{"sharing":"Exclusive","Sharing":"TimeSlicing"}`, "opaque.parameters have a key twice, or in several cases"},
		"a key in another case":     {"claim-case", `{"Sharing":"TimeSlicing"}`, "opaque.parameters have the key Sharing, which a driver may read as sharing"},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefused(t, alice.rawClaim(t, "parameters", claim("claim-read", "read.example.com/x", tt.parameters)),
				policy.TolerationNotGranted, "TolerationPolicy/parameters-read", tt.refusal)
			require.NoError(t, alice.rawClaim(t, "parameters", claim(tt.stored, "passed.example.com/x", tt.parameters)), "a policy that does not read them")
			require.Contains(t, alice.storedClaim(t, "parameters", tt.stored), tt.parameters, "they are stored byte for byte")
		})
	}
	t.Run("one key in the case that is read", func(t *testing.T) {
		require.NoError(t, alice.rawClaim(t, "parameters", claim("claim-exclusive", "read.example.com/x", `{"sharing":"Exclusive"}`)))
		requireRefused(t, alice.rawClaim(t, "parameters", claim("claim-shared", "read.example.com/x", `{"sharing":"TimeSlicing"}`)),
			policy.TolerationNotGranted, "TolerationPolicy/parameters-read")
	})
}
