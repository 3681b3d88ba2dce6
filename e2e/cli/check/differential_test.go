package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// resources are those of the kinds that are created here.
var resources = map[string]string{
	"Pod": "pods", "Node": "nodes", "Namespace": "namespaces", "PodTemplate": "podtemplates",
	"Deployment": "deployments", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets", "Job": "jobs", "CronJob": "cronjobs",
	"ResourceClaim": "resourceclaims", "ResourceClaimTemplate": "resourceclaimtemplates", "DeviceTaintRule": "devicetaintrules",
	"ResourceSlicePatch": "resourceslicepatches",

	"TolerationPolicy": "tolerationpolicies", "PlacementPolicy": "placementpolicies", "TaintPolicy": "taintpolicies",
	"GatePolicy": "gatepolicies", "EvictionPolicy": "evictionpolicies",
}

// person is somebody who creates objects.
type person struct {
	name   string
	groups []string
}

var people = []person{
	{"alice", []string{"team-a"}},
	{"rita", nil},
	{"paul", []string{"platform", "gpu-operators"}},
	{"system:serviceaccount:iron:runner", []string{"system:serviceaccounts", "system:serviceaccounts:iron"}},
}

// samples are those of deploy/samples whose policies are tried, together where there are
// several.
var samples = [][]string{
	{"tolerationpolicy.yaml"},
	{"dedicated-nodes.yaml"},
	{"shared-nodes.yaml"},
	{"spot-nodes.yaml"},
	{"queue-gates.yaml"},
	{"health-monitor.yaml", "maintenance-pod.yaml"},
	{"system-taints.yaml"},
	{"default-limits.yaml", "dedicated-nodes.yaml"},
}

const (
	randomSets = 8
	// perSet is how many objects are tried under each set of policies, by each person.
	perSet = 9
	// patience is far above what anything here takes.
	patience = time.Minute
)

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("TOLLGATE_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "TOLLGATE_SEED")
	}
	t.Logf("TOLLGATE_SEED=%d", seed)
	return seed
}

func TestCheckSaysWhatTheAPIServerSays(t *testing.T) {
	seed := seedOf(t)
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	apply(t, writeText(t, "world.yaml", world))
	waitSettled(t)
	tally := map[string]int{}
	for i := range len(samples) + randomSets {
		name := fmt.Sprintf("random set %d", i-len(samples))
		var policies []*unstructured.Unstructured
		if i < len(samples) {
			name, policies = strings.Join(samples[i], "+"), sampled(t, samples[i])
		} else {
			policies = g.policies()
		}
		t.Run(name, func(t *testing.T) {
			policies = enforce(t, policies)
			compare(t, g, policies, tally)
		})
	}
	t.Logf("verdicts: %v", tally)
	total := 0
	for _, verdict := range []string{"allowed", "warned", "denied", "undecided"} {
		total += tally[verdict]
	}
	require.GreaterOrEqual(t, total, 200)
	require.Less(t, tally["undecided"], total/10)
	require.Greater(t, tally["denied"], total/20, "of objects that nobody refuses nothing is learnt")
	require.Positive(t, tally["warned"])
	require.Positive(t, tally["warned of spread"])
}

// compare has each person create objects, and the program judge the same.
func compare(t *testing.T, g *generator, policies []*unstructured.Unstructured, tally map[string]int) {
	t.Helper()
	policyFile, worldFile := write(t, "policies.yaml", policies), dump(t)
	for _, who := range people {
		var objects []*unstructured.Unstructured
		for range perSet {
			objects = append(objects, g.object())
		}
		file := write(t, "objects.yaml", objects)
		results := judged(t, who, "-p", policyFile, "-f", worldFile, "-f", file)
		client := newClient(t, who)
		for _, object := range objects {
			said := results[object.GetKind()+"/"+object.GetName()]
			require.NotEmpty(t, said.Verdict, "%s %s was not judged", object.GetKind(), object.GetName())
			tally[said.Verdict]++
			if said.Verdict == "undecided" {
				require.Contains(t, said.Message, "limits how many pods", "%v", object)
				continue
			}
			warnings, refused := client.create(t, object)
			for tries := 1; refused == nil && tries < spreadTries && missesSpread(said.Warnings, warnings); tries++ {
				warnings, refused = client.create(t, object)
			}
			if slices.ContainsFunc(warnings, ofSpread.MatchString) {
				tally["warned of spread"]++
			}
			requireSame(t, object, who, &said, refused, warnings)
		}
	}
}

// spreadTries is how often an object is created, at most, until the API server warns of its
// spread: nobody waits for that for more than a second.
const spreadTries = 5

func missesSpread(foretold, warnings []string) bool {
	return slices.ContainsFunc(foretold, ofSpread.MatchString) && !slices.ContainsFunc(warnings, ofSpread.MatchString)
}

