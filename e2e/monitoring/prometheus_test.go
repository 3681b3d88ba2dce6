package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/process"
)

// prometheus is a Prometheus that runs.
type prometheus struct {
	process *process.Process
	url     string
	// dir holds its data, and what it shows when it scrapes.
	dir string
}

// configuration has it scrape as the monitors that ship say, but often.
const configuration = `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%[1]q]
scrape_configs:
  - job_name: tollgate
    scheme: https
    authorization: {credentials_file: token}
    tls_config: {ca_file: tollgate-ca.crt, server_name: tollgate.tollgate-system.svc}
    static_configs: [{targets: [%[2]q]}]
  - job_name: kube-apiserver
    scheme: https
    scrape_interval: 3s
    scrape_timeout: 3s
    tls_config: {ca_file: ca.crt, cert_file: client.crt, key_file: client.key}
    static_configs: [{targets: [%[3]q]}]
  - job_name: kube-scheduler
    scheme: https
    tls_config: {ca_file: ca.crt, cert_file: client.crt, key_file: client.key}
    static_configs: [{targets: [%[4]q]}]
`

func startPrometheus(ctx context.Context, program string) (*prometheus, error) {
	dir, err := os.MkdirTemp("", "tollgate-prometheus-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	p := &prometheus{dir: dir}
	if err := p.writeFiles(ctx); err != nil {
		return nil, err
	}
	ports, err := controlplane.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	p.url = "http://" + address
	p.process, err = process.Start(process.Spec{
		Name: "prometheus", Path: program, Log: shared.LogPath("prometheus"),
		Args: []string{
			"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
			"--web.listen-address=" + address,
		},
	})
	if err != nil {
		return nil, err
	}
	return p, poll(ctx, "Prometheus is ready", func(ctx context.Context) error {
		if !p.process.Alive() {
			return fmt.Errorf("it ended with %s, see %s", p.process.Exit(), shared.LogPath("prometheus"))
		}
		_, err := p.fetch(ctx, "/-/ready", nil)
		return err
	})
}

// writeFiles writes its configuration and what it needs to scrape.
func (p *prometheus) writeFiles(ctx context.Context) error {
	token, err := secret(ctx, "tollgate-scraper", "token")
	if err != nil {
		return err
	}
	ca, err := secret(ctx, "tollgate-serving-certificate", "ca.crt")
	if err != nil {
		return err
	}
	admin := shared.RESTConfig()
	endpoint := strings.TrimSuffix(strings.TrimPrefix(tollgate.MetricsURL, "http://"), "/metrics")
	host := func(component string) string { return strings.TrimPrefix(shared.URL(component), "https://") }
	for name, content := range map[string][]byte{
		"token": token, "tollgate-ca.crt": ca, "ca.crt": admin.CAData, "client.crt": admin.CertData, "client.key": admin.KeyData,
		"prometheus.yml": fmt.Appendf(nil, configuration, shipped("rules", "tollgate.yaml"),
			endpoint, host(controlplane.APIServer), host(controlplane.Scheduler)),
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), content, 0o600); err != nil {
			return fmt.Errorf("write for Prometheus: %w", err)
		}
	}
	return nil
}

func (p *prometheus) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = p.process.Terminate(ctx, 20*time.Second) // it is killed with this program, if not now
	_ = os.RemoveAll(p.dir)
}

// fetch returns what is answered at a path.
func (p *prometheus) fetch(ctx context.Context, path string, query url.Values) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", path, response.StatusCode, body)
	}
	return body, err
}

// get decodes the data of an answer of its API.
func (p *prometheus) get(ctx context.Context, path string, query url.Values, data any) error {
	body, err := p.fetch(ctx, "/api/v1/"+path, query)
	if err != nil {
		return err
	}
	var answer struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return json.Unmarshal(answer.Data, data)
}

// sample is one of the results of a query.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func (s *sample) number() float64 {
	text, _ := s.Value[1].(string)
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return value
}

// query returns the samples of an expression, now.
func (p *prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	var data struct {
		Result []sample `json:"result"`
	}
	err := p.get(ctx, "query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// total returns the sum of the samples of an expression.
func (p *prometheus) total(ctx context.Context, expr string) (float64, error) {
	samples, err := p.query(ctx, expr)
	sum := 0.0
	for i := range samples {
		sum += samples[i].number()
	}
	return sum, err
}

// numbers reports whether an expression has a sample with a number, now.
func (p *prometheus) numbers(ctx context.Context, expr string) error {
	samples, err := p.query(ctx, expr)
	if err != nil {
		return err
	}
	for i := range samples {
		if !math.IsNaN(samples[i].number()) {
			return nil
		}
	}
	return fmt.Errorf("%d samples without a number: %s", len(samples), expr)
}
