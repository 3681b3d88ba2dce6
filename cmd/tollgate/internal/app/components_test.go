package app

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

const evictorAccount = "system:serviceaccount:tollgate-system:tollgate"

func TestF09BadComponentsAreRefusedByFlagAndValue(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"an unknown component": {
			args: []string{"--components=webhook,scheduler"},
			want: `--components has "scheduler", want webhook, evictor or both`,
		},
		"no component": {
			args: []string{"--components="},
			want: "--components is empty, want webhook, evictor or both",
		},
		"a webhook that does not know the user of the evictor": {
			args: []string{"--components=webhook"},
			want: "--evictor-user is empty, want the user name of the evictor",
		},
		"an evictor that is told of another one": {
			args: []string{"--components=evictor", "--evictor-user=" + evictorAccount},
			want: `--evictor-user is "` + evictorAccount + `", want it with --components=webhook alone`,
		},
		"both components and another evictor": {
			args: []string{"--evictor-user=" + evictorAccount},
			want: `--evictor-user is "` + evictorAccount + `", want it with --components=webhook alone`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := NewCommand()
			root.SilenceErrors, root.SilenceUsage = true, true
			root.SetArgs(append([]string{"serve"}, tt.args...))
			require.ErrorContains(t, root.ExecuteContext(t.Context()), tt.want)
		})
	}
}

func TestF09TheWebhookAdmitsWhatTheEvictorWrites(t *testing.T) {
	t.Parallel()
	apart, err := parseComponents([]string{"webhook"}, evictorAccount)
	require.NoError(t, err)
	require.Equal(t, []string{"me", evictorAccount}, apart.selves("me"))
	both, err := parseComponents([]string{"evictor", "webhook"}, "")
	require.NoError(t, err)
	require.Equal(t, []string{"me"}, both.selves("me"))
}

func TestF09AWebhookWithoutTheEvictorNeverLeads(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		components components
		leads      bool
	}{
		"the webhook alone, without leader election": {components: components{webhook: true, evictorUser: evictorAccount}},
		"the evictor alone, without leader election": {components: components{evictor: true}, leads: true},
		"both, without leader election":              {components: components{webhook: true, evictor: true}, leads: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &program{config: configv1alpha1.Default(), local: clock.RealClock{}, components: tt.components}
			require.Equal(t, tt.leads, p.leads())
		})
	}
}

func TestF09MetricsOverTLSNeedACertificate(t *testing.T) {
	t.Parallel()
	config := configv1alpha1.Default()
	config.Metrics.BindAddress, config.Metrics.Authorization = ":8443", configv1alpha1.MetricsRBAC
	require.ErrorContains(t, components{evictor: true}.validate(config), `metrics.certificateDirectory is empty`)
	require.NoError(t, components{webhook: true}.validate(config))
	config.Metrics.CertificateDirectory = "/etc/tollgate/certificates"
	require.NoError(t, components{evictor: true}.validate(config))
	config.Metrics.CertificateDirectory, config.Metrics.Authorization = "", configv1alpha1.MetricsNone
	require.NoError(t, components{evictor: true}.validate(config))
}
