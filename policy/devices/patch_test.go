package devices_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/devices"
)

func TestPatchWarnings(t *testing.T) {
	t.Parallel()
	of := func(driver string, taints ...resourcev1.DeviceTaint) *devices.Patched {
		p := &devices.Patched{Taints: taints}
		if driver != "" {
			p.Selector.Driver = &driver
		}
		return p
	}
	const path = "spec.devices.taints"
	const drivers = `.key: "gpu.example.com/k" is in the domain of driver "gpu.example.com", which says what the key means: use a domain of your own`
	const ahead = ".timeAdded: 2026-11-20T13:00:00Z is 1h0m0s ahead: the scheduler obeys the taint at once, but no pod is evicted for it before then"
	fine, own := taint("admin.example.org/k:NoExecute"), taint("gpu.example.com/k:None")
	tests := map[string]struct {
		now, old *devices.Patched
		want     []string
	}{
		"no taints":                         {now: of("gpu.example.com")},
		"a taint as it should be":           {now: of("gpu.example.com", fine)},
		"a key without a domain":            {now: of("", fine, taint("k:None")), want: []string{path + `[1].key: "k" has no domain: a key such as example.com/k cannot clash with those of others`}},
		"it is said once":                   {now: of("", taint("k:None"), taint("k:NoExecute")), want: []string{path + `[0].key: "k" has no domain: a key such as example.com/k cannot clash with those of others`}},
		"a key of Kubernetes":               {now: of("", taint("resource.k8s.io/k:None")), want: []string{path + `[0].key: "resource.k8s.io/k" is in a domain that is reserved for Kubernetes`}},
		"a key that stood there":            {now: of("", taint("k:NoExecute")), old: of("", taint("k:None"))},
		"a key of the driver":               {now: of("gpu.example.com", own), want: []string{path + "[0]" + drivers}},
		"that stood there":                  {now: of("gpu.example.com", own, fine), old: of("gpu.example.com", own)},
		"that stood for another driver":     {now: of("gpu.example.com", own), old: of("nic.example.com", own), want: []string{path + "[0]" + drivers}},
		"that stood for every driver":       {now: of("gpu.example.com", own), old: of("", own), want: []string{path + "[0]" + drivers}},
		"a key of a driver that is not its": {now: of("", own)},
		"DE-29 a time in an hour":           {now: of("", fine, taint("admin.example.org/l:None", 3600)), want: []string{path + "[1]" + ahead}},
		"a time ahead that stood there":     {now: of("", taint("admin.example.org/l:None", 3600)), old: of("", taint("admin.example.org/l:None", 3600))},
		"a time ahead that is new":          {now: of("", taint("admin.example.org/l:None", 3600)), old: of("", taint("admin.example.org/l:None", 60)), want: []string{path + "[0]" + ahead}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := tt.old
			if old == nil {
				old = &devices.Patched{}
			}
			require.Equal(t, tt.want, devices.PatchWarnings(tt.now, old, now))
		})
	}
}
