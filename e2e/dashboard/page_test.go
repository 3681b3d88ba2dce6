package dashboard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// kubectl runs kubectl as the administrator.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := install.Kubectl(t.Context(), shared, args...)
	require.NoError(t, err, string(out))
	return string(out)
}

// gone deletes pods at once, so that the next test begins without them.
func gone(t *testing.T, of ...string) {
	t.Helper()
	out, err := install.Kubectl(context.WithoutCancel(t.Context()), shared, append([]string{"delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false"}, of...)...)
	require.NoError(t, err, string(out))
}

// waitRefused waits until the API server refuses to evict the pod stuck: an admission policy takes a
// while to come into force.
func waitRefused(t *testing.T) {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	eventually(t, "a refusal", func(ctx context.Context) error {
		err := client.PolicyV1().Evictions("shop").Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: "stuck", Namespace: "shop"}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
		if err == nil || !strings.Contains(err.Error(), "hostile") {
			return fmt.Errorf("the answer is: %v", err) //nolint:errorlint // It may be none.
		}
		return nil
	})
}

// The steps follow each other: what one does to the cluster, the next one sees.
func TestThePage(t *testing.T) {
	kubectl(t, "apply", "-f", "testdata/pods.yaml")
	t.Cleanup(func() { gone(t, "-A") })
	kubectl(t, "wait", "-A", "--for=jsonpath={.status.phase}=Running", "--timeout=2m", "pods", "--all")
	kubectl(t, "apply", "-f", "testdata/policies.yaml")
	kubectl(t, "wait", "--for=condition=Ready", "--timeout=2m", "evictionpolicies", "--all")
	waitRefused(t)
	kubectl(t, "taint", "node", "node-2", "dashboard.example.com/reserved:NoSchedule")
	kubectl(t, "taint", "node", "node-3", "dashboard.example.com/old:PreferNoSchedule")
	kubectl(t, "taint", "node", "node-4", "dashboard.example.com/hot:NoExecute")
	kubectl(t, "taint", "node", "node-5", "dashboard.example.com/refused:NoExecute")
	kubectl(t, "taint", "node", "node-1", "dashboard.example.com/broken=disk:NoExecute")
	address := serve(t)
	p := open(t, address)
	for _, step := range []struct {
		sentence string
		test     func(t *testing.T, p *page, address string)
	}{
		{"shows what happens, by role", showsWhatHappens},
		{"text of the cluster stays text", staysText},
		{"has no violation that axe finds", hasNoViolation},
		{"has its picture taken", pictured},
		{"is for the holder of the token alone", isForTheHolder},
		{"works by keyboard", worksByKeyboard},
	} {
		require.True(t, t.Run(step.sentence, func(t *testing.T) { step.test(t, p, address) }))
	}
}

func showsWhatHappens(t *testing.T, p *page, _ string) {
	t.Helper()
	p.waitText(t, "#taints", "node/node-1")
	p.waitText(t, "#policies", "tripped")
	p.waitText(t, "#pods", "refused: ")
	p.waitText(t, "#summary", "mode Replace, led by ")
	p.waitText(t, "#summary", "1 Blocked, 4 Held, 2 Paused")
	p.waitText(t, "#next", "Next: shop/cache-0 in ")
	roles := p.roles(t)
	for _, want := range []string{
		"heading Tollgate", "heading Needs attention", "heading Nodes", "heading Devices", "heading What taints have done", "heading Evictions",
		"heading EvictionPolicies", "heading PodDisruptionBudgets of these pods", "listbox Nodes", "listbox Devices",
		"option node-1: dashboard.example.com/broken=disk:NoExecute; 4 pods to leave", "option node-2: dashboard.example.com/reserved:NoSchedule",
		"option node-7: no taint", "option gpu.example.com/node-6/gpu-2: example.com/warm:None", "columnheader Reason",
		"button Explain pod shop/cache-0", "button Pause all evictions", "button Release default", "button Approve node node-1",
		"button Resume training", "button Pause default", "searchbox Filter by text (/)",
	} {
		require.Contains(t, roles, want, strings.Join(roles, "\n"))
	}
	require.NotContains(t, roles, "button Resume all evictions")
	require.Contains(t, p.text(t, "#budgets"), "shopcache")
	require.Contains(t, p.text(t, "#attention"), "EvictionPolicy/training is paused: kubectl tollgate resume policy training")
}

func staysText(t *testing.T, p *page, _ string) {
	t.Helper()
	require.Contains(t, p.text(t, "#pods"), `<img src=x onerror="document.title='hostile'"> no`)
	require.Zero(t, evaluate[int](t, p, `document.images.length`))
	require.True(t, strings.HasPrefix(evaluate[string](t, p, `document.title`), "Tollgate: "))
	p.do(t, chromedp.Navigate("about:blank"))
	p.do(t, chromedp.NavigateBack())
	p.waitText(t, "#pods", "<img src=x")
}

func hasNoViolation(t *testing.T, p *page, _ string) {
	t.Helper()
	script, err := os.ReadFile(axe)
	require.NoError(t, err)
	evaluate[int](t, p, string(script)+"; 1")
	look := func(what string) {
		found := evaluate[[]string](t, p, `axe.run({resultTypes: ["violations"]}).then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html).join(" ")))`)
		require.Empty(t, found, what)
	}
	for _, scheme := range []string{"light", "dark"} {
		p.colours(t, scheme)
		look(scheme)
		p.do(t, chromedp.Click(chromedp.CSS(`[aria-label="Release default"]`)))
		p.waitText(t, "#working", "This is the effect")
		look(scheme + " with a command")
		p.do(t, chromedp.Click(chromedp.CSS("#close")))
	}
	p.colours(t, "light")
}