// requireSame holds what the program said of an object against what the API server did.
func requireSame(t *testing.T, object *unstructured.Unstructured, who person, said *result, refused error, warnings []string) {
	t.Helper()
	if apierrors.IsInvalid(refused) && object.GetKind() != "Pod" {
		return // What Kubernetes thinks of tolerations is looked at in pods alone.
	}
	text, err := json.Marshal(object.Object)
	require.NoError(t, err)
	about := fmt.Sprintf("%s\nby %s\ncheck: %+v\nAPI server: %v, warnings %q", text, who.name, said, refused, warnings)
	require.Equal(t, refused != nil, said.Verdict == "denied", about)
	if refused != nil && strings.Contains(refused.Error(), "denied the request: ") {
		_, message, _ := strings.Cut(refused.Error(), "denied the request: ")
		require.Equal(t, message, said.Message, about)
		return
	}
	if refused != nil {
		return // by Kubernetes itself, which comes before
	}
	all := strings.Join(warnings, "\n")
	warned := said.Warnings
	for _, f := range said.Findings {
		if slices.Contains(f.Actions, "Warn") {
			warned = append(warned, f.Problem)
		}
	}
	for _, w := range warned {
		require.Contains(t, all, w, about)
	}
	require.Equal(t, len(warned) > 0, said.Verdict == "warned", about)
	for _, w := range warnings {
		if ofPolicy.MatchString(w) || ofSpread.MatchString(w) {
			foretold := slices.ContainsFunc(warned, func(words string) bool { return strings.Contains(w, words) })
			require.True(t, foretold, "%q is not among what check says\n%s", w, about)
		}
	}
}

// ofPolicy and ofSpread are the warnings of which it is known that they are Tollgate's, and
// not of Kubernetes.
var (
	ofPolicy = regexp.MustCompile(`^\w+Policy/`)
	ofSpread = regexp.MustCompile(`^[\w.]*topologySpreadConstraints\[\d+\]: topologyKey \S+ counts `)
)

// result is what the program says of an object.
type result struct {
	Kind     string   `json:"kind"`
	Name     string   `json:"name"`
	Verdict  string   `json:"verdict"`
	Message  string   `json:"message"`
	Warnings []string `json:"warnings"`
	Findings []struct {
		Actions []string `json:"actions"`
		Policy  string   `json:"policy"`
		Problem string   `json:"problem"`
	} `json:"findings"`
}

// judged runs the program, and returns what it says by kind and name.
func judged(t *testing.T, who person, args ...string) map[string]result {
	t.Helper()
	args = append([]string{"check", "-o", "json", "--pods=false", "--as", who.name, "--as-group", strings.Join(append(who.groups, tenants), ",")}, args...)
	cmd := exec.CommandContext(t.Context(), programs.Plugin(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err, stderr.String())
	}
	var report struct {
		Results []result `json:"results"`
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &report), stderr.String())
	by := map[string]result{}
	for _, r := range report.Results {
		by[r.Kind+"/"+r.Name] = r
	}
	return by
}

// client creates objects as somebody.
type client struct {
	dynamic.Interface

	heard *warnings
}

func newClient(t *testing.T, who person) *client {
	t.Helper()
	c := &client{heard: &warnings{}}
	config := shared.As(who.name, append([]string{tenants}, who.groups...)...)
	config.WarningHandler = c.heard
	config.QPS = -1
	c.Interface = dynamicFor(t, config)
	return c
}

func dynamicFor(t *testing.T, config *rest.Config) dynamic.Interface {
	t.Helper()
	made, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return made
}

// create creates an object by a dry run; an error is a refusal.
func (c *client) create(t *testing.T, object *unstructured.Unstructured) (warned []string, refused error) {
	t.Helper()
	c.heard.take()
	_, err := c.of(object).Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		require.NoError(t, err, "%v", object)
	}
	return c.heard.take(), err
}

func (c *client) of(object *unstructured.Unstructured) dynamic.ResourceInterface {
	return resourceOf(c.Interface, object)
}

func resourceOf(c dynamic.Interface, object *unstructured.Unstructured) dynamic.ResourceInterface {
	gvr := object.GroupVersionKind().GroupVersion().WithResource(resources[object.GetKind()])
	if object.GetNamespace() == "" {
		return c.Resource(gvr)
	}
	return c.Resource(gvr).Namespace(object.GetNamespace())
}

// warnings keeps what the API server warns a client of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// sampled returns the policies in samples.
func sampled(t *testing.T, names []string) []*unstructured.Unstructured {
	t.Helper()
	var policies []*unstructured.Unstructured
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(programs.Root, "deploy", "samples", name))
		require.NoError(t, err)
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if strings.HasSuffix(object.GetKind(), "Policy") {
				policies = append(policies, object)
			}
		}
	}
	return policies
}

