package chaos

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
	"github.com/tollgate-dev/tollgate/e2e/history"
	"github.com/tollgate-dev/tollgate/e2e/process"
)

// replica is a Tollgate behind a proxy. Each of its lives has a proxy of its own, and
// another name in the history.
type replica struct {
	name     string
	access   *rest.Config
	recorder *history.Recorder
	seed     uint64

	mutex   sync.Mutex // guards what follows
	lives   int
	offset  time.Duration
	proxy   *faultproxy.Proxy
	process *process.Process
	metrics string
	frozen  bool
}

// accessOfTollgate returns the access of Tollgate's ServiceAccount.
func accessOfTollgate(ctx context.Context) (*rest.Config, error) {
	admin := shared.RESTConfig()
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 60 * 60))}}
	token, err := client.CoreV1().ServiceAccounts("tollgate-system").CreateToken(ctx, "tollgate", request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create token: %w", err)
	}
	return &rest.Config{
		Host: admin.Host, BearerToken: token.Status.Token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: admin.CAData},
	}, nil
}

// start starts the replica anew.
func (r *replica) start(ctx context.Context) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.process != nil && r.process.Alive() {
		return nil
	}
	if r.proxy != nil {
		r.proxy.Close()
	}
	r.lives++
	proxy, err := faultproxy.Start(faultproxy.Options{
		Client: r.access, Replica: r.name + "-" + strconv.Itoa(r.lives), Record: r.recorder.Write, Seed: r.seed + uint64(r.lives),
	})
	if err != nil {
		return err
	}
	proxy.StepDate(r.offset)
	r.proxy, r.frozen = proxy, false
	dir := filepath.Join(shared.Dir(), "tollgate")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create directory of replica: %w", err)
	}
	kubeconfig, config := filepath.Join(dir, r.name+".kubeconfig"), filepath.Join(dir, r.name+".yaml")
	if err := proxy.WriteKubeconfig(kubeconfig); err != nil {
		return err
	}
	if err := r.configure(ctx, config); err != nil {
		return err
	}
	r.process, err = process.Start(process.Spec{
		Name: "tollgate-" + r.name, Path: programs.Tollgate(), Log: shared.LogPath("tollgate-" + r.name),
		Args: []string{"serve", "--config", config, "--kubeconfig", kubeconfig},
	})
	if err != nil {
		return err
	}
	return shared.Adopt(r.process)
}

// configure writes the configuration, with ports that are free now.
func (r *replica) configure(ctx context.Context, path string) error {
	ports, err := controlplane.FreePorts(ctx, 3)
	if err != nil {
		return err
	}
	address := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])) }
	r.metrics = "http://" + address(1) + "/metrics"
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "config.tollgate.dev/v1alpha1", "kind": "TollgateConfiguration", "namespace": "tollgate-system",
		"webhook": map[string]any{"bindAddress": address(0), "url": "https://" + address(0), "drainPeriod": "0s"},
		// A watch that begins with its request lost is nothing that anybody hears of.
		"clientConnection": map[string]any{"watchSilence": watchSilence.String()},
		"metrics":          map[string]any{"bindAddress": address(1)},
		"health":           map[string]any{"bindAddress": address(2)},
		"leaderElection": map[string]any{
			"enabled": true, "leaseDuration": leaseDuration.String(), "renewDeadline": renewDeadline.String(), "retryPeriod": retryPeriod.String(),
		},
	})
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// with calls do with the proxy of this life.
func (r *replica) with(do func(*faultproxy.Proxy)) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	do(r.proxy)
}

// step sets the clock of the API server, as this replica sees it.
func (r *replica) step(by time.Duration) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.offset += by
	r.proxy.StepDate(by)
}

// kill ends the replica as a crash does.
func (r *replica) kill(ctx context.Context) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.frozen = false
	return r.process.Kill(ctx)
}

// terminate ends the replica as a rollout does.
func (r *replica) terminate(ctx context.Context) error {
	r.mutex.Lock()
	p, frozen := r.process, r.frozen
	r.mutex.Unlock()
	if frozen {
		return nil // it would not hear
	}
	return p.Terminate(ctx, 4*time.Second)
}

// freeze stops the replica, and thaw lets it go on.
func (r *replica) freeze() error { return r.signal(syscall.SIGSTOP, true) }

func (r *replica) thaw() error { return r.signal(syscall.SIGCONT, false) }

func (r *replica) signal(signal syscall.Signal, frozen bool) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.process.Alive() {
		return nil // killed meanwhile
	}
	r.frozen = frozen
	return r.process.Signal(signal)
}

// alive reports whether the replica runs.
func (r *replica) alive() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.process.Alive()
}

// end ends the replica and its proxy.
func (r *replica) end(ctx context.Context) error {
	err := r.kill(ctx)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.proxy.Close()
	return err
}

// shown reads from the metrics what is held and what is to come.
func (r *replica) shown(ctx context.Context) (history.Shown, error) {
	r.mutex.Lock()
	url := r.metrics
	r.mutex.Unlock()
	shown := history.Shown{Held: map[string]int{}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return shown, fmt.Errorf("read metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return shown, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return shown, fmt.Errorf("parse metrics: %w", err)
	}
	for _, m := range families["tollgate_evictions_held"].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "reason" {
				shown.Held[label.GetValue()] += int(m.GetGauge().GetValue())
			}
		}
	}
	for _, m := range families["tollgate_evictions_pending"].GetMetric() {
		shown.Pending += int(m.GetGauge().GetValue())
	}
	return shown, nil
}
