package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/process"
)

// What deploy/ names.
const (
	namespace      = "tollgate-system"
	serviceAccount = "tollgate"
)

// Name is what a Tollgate is called unless told otherwise.
const Name = "tollgate"

// tokenSeconds is as long as a control plane's certificates last.
const tokenSeconds = 365 * 24 * 60 * 60

// Options says how Tollgate is installed.
type Options struct {
	// Name tells several Tollgates on one control plane apart: in the names of
	// their files and of their processes. Empty is Name.
	Name string
	// Programs must be built; see package binaries.
	Programs binaries.Binaries
	// Replica joins a Tollgate that is installed: deploy/ is not applied again.
	Replica bool
	// Patch changes the configuration before it is written. It may be nil.
	Patch func(config map[string]any)
	// Managed has the leader register the webhooks. By default they are those of deploy/overlays/outside.
	Managed bool
	// Args are further arguments of "tollgate serve".
	Args []string
	// Env holds KEY=VALUE pairs that are added to its environment.
	Env []string
	// Cgroups are the folders of the control groups in which it runs.
	Cgroups []string
	// Account is the ServiceAccount that it is. Empty is that of deploy/.
	Account string
	// Rights and Webhooks are the kustomizations of what it needs to run and of what makes
	// the API server call it. Empty are those of deploy/.
	Rights, Webhooks string
}

// Tollgate is an installed Tollgate, running or not.
type Tollgate struct {
	// Name is the name of its process in the control plane.
	Name string
	// MetricsURL is where Prometheus scrapes it.
	MetricsURL string
	// HealthURL serves /healthz and /readyz.
	HealthURL string
	// WebhookURL is what its webhooks are registered with.
	WebhookURL string
	// LogPath is what it writes.
	LogPath string
	// ConfigPath is its configuration.
	ConfigPath string
	// Kubeconfig holds the token of its ServiceAccount.
	Kubeconfig string

	cp   *controlplane.ControlPlane
	spec process.Spec
}

// Install installs Tollgate and returns when it admits: it is ready, and the
// API server reaches its webhooks.
func Install(ctx context.Context, cp *controlplane.ControlPlane, options Options) (*Tollgate, error) {
	if options.Name == "" {
		options.Name = Name
	}
	deploy := filepath.Join(options.Programs.Root, "deploy")
	if options.Account == "" {
		options.Account = serviceAccount
	}
	if options.Managed {
		managed := filepath.Join(options.Programs.Root, "e2e", "install", "managed")
		options.Rights, options.Webhooks = filepath.Join(managed, "rights"), filepath.Join(managed, "webhooks")
		options.Patch = patchedManaged(options.Patch)
	}
	if options.Rights == "" {
		var err error
		if options.Rights, err = rights(deploy); err != nil {
			return nil, err
		}
	}
	if options.Webhooks == "" {
		options.Webhooks = filepath.Join(deploy, "overlays", "outside")
	}
	if !options.Replica {
		if err := Apply(ctx, cp, options.Rights); err != nil {
			return nil, err
		}
	}
	t, err := prepare(ctx, cp, options)
	if err != nil {
		return nil, err
	}
	if err := t.run(ctx); err != nil {
		return t, err
	}
	// The webhooks come last: from then on nothing is created unless they answer.
	if !options.Replica {
		if err := Apply(ctx, cp, options.Webhooks); err != nil {
			return t, err
		}
	}
	return t, t.waitAdmits(ctx)
}

// patchedManaged adds to a patch that the leader registers the webhooks.
func patchedManaged(patch func(config map[string]any)) func(config map[string]any) {
	return func(config map[string]any) {
		if patch != nil {
			patch(config)
		}
		webhook, ok := config["webhook"].(map[string]any)
		if !ok {
			webhook = map[string]any{}
			config["webhook"] = webhook
		}
		webhook["registration"] = "Managed"
	}
}

// rights is the kustomization with all that Tollgate needs to run, but not itself. Versions
// that could not run in the cluster had nothing else in base; tests install those too.
func rights(deploy string) (string, error) {
	base := filepath.Join(deploy, "base")
	apart := filepath.Join(base, "rights")
	_, err := os.Stat(apart)
	if errors.Is(err, fs.ErrNotExist) {
		return base, nil
	}
	if err != nil {
		return "", fmt.Errorf("look for the rights of tollgate: %w", err)
	}
	return apart, nil
}

