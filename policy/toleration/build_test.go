package toleration

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
)

const (
	noSchedule = corev1.TaintEffectNoSchedule
	prefer     = corev1.TaintEffectPreferNoSchedule
	noExecute  = corev1.TaintEffectNoExecute
)

var specTolerations = field.NewPath("spec", "tolerations")

// policyOf reads the spec of a policy as a user would write it.
func policyOf(t *testing.T, name, spec string) v1alpha1.TolerationPolicy {
	t.Helper()
	p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	return p
}

// tolerationsOf reads tolerations as they are in a pod, one a line.
func tolerationsOf(t *testing.T, lines string) []corev1.Toleration {
	t.Helper()
	var parsed []corev1.Toleration
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var one corev1.Toleration
		require.NoError(t, yaml.UnmarshalStrict([]byte(line), &one), line)
		parsed = append(parsed, one)
	}
	return parsed
}

func toleration(t *testing.T, line string) corev1.Toleration {
	t.Helper()
	parsed := tolerationsOf(t, line)
	require.Len(t, parsed, 1)
	return parsed[0]
}

func inputOf(namespace string, tolerations ...corev1.Toleration) Input {
	return Input{
		Review: &cel.Review{
			Request:    &admissionv1.AdmissionRequest{Namespace: namespace, UserInfo: authenticationv1.UserInfo{Username: "jane"}},
			Authorizer: &court{},
		},
		User:            authenticationv1.UserInfo{Username: "jane"},
		Namespace:       namespace,
		NamespaceLabels: map[string]string{corev1.LabelMetadataName: namespace},
		Asked:           []Asked{{New: tolerations, Path: specTolerations}},
		Path:            field.NewPath("spec", "nodeName"),
	}
}

// judge returns the decision where there must be one.
func judge(t *testing.T, set *Set, in Input) policy.Decision {
	t.Helper()
	decision, err := set.Judge(t.Context(), in)
	require.NoError(t, err)
	return decision
}

// refused returns which policy refuses what, as "policy field".
func refused(d policy.Decision) []string {
	pairs := []string{}
	for _, f := range d.Findings {
		pairs = append(pairs, strings.TrimPrefix(f.Policy, "TolerationPolicy/")+" "+f.Field)
	}
	return pairs
}

func errorsOf(errs field.ErrorList) []string {
	words := []string{}
	for _, err := range errs {
		words = append(words, string(err.Type)+" "+err.Field)
	}
	return words
}
