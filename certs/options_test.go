package certs

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"the defaults are accepted":  {change: func(*Options) {}},
		"a URL alone is host enough": {change: func(o *Options) { o.Hosts, o.URL = nil, "https://[::1]:9443" }},
		"lives of seconds are accepted": {change: func(o *Options) {
			o.CALifetime, o.ServingLifetime, o.BundleDelay = 30*time.Second, 10*time.Second, 5*time.Second
		}},
		"a short CA shortens the defaults":       {change: func(o *Options) { o.CALifetime = time.Hour }},
		"a directory needs nothing else":         {change: func(o *Options) { *o = Options{Directory: "/certs", Clock: o.Clock, Metrics: o.Metrics} }},
		"a clock is needed":                      {change: func(o *Options) { o.Clock = nil }, want: "clock is missing"},
		"metrics are needed":                     {change: func(o *Options) { o.Metrics = nil }, want: "metrics are missing"},
		"a client is needed":                     {change: func(o *Options) { o.Client = nil }, want: "client is missing"},
		"a namespace is needed":                  {change: func(o *Options) { o.Namespace = "" }, want: "namespace of the secret is missing"},
		"a Secret is needed":                     {change: func(o *Options) { o.SecretName = "" }, want: "name of the secret is missing"},
		"hosts are needed":                       {change: func(o *Options) { o.Hosts = nil }, want: "hosts are missing"},
		"a host has no port":                     {change: func(o *Options) { o.Hosts = []string{"localhost:9443"} }, want: `host "localhost:9443" is neither a DNS name nor an IP address`},
		"an address has no zone":                 {change: func(o *Options) { o.Hosts = []string{"fe80::1%eth0"} }, want: "neither a DNS name nor an IP address"},
		"an empty host is refused":               {change: func(o *Options) { o.Hosts = []string{""} }, want: `host "" is neither`},
		"a serving life may be too short":        {change: func(o *Options) { o.ServingLifetime = 9 * time.Second }, want: "serving lifetime 9s is below 10s"},
		"a serving life may be too long":         {change: func(o *Options) { o.CALifetime, o.ServingLifetime = time.Hour, 21*time.Minute }, want: "serving lifetime 21m0s is more than a third of the CA lifetime 1h0m0s"},
		"a delay may be too long":                {change: func(o *Options) { o.CALifetime, o.BundleDelay = time.Hour, 11*time.Minute }, want: "bundle delay 11m0s is more than a sixth of the CA lifetime 1h0m0s"},
		"a delay is not negative":                {change: func(o *Options) { o.BundleDelay = -1 }, want: "bundle delay -1ns is negative"},
		"a recheck is not negative":              {change: func(o *Options) { o.Recheck = -1 }, want: "recheck -1ns is negative"},
		"a URL is https":                         {change: func(o *Options) { o.URL = "http://127.0.0.1" }, want: `url "http://127.0.0.1" is not https://host[:port][/path]`},
		"a URL has no query":                     {change: func(o *Options) { o.URL = "https://127.0.0.1/?a=b" }, want: "is not https://host"},
		"a URL has a host":                       {change: func(o *Options) { o.URL = "https:///path" }, want: "is not https://host"},
		"a URL has no user, and none is printed": {change: func(o *Options) { o.URL = "https://me:secret@127.0.0.1" }, want: "https://me:xxxxx@127.0.0.1"},
		"a URL can be parsed":                    {change: func(o *Options) { o.URL = "https://127.0.0.1:port" }, want: "url cannot be parsed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{
				Client: fake.NewClientset(), Clock: clock.RealClock{}, Metrics: NewMetrics(prometheus.NewPedanticRegistry()),
				OwnCA: OwnCA{Namespace: testNamespace, SecretName: testSecret, Hosts: ServiceHosts(testNamespace, "tollgate")},
			}
			tt.change(&o)
			m, err := New(o)
			if tt.want == "" {
				require.NoError(t, err)
				require.ErrorIs(t, m.Ready(nil), errNoCertificate)
				return
			}
			require.ErrorContains(t, err, "check certificate options: ")
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestServiceHosts(t *testing.T) {
	t.Parallel()
	require.Contains(t, ServiceHosts(testNamespace, "tollgate"), testHost)
}