// enforce puts policies into force for the length of the test, and returns those that are: a
// random one may be one that is not valid.
func enforce(t *testing.T, policies []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	admin := dynamicFor(t, shared.RESTConfig())
	var created []*unstructured.Unstructured
	for _, policy := range policies {
		_, err := resourceOf(admin, policy).Create(t.Context(), policy, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			t.Logf("left out: %v", err)
			continue
		}
		require.NoError(t, err)
		created = append(created, policy)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, policy := range created {
			require.NoError(t, resourceOf(admin, policy).Delete(ctx, policy.GetName(), metav1.DeleteOptions{}))
		}
		waitInForce(t)
	})
	waitInForce(t)
	return created
}

// waitInForce returns when Tollgate judges by as many policies as there are.
func waitInForce(t *testing.T) {
	t.Helper()
	admin := dynamicFor(t, shared.RESTConfig())
	eventually(t, "Tollgate judges by the policies there are", func(ctx context.Context) error {
		for _, kind := range []string{"TolerationPolicy", "PlacementPolicy", "TaintPolicy", "GatePolicy", "EvictionPolicy"} {
			list, err := admin.Resource(schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: resources[kind]}).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			judged, err := policiesInForce(ctx, kind)
			if err != nil {
				return err
			}
			if judged != len(list.Items) {
				return fmt.Errorf("it judges by %d of %d of kind %s", judged, len(list.Items), kind)
			}
		}
		return nil
	})
}

// policiesInForce reads from Tollgate's metrics how many policies of a kind it judges by.
func policiesInForce(ctx context.Context, kind string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, tollgate.MetricsURL, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	sum, found := 0, false
	for line := range strings.SplitSeq(string(body), "\n") {
		labels, ok := strings.CutPrefix(line, "tollgate_policies{")
		if !ok || !strings.Contains(labels, `kind="`+kind+`"`) {
			continue
		}
		count, err := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
		if err != nil {
			return 0, fmt.Errorf("read metric %q: %w", line, err)
		}
		sum, found = sum+count, true
	}
	if !found {
		return 0, fmt.Errorf("no metric of %s", kind)
	}
	return sum, nil
}

func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// waitSettled returns when the nodes have the taints that they keep, and pods can be created.
func waitSettled(t *testing.T) {
	t.Helper()
	admin := dynamicFor(t, shared.RESTConfig())
	eventually(t, "nodes are ready and accounts are there", func(ctx context.Context) error {
		nodes, err := admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range nodes.Items {
			if text := fmt.Sprint(nodes.Items[i].Object["spec"]); strings.Contains(text, "not-ready") {
				return fmt.Errorf("node %s: %s", nodes.Items[i].GetName(), text)
			}
		}
		for _, namespace := range namespaces {
			if _, err := admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// dump writes what stands in the cluster that verdicts may hang on.
func dump(t *testing.T) string {
	t.Helper()
	out, err := install.Kubectl(t.Context(), shared, "get", "namespaces,nodes,runtimeclasses,priorityclasses,deviceclasses,clusterroles,clusterrolebindings", "-o", "yaml")
	require.NoError(t, err, string(out))
	templates, err := install.Kubectl(t.Context(), shared, "get", "resourceclaimtemplates,resourceclaims", "-A", "-o", "yaml")
	require.NoError(t, err, string(templates))
	return writeText(t, "dump.yaml", string(out)+"\n---\n"+string(templates))
}

func apply(t *testing.T, file string) {
	t.Helper()
	out, err := install.Kubectl(t.Context(), shared, "apply", "--validate=strict", "-f", file)
	require.NoError(t, err, string(out))
}

// write writes objects to a file.
func write(t *testing.T, name string, objects []*unstructured.Unstructured) string {
	t.Helper()
	var text strings.Builder
	for _, object := range objects {
		content, err := json.Marshal(object.Object)
		require.NoError(t, err)
		text.WriteString("---\n" + string(content) + "\n")
	}
	return writeText(t, name, text.String())
}

func writeText(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// The generator makes every kind that is named here.
func TestEveryKindIsGenerated(t *testing.T) {
	t.Parallel()
	g := &generator{Rand: rand.New(rand.NewPCG(1, 2))}
	kinds := map[string]bool{}
	for range 1000 {
		kinds[g.object().GetKind()] = true
		for _, policy := range g.policies() {
			kinds[policy.GetKind()] = true
		}
	}
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(resources)), func(kind string) bool { return kinds[kind] })
	require.Equal(t, []string{"EvictionPolicy", "GatePolicy"}, missing)
}