// Apply runs "kubectl apply -k" as the administrator.
func Apply(ctx context.Context, cp *controlplane.ControlPlane, kustomization string) error {
	if out, err := Kubectl(ctx, cp, "apply", "-k", kustomization); err != nil {
		return fmt.Errorf("apply %s: %w\n%s", kustomization, err, out)
	}
	return nil
}

// Kubectl runs kubectl as the administrator, away from the settings and the
// cache in the user's home directory, and returns what it prints.
func Kubectl(ctx context.Context, cp *controlplane.ControlPlane, args ...string) ([]byte, error) {
	args = append([]string{"kubectl", "--kubeconfig", cp.Kubeconfig()}, args...)
	cmd := exec.CommandContext(ctx, cp.Program(), args...) //nolint:gosec // Running what the caller says is the purpose.
	cmd.Env = append(os.Environ(), "KUBERC=off", "KUBECACHEDIR="+filepath.Join(cp.Dir(), "tollgate", "kubectl-cache"))
	return cmd.CombinedOutput()
}

// prepare writes the files that Tollgate starts from.
func prepare(ctx context.Context, cp *controlplane.ControlPlane, options Options) (*Tollgate, error) {
	dir := filepath.Join(cp.Dir(), "tollgate")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create directory of tollgate: %w", err)
	}
	ports, err := controlplane.FreePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	var addresses [3]string
	for i, port := range ports {
		addresses[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	t := &Tollgate{
		Name:       options.Name,
		WebhookURL: "https://" + addresses[0],
		MetricsURL: "http://" + addresses[1] + "/metrics",
		HealthURL:  "http://" + addresses[2],
		LogPath:    cp.LogPath(options.Name),
		ConfigPath: filepath.Join(dir, options.Name+".yaml"),
		Kubeconfig: filepath.Join(dir, options.Name+".kubeconfig"),
		cp:         cp,
	}
	if err := t.writeKubeconfig(ctx, options.Account); err != nil {
		return nil, err
	}
	config := configuration(addresses)
	if options.Patch != nil {
		options.Patch(config)
	}
	if err := t.writeConfig(config); err != nil {
		return nil, err
	}
	program, args := within(options.Cgroups, options.Programs.Tollgate(),
		append([]string{"serve", "--config", t.ConfigPath, "--kubeconfig", t.Kubeconfig}, options.Args...))
	t.spec = process.Spec{
		Name:     options.Name,
		Path:     program,
		Args:     args,
		Env:      options.Env,
		Log:      t.LogPath,
		Detached: cp.Detached(),
	}
	return t, nil
}

// within returns the command that runs a program in control groups from its first instruction on. The
// shell becomes the program, so the process is the same.
func within(cgroups []string, program string, args []string) (command string, arguments []string) {
	if len(cgroups) == 0 {
		return program, args
	}
	const join = `for group in $CGROUPS; do echo $$ > "$group/cgroup.procs" || exit 1; done; exec "$0" "$@"`
	script := "CGROUPS='" + strings.Join(cgroups, " ") + "'; " + join
	return "/bin/sh", append([]string{"-c", script, program}, args...)
}

// configuration is that of a Tollgate beside its cluster, all on loopback. It is the one
// to which the API server sends its reviews, so nothing is gained by waiting when it is
// told to end.
func configuration(addresses [3]string) map[string]any {
	return map[string]any{
		"apiVersion": "config.tollgate.dev/v1alpha1",
		"kind":       "TollgateConfiguration",
		"namespace":  namespace,
		"webhook":    map[string]any{"bindAddress": addresses[0], "url": "https://" + addresses[0], "drainPeriod": "0s"},
		"metrics":    map[string]any{"bindAddress": addresses[1]},
		"health":     map[string]any{"bindAddress": addresses[2]},
		"leaderElection": map[string]any{
			"enabled": true, "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s",
		},
	}
}

func (t *Tollgate) writeConfig(config map[string]any) error {
	content, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode configuration of tollgate: %w", err)
	}
	if err := os.WriteFile(t.ConfigPath, content, 0o600); err != nil {
		return fmt.Errorf("write configuration of tollgate: %w", err)
	}
	return nil
}

// writeKubeconfig asks for a token of an account, as "kubectl create token" does.
func (t *Tollgate) writeKubeconfig(ctx context.Context, account string) error {
	config := t.cp.RESTConfig()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))},
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create token for service account %s/%s: %w", namespace, account, err)
	}
	auth := clientcmdapi.AuthInfo{Token: token.Status.Token}
	return controlplane.WriteKubeconfig(t.Kubeconfig, config.Host, config.CAData, auth)
}
