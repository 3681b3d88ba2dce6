package manifests

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// objects are the objects of an installation by what they are and are called.
type objects map[string]*unstructured.Unstructured

// kustomize renders a folder as a user does.
func kustomize(t *testing.T, folder string) objects {
	t.Helper()
	out, err := install.Kubectl(t.Context(), shared, "kustomize", folder)
	require.NoError(t, err, "%s", out)
	return parse(t, out)
}

// helm runs helm as a user without settings of their own.
func helm(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	program := filepath.Join(programs.Root, "bin", "helm")
	require.FileExists(t, program, "make helm builds it")
	cmd := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir()
	cmd.Env = []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New(failure.String())
	}
	return out, nil
}

// chart is the folder of the chart.
func chart() string { return filepath.Join(programs.Root, "deploy", "chart", "tollgate") }

// template renders the chart into the namespace that kustomize has, without what helm test creates.
func template(t *testing.T, args ...string) objects {
	t.Helper()
	return templateOf(t, chart(), args...)
}

func templateOf(t *testing.T, chart string, args ...string) objects {
	t.Helper()
	out, err := helm(t, append([]string{"template", "tollgate", chart, "--namespace", "tollgate-system", "--skip-tests"}, args...)...)
	require.NoError(t, err)
	return parse(t, out)
}

// chartWith is a copy of the chart in which one file is another.
func chartWith(t *testing.T, file, text string) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS(chart())))
	require.FileExists(t, filepath.Join(folder, file))
	writeFile(t, folder, file, text)
	return folder
}

func parse(t *testing.T, text []byte) objects {
	t.Helper()
	found := objects{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		if len(object.Object) == 0 {
			continue
		}
		id := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		require.NotContains(t, found, id)
		found[id] = object
	}
}

// as converts the object of that name.
func as[T any](t *testing.T, from objects, id string) *T {
	t.Helper()
	require.Contains(t, from, id)
	into := new(T)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(from[id].Object, into))
	return into
}
