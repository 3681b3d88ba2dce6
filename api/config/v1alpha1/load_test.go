package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

const head = "apiVersion: config.tollgate.dev/v1alpha1\nkind: TollgateConfiguration\n"

func TestAnEmptyConfigurationHasDefaults(t *testing.T) {
	config, err := v1alpha1.Load([]byte(head))
	require.NoError(t, err)
	require.Equal(t, "tollgate-system", config.Namespace)
	require.Equal(t, time.Second, config.Webhook.Budget.Duration)
	require.Equal(t, int64(300), config.Admission.DefaultNotReadyTolerationSeconds)
	require.True(t, config.LeaderElection.Enabled)
	require.Equal(t, v1alpha1.EvictionReplace, config.Eviction.Mode)
	require.Equal(t, 5*time.Second, config.Webhook.DrainPeriod.Duration)
	require.Equal(t, v1alpha1.AuthenticationOptional, config.Webhook.Authentication.Mode)
	require.True(t, config.Webhook.Authentication.Tokens.Enabled)
	require.False(t, config.Audit.OpenReports)
	require.Equal(t, v1alpha1.TracingConfiguration{Endpoint: "localhost:4317"}, config.Tracing)
}

func TestWhatIsSetStays(t *testing.T) {
	config, err := v1alpha1.Load([]byte(head + `
webhook: {bindAddress: "127.0.0.1:7443", url: "https://127.0.0.1:7443"}
admission: {defaultNotReadyTolerationSeconds: 0}
eviction: {mode: Window}
audit: {openReports: true}
leaderElection: {enabled: false}
featureGates: {NodeTaintEviction: false}
`))
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:7443", config.Webhook.URL)
	require.Zero(t, config.Admission.DefaultNotReadyTolerationSeconds)
	require.Equal(t, v1alpha1.EvictionWindow, config.Eviction.Mode)
	require.Equal(t, 64, config.Eviction.Workers, "DE-52 more than in Kubernetes")
	require.True(t, config.Audit.OpenReports)
	require.False(t, config.LeaderElection.Enabled)
	require.Equal(t, map[string]bool{"NodeTaintEviction": false}, config.FeatureGates)
}

func TestCallersMayBeRequiredToShowWhatSomebodyIsKnownToHave(t *testing.T) {
	for name, text := range map[string]string{
		"a client certificate":                  "clientCA: {file: ca.crt, commonNames: [a]}",
		"a client certificate, and no tokens":   "clientCA: {file: ca.crt, commonNames: [a]}, tokens: {enabled: false}",
		"tokens for an audience that was named": "tokens: {audience: 'https://a:1'}",
		"tokens of an issuer that was named":    "tokens: {issuer: 'https://a'}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.Load([]byte(head + "webhook: {authentication: {mode: Required, " + text + "}}"))
			require.NoError(t, err)
		})
	}
}

func TestAZeroThatIsWrittenIsAZero(t *testing.T) {
	config, err := v1alpha1.Load([]byte(head + "admission: {maxTimeAddedSkew: 0s}\nwebhook: {drainPeriod: 0s}"))
	require.NoError(t, err)
	require.Zero(t, config.Webhook.DrainPeriod.Duration)
	require.Zero(t, config.Admission.MaxTimeAddedSkew.Duration)
}

