package dashboard

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

const (
	scaleKey   = "dashboard.example.com/scale"
	podsOfNode = 100
	// mostRows is the number of rows that the page shows at once.
	mostRows = 100
)

// The page draws the first rows alone, however many pods have to leave. With
// TOLLGATE_DASHBOARD_PODS=10000 the test logs what docs/benchmarks.md says of the page.
func TestManyPods(t *testing.T) {
	pods := 300
	if text := os.Getenv("TOLLGATE_DASHBOARD_PODS"); text != "" {
		var err error
		pods, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	namespace, err := shared.CreateNamespace(t.Context(), "scale-")
	require.NoError(t, err)
	var names []string
	for i := range (pods + podsOfNode - 1) / podsOfNode {
		names = append(names, controlplane.NodeName(nodes+1+i))
	}
	require.NoError(t, shared.AddNodes(t.Context(), names...))
	group, ctx := errgroup.WithContext(t.Context())
	const atOnce, seconds = 16, 3600
	group.SetLimit(atOnce)
	for i := range pods {
		group.Go(func() error {
			_, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)},
				Spec: corev1.PodSpec{
					NodeName: names[i/podsOfNode], Containers: []corev1.Container{{Name: "app", Image: "app"}},
					Tolerations: []corev1.Toleration{{Key: scaleKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(seconds + i))}},
				},
			}, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, group.Wait())
	for _, name := range names {
		kubectl(t, "taint", "node", name, scaleKey+":NoExecute")
	}
	t.Cleanup(func() { gone(t, "-n", namespace) })
	p := open(t, serve(t))
	p.waitText(t, "#count", fmt.Sprintf("%d pods", pods))
	evaluate[int](t, p, `(globalThis.tasks = [], new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration))).observe({type: "longtask", buffered: true}), 1)`)
	require.Equal(t, mostRows, evaluate[int](t, p, `document.querySelectorAll("#pods tr").length`))

	// Typing, and changes of the cluster meanwhile.
	typed := evaluate[float64](t, p, `(async () => {
		const begin = performance.now(), box = document.getElementById("filter");
		box.value = "pod-29";
		box.dispatchEvent(new Event("input"));
		await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
		return performance.now() - begin;
	})()`)
	require.Contains(t, p.text(t, "#pods"), "pod-29")
	require.LessOrEqual(t, evaluate[int](t, p, `document.querySelectorAll("#pods tr").length`), mostRows)
	const changes = 50
	for i := range changes {
		require.NoError(t, client.CoreV1().Pods(namespace).Delete(t.Context(), fmt.Sprintf("pod-%d", i), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	evaluate[int](t, p, `(document.getElementById("filter").value = "", document.getElementById("filter").dispatchEvent(new Event("input")), 1)`)
	p.waitText(t, "#count", fmt.Sprintf("%d pods", pods-changes))
	p.do(t, chromedp.Click(chromedp.CSS("#more")))
	require.Equal(t, 2*mostRows, evaluate[int](t, p, `document.querySelectorAll("#pods tr").length`))

	tasks := evaluate[[]float64](t, p, `tasks`)
	longest := 0.0
	for _, task := range tasks {
		longest = max(longest, task)
	}
	heap := evaluate[float64](t, p, `performance.memory.usedJSHeapSize`) / (1 << 20)
	text, err := json.Marshal(tasks)
	require.NoError(t, err)
	t.Logf("%d pods: a filter is drawn after %.0f ms; tasks above 50 ms: %s, the longest %.0f ms; heap of the page %.0f MiB; command %s",
		pods, typed, text, longest, heap, memoryOf(t))
}

// memoryOf returns the most memory that the command had.
func memoryOf(t *testing.T) string {
	t.Helper()
	files, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, file := range files {
		line, _ := os.ReadFile("/proc/" + file.Name() + "/cmdline") // Not all files are processes.
		if !strings.HasPrefix(string(line), programs.Plugin()+"\x00dashboard") {
			continue
		}
		status, err := os.ReadFile("/proc/" + file.Name() + "/status")
		require.NoError(t, err)
		for line := range strings.Lines(string(status)) {
			if peak, found := strings.CutPrefix(line, "VmHWM:"); found {
				return strings.TrimSpace(peak)
			}
		}
	}
	require.Fail(t, "the command does not run")
	return ""
}
