package certs

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// amended applies the patch that change returns, if any, as the API server would.
func amended(t *testing.T, in *admissionregistrationv1.ValidatingWebhookConfiguration, bundle, base string) (*admissionregistrationv1.ValidatingWebhookConfiguration, bool) {
	t.Helper()
	patch := (&publisher{Options: &Options{OwnCA: OwnCA{URL: base}}}).change(in, []byte(bundle))
	if patch == nil {
		return in, false
	}
	before, err := json.Marshal(in)
	require.NoError(t, err)
	decoded, err := jsonpatch.DecodePatch(patch)
	require.NoError(t, err)
	after, err := decoded.Apply(before)
	require.NoError(t, err)
	out := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(t, json.Unmarshal(after, out))
	for _, w := range out.Webhooks {
		require.NotEqual(t, w.ClientConfig.Service == nil, w.ClientConfig.URL == nil, "the API server takes one of service and url")
	}
	return out, true
}

func TestAmend(t *testing.T) {
	t.Parallel()
	shipped := func() *admissionregistrationv1.ValidatingWebhookConfiguration {
		c := validatingConfiguration()
		c.ResourceVersion = "7"
		return c
	}
	urls := func(c *admissionregistrationv1.ValidatingWebhookConfiguration) (out []string) {
		for _, w := range c.Webhooks {
			if w.ClientConfig.URL == nil {
				out = append(out, "")
				continue
			}
			out = append(out, *w.ClientConfig.URL)
		}
		return out
	}

	t.Run("the bundle goes into every webhook and nothing else changes", func(t *testing.T) {
		t.Parallel()
		got, changed := amended(t, shipped(), "bundle", "")
		require.True(t, changed)
		want := shipped()
		for i := range want.Webhooks {
			want.Webhooks[i].ClientConfig.CABundle = []byte("bundle")
		}
		require.Equal(t, want, got)
	})
	t.Run("nothing is written when nothing differs", func(t *testing.T) {
		t.Parallel()
		for _, base := range []string{"", "https://127.0.0.1:9443"} {
			once, changed := amended(t, shipped(), "bundle", base)
			require.True(t, changed)
			_, changed = amended(t, once, "bundle", base)
			require.False(t, changed, base)
		}
	})
	t.Run("a URL takes the place and the path of the Service", func(t *testing.T) {
		t.Parallel()
		got, _ := amended(t, shipped(), "bundle", "https://127.0.0.1:9443")
		require.Equal(t, []string{"https://127.0.0.1:9443/validate", "https://127.0.0.1:9443/validate/nodes"}, urls(got))
	})
	t.Run("a changed URL keeps the path", func(t *testing.T) {
		t.Parallel()
		got, _ := amended(t, shipped(), "bundle", "https://127.0.0.1:9443")
		got, _ = amended(t, got, "bundle", "https://[::1]:9444")
		require.Equal(t, []string{"https://[::1]:9444/validate", "https://[::1]:9444/validate/nodes"}, urls(got))
	})
	t.Run("without a URL the Services come back", func(t *testing.T) {
		t.Parallel()
		want, _ := amended(t, shipped(), "bundle", "")
		moved, _ := amended(t, shipped(), "bundle", "https://127.0.0.1:9443")
		got, _ := amended(t, moved, "bundle", "")
		got.Annotations = nil
		require.Equal(t, want, got)
	})
	t.Run("a Service that was edited back is replaced and remembered anew", func(t *testing.T) {
		t.Parallel()
		got, _ := amended(t, shipped(), "bundle", "https://127.0.0.1:9443")
		got.Webhooks[0].ClientConfig = serviceConfig("/other")
		got, _ = amended(t, got, "bundle", "https://127.0.0.1:9443")
		require.Equal(t, []string{"https://127.0.0.1:9443/other", "https://127.0.0.1:9443/validate/nodes"}, urls(got))
		got, _ = amended(t, got, "bundle", "")
		require.Equal(t, "/other", *got.Webhooks[0].ClientConfig.Service.Path)
	})
	t.Run("a URL of the user's is left alone without one of ours", func(t *testing.T) {
		t.Parallel()
		in := shipped()
		in.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://example.com/theirs")}
		got, _ := amended(t, in, "bundle", "")
		require.Equal(t, []string{"https://example.com/theirs", ""}, urls(got))
		require.Equal(t, "bundle", string(got.Webhooks[0].ClientConfig.CABundle))
	})
	t.Run("a URL of the user's gives its path to ours", func(t *testing.T) {
		t.Parallel()
		in := shipped()
		in.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://example.com/theirs")}
		got, _ := amended(t, in, "bundle", "https://127.0.0.1:9443")
		require.Equal(t, "https://127.0.0.1:9443/theirs", urls(got)[0])
	})
	t.Run("a Service without a path is called at the root", func(t *testing.T) {
		t.Parallel()
		in := shipped()
		in.Webhooks[0].ClientConfig.Service.Path = nil
		got, _ := amended(t, in, "bundle", "https://127.0.0.1:9443")
		require.Equal(t, "https://127.0.0.1:9443", urls(got)[0])
		_, changed := amended(t, got, "bundle", "https://127.0.0.1:9443")
		require.False(t, changed)
	})
	t.Run("an annotation that cannot be read is replaced", func(t *testing.T) {
		t.Parallel()
		in := shipped()
		in.Annotations = map[string]string{AnnotationServices: "{"}
		got, _ := amended(t, in, "bundle", "https://127.0.0.1:9443")
		require.JSONEq(t, `{
			"validate.tollgate.dev": {"namespace":"tollgate-system","name":"tollgate","path":"/validate","port":443},
			"nodes.tollgate.dev": {"namespace":"tollgate-system","name":"tollgate","path":"/validate/nodes","port":443}
		}`, got.Annotations[AnnotationServices])
	})
	t.Run("a patch for another version of the object does not apply", func(t *testing.T) {
		t.Parallel()
		patch := (&publisher{Options: &Options{}}).change(shipped(), []byte("bundle"))
		decoded, err := jsonpatch.DecodePatch(patch)
		require.NoError(t, err)
		_, err = decoded.Apply([]byte(`{"metadata":{"resourceVersion":"8"},"webhooks":[{"clientConfig":{}},{"clientConfig":{}}]}`))
		require.Error(t, err)
	})
	t.Run("a configuration without webhooks needs nothing", func(t *testing.T) {
		t.Parallel()
		patch := (&publisher{Options: &Options{}}).change(&configuration{}, []byte("bundle"))
		require.Nil(t, patch)
	})
}