func TestL07ABadSettingIsNamed(t *testing.T) {
	tests := map[string]struct{ text, names string }{
		"an unknown key":                     {head + "webhok: {}", `unknown field "webhok"`},
		"an unknown key deeper down":         {head + "webhook: {bindAdress: ':1'}", `unknown field "webhook.bindAdress"`},
		"a key in another case":              {head + "Namespace: x", `unknown field "Namespace"`},
		"a key twice":                        {head + "namespace: a\nnamespace: b", `"namespace" already set`},
		"another version":                    {"apiVersion: config.tollgate.dev/v2\nkind: TollgateConfiguration", `"config.tollgate.dev/v2"`},
		"no kind":                            {"apiVersion: config.tollgate.dev/v1alpha1", `kind are`},
		"an empty file":                      {"", "want"},
		"not YAML":                           {"{", "read configuration"},
		"a text where a number is due":       {head + "eviction: {workers: many}", "workers"},
		"a number that means nothing":        {head + "eviction: {workers: -1}", "eviction.workers: Invalid value: -1"},
		"a drain that is negative":           {head + "webhook: {drainPeriod: -1s}", "webhook.drainPeriod: Invalid value: \"-1s\""},
		"a mode that does not exist":         {head + "eviction: {mode: Gentle}", `eviction.mode: Unsupported value: "Gentle": supported values: "Replace", "Window", "Observe"`},
		"a mode in another case":             {head + "eviction: {mode: window}", `eviction.mode: Unsupported value: "window"`},
		"a mode that is empty":               {head + "eviction: {mode: ''}", `eviction.mode: Unsupported value: ""`},
		"a hold that is negative":            {head + "eviction: {maxHold: -1s}", "eviction.maxHold"},
		"a bad address":                      {head + "webhook: {bindAddress: here}", `webhook.bindAddress: Invalid value: "here"`},
		"a port out of range":                {head + "metrics: {bindAddress: ':70000'}", "metrics.bindAddress"},
		"a URL without TLS":                  {head + "webhook: {url: 'http://a:1'}", "webhook.url"},
		"a URL with a path":                  {head + "webhook: {url: 'https://a:1/x'}", "webhook.url"},
		"a collector without a port":         {head + "tracing: {endpoint: here}", `tracing.endpoint: Invalid value: "here"`},
		"more than all traces":               {head + "tracing: {samplingRatePerMillion: 1000001}", "tracing.samplingRatePerMillion: Invalid value: 1000001"},
		"a duration of no unit":              {head + "webhook: {budget: '3'}", "missing unit"},
		"a negative duration":                {head + "webhook: {budget: -3s}", "webhook.budget"},
		"a lease shorter than its renewal":   {head + "leaderElection: {leaseDuration: 5s}", "leaderElection.leaseDuration"},
		"a renewal shorter than a retry":     {head + "leaderElection: {retryPeriod: 9s}", "leaderElection.renewDeadline"},
		"an unknown registration":            {head + "webhook: {registration: Auto}", `webhook.registration: Unsupported value: "Auto": supported values: "Managed", "Manual"`},
		"a CA that comes too late":           {head + "webhook: {registration: Managed}\ncertificates: {mode: Files, directory: /d}", "webhook.registration: Invalid value"},
		"a failure policy that is none":      {head + "webhook: {failurePolicy: Allow}", "webhook.failurePolicy"},
		"a namespace that is none":           {head + "webhook: {excludedNamespaces: [a, 'b c']}", "webhook.excludedNamespaces[1]"},
		"a rate of nothing":                  {head + "clientConnection: {qps: 0}", "clientConnection.qps"},
		"no workers":                         {head + "eviction: {workers: 0}", "eviction.workers"},
		"no time for a review":               {head + "webhook: {budget: 0s}", "webhook.budget"},
		"a skew that is negative":            {head + "admission: {maxTimeAddedSkew: -1s}", "admission.maxTimeAddedSkew"},
		"a certificate that is too short":    {head + "certificates: {servingDuration: 5s}", "certificates.servingDuration"},
		"a URL with a host that is none":     {head + "webhook: {url: 'https://my_host:9443'}", "webhook.url"},
		"an empty address":                   {head + "health: {bindAddress: ''}", "health.bindAddress"},
		"an unknown certificate mode":        {head + "certificates: {mode: Vault}", `certificates.mode: Unsupported value: "Vault"`},
		"files without a directory":          {head + "certificates: {mode: Files}", "certificates.directory"},
		"a CA that ends with what it signed": {head + "certificates: {caDuration: 1h, servingDuration: 1h}", "certificates.caDuration"},
		"too little memory for one review":   {head + "webhook: {maxInFlightBytes: 1}", "webhook.maxInFlightBytes"},
		"a name that is none":                {head + "namespace: 'a b'", "namespace"},
		"negative seconds":                   {head + "admission: {defaultUnreachableTolerationSeconds: -1}", "admission.defaultUnreachableTolerationSeconds"},
		"a negative rate":                    {head + "clientConnection: {qps: -1}", "clientConnection.qps"},
		"a burst that is none":               {head + "clientConnection: {burst: -1}", "clientConnection.burst"},
		"a scheduler without a name":         {head + "admission: {schedulers: ['']}", "admission.schedulers[0]"},
		"a scheduler with a space":           {head + "admission: {schedulers: [' a']}", "admission.schedulers[0]"},
		"a pattern of schedulers":            {head + "admission: {schedulers: [a, 'system:*']}", "admission.schedulers[1]"},
		"a mode of authentication that is none": {
			head + "webhook: {authentication: {mode: Always}}",
			`webhook.authentication.mode: Unsupported value: "Always": supported values: "Off", "Optional", "Required"`,
		},
		"authentication that nobody could pass": {
			head + "webhook: {authentication: {mode: Required, tokens: {enabled: false}}}", "webhook.authentication.mode",
		},
		"authentication by tokens that no API server shows": {
			head + "webhook: {authentication: {mode: Required}}",
			`webhook.authentication.mode: Invalid value: "Required": needs clientCA.file, or tokens.enabled with tokens.audience or tokens.issuer`,
		},
		"authentication by tokens of an issuer that are not accepted": {
			head + "webhook: {authentication: {mode: Required, tokens: {enabled: false, issuer: 'https://a'}}}", "webhook.authentication.mode",
		},
		"an authority that certifies everybody": {
			head + "webhook: {authentication: {clientCA: {file: ca.crt}}}", "webhook.authentication.clientCA.commonNames: Required value",
		},
		"names without an authority": {
			head + "webhook: {authentication: {clientCA: {organizations: [a]}}}", "webhook.authentication.clientCA.file: Required value",
		},
		"a pattern of names": {
			head + "webhook: {authentication: {clientCA: {file: ca.crt, commonNames: ['*']}}}", "webhook.authentication.clientCA.commonNames[0]",
		},
		"an organization without a name": {
			head + "webhook: {authentication: {clientCA: {file: ca.crt, organizations: [a, '']}}}", "webhook.authentication.clientCA.organizations[1]",
		},
		"an audience with a path": {
			head + "webhook: {authentication: {tokens: {audience: 'https://a:1/validate'}}}", "webhook.authentication.tokens.audience",
		},
		"an issuer with a space": {
			head + "webhook: {authentication: {tokens: {issuer: 'https://a '}}}", "webhook.authentication.tokens.issuer",
		},
		"a controller that is named twice": {head + "admission: {workloadControllers: [a, a]}", `admission.workloadControllers[1]: Duplicate value: "a"`},
		"metrics shown in a way that is none": {
			head + "metrics: {authorization: Token}",
			`metrics.authorization: Unsupported value: "Token": supported values: "Auto", "RBAC", "None"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.Load([]byte(tt.text))
			require.ErrorContains(t, err, tt.names)
		})
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte(head + "webhook: {url: 'https://a:1'}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := v1alpha1.Load(data)
		if err == nil {
			require.Empty(t, config.Validate())
		}
	})
}

func TestF12MetricsAreOpenOnLoopbackOnlyUnlessSomebodySaysSo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		metrics v1alpha1.MetricsConfiguration
		asked   bool
	}{
		"the default":                    {v1alpha1.Default().Metrics, false},
		"loopback of IPv6":               {v1alpha1.MetricsConfiguration{BindAddress: "[::1]:8080", Authorization: v1alpha1.MetricsAuto}, false},
		"localhost":                      {v1alpha1.MetricsConfiguration{BindAddress: "localhost:8080", Authorization: v1alpha1.MetricsAuto}, false},
		"every address":                  {v1alpha1.MetricsConfiguration{BindAddress: ":8080", Authorization: v1alpha1.MetricsAuto}, true},
		"an address of the machine":      {v1alpha1.MetricsConfiguration{BindAddress: "192.0.2.1:8080", Authorization: v1alpha1.MetricsAuto}, true},
		"a name":                         {v1alpha1.MetricsConfiguration{BindAddress: "example.com:8080", Authorization: v1alpha1.MetricsAuto}, true},
		"loopback, where RBAC is wanted": {v1alpha1.MetricsConfiguration{BindAddress: "127.0.0.1:8080", Authorization: v1alpha1.MetricsRBAC}, true},
		"every address, open":            {v1alpha1.MetricsConfiguration{BindAddress: ":8080", Authorization: v1alpha1.MetricsNone}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.asked, tt.metrics.Asked())
		})
	}
}
