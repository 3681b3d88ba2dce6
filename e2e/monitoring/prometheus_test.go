package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// configuration has a Prometheus scrape a cluster as the monitors that ship say, but often.
const configuration = `
scrape_configs:
  - job_name: tollgate
    scheme: https
    authorization: {credentials_file: token}
    tls_config: {ca_file: tollgate-ca.crt, server_name: tollgate.tollgate-system.svc}
    static_configs: [{targets: [%[1]q], labels: %[4]s}]
  - job_name: kube-apiserver
    scheme: https
    scrape_interval: 3s
    scrape_timeout: 3s
    tls_config: {ca_file: ca.crt, cert_file: client.crt, key_file: client.key}
    static_configs: [{targets: [%[2]q], labels: %[4]s}]
  - job_name: kube-scheduler
    scheme: https
    tls_config: {ca_file: ca.crt, cert_file: client.crt, key_file: client.key}
    static_configs: [{targets: [%[3]q], labels: %[4]s}]
`

// central is how the Prometheus is configured that has both clusters. It scrapes east itself, so it
// adds the label cluster to what it scrapes.
const central = `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
`

// remote is how the Prometheus Agent of west is configured. The label is one of its external labels.
const remote = `
global: {scrape_interval: 1s, scrape_timeout: 1s, external_labels: {cluster: west}}
remote_write: [{url: %q, queue_config: {batch_send_deadline: 1s}}]
`

// absentFor is the time for which TollgateAbsent waits, in the rules that ship.
var absentFor = regexp.MustCompile(`(?s)(- alert: TollgateAbsent\n.*?\n +for: )5m\n`)

// startCentral starts the Prometheus that has both clusters, with the rules that ship.
func startCentral(ctx context.Context, program string) (*prometheus, error) {
	rules, err := os.ReadFile(shipped("rules", "tollgate.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	// A test waits for this alert.
	soon := absentFor.ReplaceAll(rules, []byte("${1}5s\n"))
	if bytes.Equal(soon, rules) {
		return nil, errors.New("TollgateAbsent does not wait for 5m")
	}
	files := map[string][]byte{"prometheus.yml": []byte(central + east.scraped("{cluster: east}")), "rules.yaml": soon}
	return east.startPrometheus(ctx, program, files, "--web.enable-remote-write-receiver", "--storage.tsdb.path")
}

// startAgent starts the Prometheus Agent of west, which writes to another Prometheus.
func startAgent(ctx context.Context, program string, to *prometheus) (*prometheus, error) {
	files := map[string][]byte{"prometheus.yml": []byte(fmt.Sprintf(remote, to.url+"/api/v1/write") + west.scraped("{}"))}
	return west.startPrometheus(ctx, program, files, "--agent", "--storage.agent.path")
}

// scraped returns the part of a configuration that scrapes the cluster.
func (c *cluster) scraped(labels string) string {
	endpoint := strings.TrimSuffix(strings.TrimPrefix(c.tollgate.MetricsURL, "http://"), "/metrics")
	host := func(component string) string { return strings.TrimPrefix(c.URL(component), "https://") }
	return fmt.Sprintf(configuration, endpoint, host(controlplane.APIServer), host(controlplane.Scheduler), labels)
}

// startPrometheus starts a Prometheus that may scrape the cluster, from files, and returns when it is
// ready. The last argument is the flag for the folder of its data.
func (c *cluster) startPrometheus(ctx context.Context, program string, files map[string][]byte, args ...string) (*prometheus, error) {
	dir, err := os.MkdirTemp("", "tollgate-prometheus-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	p := &prometheus{dir: dir}
	if err := c.addCredentials(ctx, files); err != nil {
		return nil, err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write for Prometheus: %w", err)
		}
	}
	ports, err := controlplane.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	p.url = "http://" + address
	p.process, err = process.Start(process.Spec{
		Name: "prometheus", Path: program, Log: c.LogPath("prometheus"),
		Args: slices.Concat(
			[]string{"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--web.listen-address=" + address}, args, []string{filepath.Join(dir, "data")}),
	})
	if err != nil {
		return nil, err
	}
	return p, poll(ctx, "Prometheus is ready", func(ctx context.Context) error {
		if !p.process.Alive() {
			return fmt.Errorf("it ended with %s, see %s", p.process.Exit(), c.LogPath("prometheus"))
		}
		_, err := p.fetch(ctx, "/-/ready", nil)
		return err
	})
}

// addCredentials adds what is needed to scrape the cluster to files.
func (c *cluster) addCredentials(ctx context.Context, files map[string][]byte) error {
	token, err := c.secret(ctx, "tollgate-scraper", "token")
	if err != nil {
		return err
	}
	ca, err := c.secret(ctx, "tollgate-serving-certificate", "ca.crt")
	if err != nil {
		return err
	}
	admin := c.RESTConfig()
	files["token"], files["tollgate-ca.crt"] = token, ca
	files["ca.crt"], files["client.crt"], files["client.key"] = admin.CAData, admin.CertData, admin.KeyData
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

// clusters reports whether an expression has a sample with a number for each of the clusters, and
// none of another one, now.
func (p *prometheus) clusters(ctx context.Context, expr string, want ...*cluster) error {
	samples, err := p.query(ctx, expr)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for i := range samples {
		if !math.IsNaN(samples[i].number()) {
			found[samples[i].Metric["cluster"]] = true
		}
	}
	names := map[string]bool{}
	for _, c := range want {
		names[c.name] = true
	}
	if !maps.Equal(found, names) {
		return fmt.Errorf("%d samples, numbers of %v, not of %v: %s", len(samples), found, names, expr)
	}
	return nil
}