func pictured(t *testing.T, p *page, _ string) {
	t.Helper()
	folder := os.Getenv("TOLLGATE_PICTURES")
	if folder == "" {
		folder = t.TempDir()
	}
	take := func(name string) {
		picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), picture, 0o600))
	}
	take("dashboard.png")
	p.colours(t, "dark")
	take("dashboard-dark.png")
	p.colours(t, "light")
}

// isForTheHolder acts as a second user of the machine, who sees the command lines of all processes.
func isForTheHolder(t *testing.T, _ *page, address string) {
	t.Helper()
	token := strings.Split(address, "/")[3]
	require.GreaterOrEqual(t, len(token), 26, "128 bits and more")
	origin := strings.TrimSuffix(address, token+"/")
	for _, path := range []string{"", "events", "script.js", "run", "x/events"} {
		response, err := http.Get(origin + path)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusNotFound, response.StatusCode, path)
		require.NotContains(t, string(body), "node-1")
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	require.NotEmpty(t, lines)
	for _, file := range lines {
		line, _ := os.ReadFile(file) // A process that has ended has none.
		require.NotContains(t, string(line), token)
	}
}

func worksByKeyboard(t *testing.T, p *page, _ string) {
	t.Helper()
	all := p.text(t, "#count")
	p.press(t, "/")
	p.press(t, "CACHE shop")
	p.waitText(t, "#count", "3 of ")
	require.NotContains(t, p.text(t, "#pods"), "stuck")
	p.do(t, chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	p.press(t, kb.Delete)
	p.waitText(t, "#count", all)

	confirm := func(button, effect, command string) {
		p.tab(t, button)
		p.press(t, kb.Enter)
		p.waitText(t, "#output", effect)
		require.Contains(t, p.text(t, "#command"), command)
		p.waitText(t, "#working", "This is the effect")
		p.tab(t, "Run")
		p.press(t, kb.Enter)
		p.waitText(t, "#working", "Done")
		p.press(t, kb.Escape)
	}
	stopped := func() string {
		return kubectl(t, "get", "evictionpolicies", "stop-evictions", "--ignore-not-found", "-o", "name")
	}
	confirm("Pause all evictions", "created, all evictions are paused", "kubectl tollgate pause all")
	require.NotEmpty(t, stopped())
	p.waitRole(t, "button Resume all evictions")
	confirm("Resume all evictions", "deleted, evictions go on", "kubectl tollgate resume all --yes")
	require.Empty(t, stopped())
	p.waitRole(t, "button Pause all evictions")
	confirm("Pause default", "paused", "kubectl tollgate pause policy default")
	p.waitRole(t, "button Resume default")
	confirm("Resume default", "resumed", "kubectl tollgate resume policy default --yes")
	p.waitRole(t, "button Release default")

	p.tab(t, "Approve node node-1")
	p.press(t, kb.Enter)
	p.waitText(t, "#working", "This is the effect")
	p.press(t, kb.Escape)
	require.Empty(t, kubectl(t, "get", "evictionapprovals", "-o", "name"), "nothing was confirmed")
	confirm("Release default", "created", "kubectl tollgate release default --pods=4 --yes")
	eventually(t, "the held pods leave", func(ctx context.Context) error {
		out, err := install.Kubectl(ctx, shared, "get", "pods", "-n", "shop", "-l", "app=web", "-o", "name")
		if err == nil && len(out) > 0 {
			err = fmt.Errorf("there are %s", out)
		}
		return err
	})
	eventually(t, "the page shows it", func(context.Context) error {
		if text := p.text(t, "#pods"); strings.Contains(text, "web-") {
			return fmt.Errorf("the list is %s", text)
		}
		return nil
	})

	p.tab(t, "Explain pod shop/cache-0")
	p.press(t, kb.Enter)
	p.waitText(t, "#output", "cache-0")
	p.press(t, kb.Escape)
	p.tab(t, "Devices")
	p.press(t, kb.ArrowRight)
	p.press(t, kb.Enter)
	p.waitText(t, "#output", "gpu-1")
	p.press(t, kb.Escape)
	p.tab(t, "Nodes")
	p.press(t, kb.End+kb.Home+kb.ArrowRight)
	p.press(t, kb.Enter)
	p.waitText(t, "#output", "node-2")
	p.press(t, kb.Escape)
	require.Equal(t, "node-2", evaluate[string](t, p, `document.getElementById("filter").value`))
}

// A second window of the same user follows too, and an interrupt ends the command while pages are open.
func TestAnInterruptEndsTheCommand(t *testing.T) {
	address := serve(t)
	first, second := open(t, address), open(t, address)
	first.waitText(t, "#summary", "mode Replace")
	second.waitText(t, "#summary", "mode Replace")
}

func TestAnOccupiedPortIsAnError(t *testing.T) {
	address := serve(t)
	_, port, _ := strings.Cut(strings.Split(address, "/")[2], ":")
	cmd := exec.CommandContext(t.Context(), programs.Plugin(), "dashboard", "--port", port)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig())
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "listen: listen tcp 127.0.0.1:"+port+": bind: address already in use")
}
