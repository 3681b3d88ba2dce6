package validation_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

func TestPatchWarnings(t *testing.T) {
	t.Parallel()
	of := func(driver string, taints ...resourcev1.DeviceTaint) *validation.Patched {
		p := &validation.Patched{Taints: taints}
		if driver != "" {
			p.Selector.Driver = &driver
		}
		return p
	}
	const path = "spec.devices.taints"
	const drivers = `.key: "gpu.example.com/k" is in the domain of driver "gpu.example.com", which says what the key means: use a domain of your own`
	const ahead = ".timeAdded: 2026-11-20T13:00:00Z is 1h0m0s ahead: the scheduler obeys the taint at once, but no pod is evicted for it before then"
	fine, own := deviceTaint("admin.example.org/k:NoExecute"), deviceTaint("gpu.example.com/k:None")
	tests := map[string]struct {
		now, old *validation.Patched
		want     []string
	}{
		"no taints":                         {now: of("gpu.example.com")},
		"a taint as it should be":           {now: of("gpu.example.com", fine)},
		"a key without a domain":            {now: of("", fine, deviceTaint("k:None")), want: []string{path + `[1].key: "k" has no domain: a key such as example.com/k cannot clash with those of others`}},
		"it is said once":                   {now: of("", deviceTaint("k:None"), deviceTaint("k:NoExecute")), want: []string{path + `[0].key: "k" has no domain: a key such as example.com/k cannot clash with those of others`}},
		"a key of Kubernetes":               {now: of("", deviceTaint("resource.k8s.io/k:None")), want: []string{path + `[0].key: "resource.k8s.io/k" is in a domain that is reserved for Kubernetes`}},
		"a key that stood there":            {now: of("", deviceTaint("k:NoExecute")), old: of("", deviceTaint("k:None"))},
		"a key of the driver":               {now: of("gpu.example.com", own), want: []string{path + "[0]" + drivers}},
		"that stood there":                  {now: of("gpu.example.com", own, fine), old: of("gpu.example.com", own)},
		"that stood for another driver":     {now: of("gpu.example.com", own), old: of("nic.example.com", own), want: []string{path + "[0]" + drivers}},
		"that stood for every driver":       {now: of("gpu.example.com", own), old: of("", own), want: []string{path + "[0]" + drivers}},
		"a key of a driver that is not its": {now: of("", own)},
		"DE-29 a time in an hour":           {now: of("", fine, deviceTaint("admin.example.org/l:None", 3600)), want: []string{path + "[1]" + ahead}},
		"a time ahead that stood there":     {now: of("", deviceTaint("admin.example.org/l:None", 3600)), old: of("", deviceTaint("admin.example.org/l:None", 3600))},
		"a time ahead that is new":          {now: of("", deviceTaint("admin.example.org/l:None", 3600)), old: of("", deviceTaint("admin.example.org/l:None", 60)), want: []string{path + "[0]" + ahead}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := tt.old
			if old == nil {
				old = &validation.Patched{}
			}
			require.Equal(t, tt.want, validation.PatchWarnings(tt.now, old, deviceNow))
		})
	}
}
