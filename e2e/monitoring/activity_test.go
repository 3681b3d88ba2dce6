package monitoring

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// The taints that make something happen, each on a node of its own.
const (
	plainKey   = "plain.example.com"
	breakerKey = "breaker.example.com"
	budgetKey  = "budget.example.com"
)

// makeActivity has Tollgate do some of all that it does, so that there is something to see.
func (c *cluster) makeActivity(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	name, err := c.CreateNamespace(ctx, "monitoring-")
	if err != nil {
		return err
	}
	if err := c.apply(ctx, filepath.Join("testdata", "activity.yaml")); err != nil {
		return err
	}
	for i, key := range []string{plainKey, breakerKey, budgetKey} {
		if err := taintUnder(ctx, client, name, controlplane.NodeName(i+1), key); err != nil {
			return err
		}
	}
	if err := c.again(ctx, client, name); err != nil {
		return err
	}
	return errors.Join(refusedToleration(ctx, client, name), badUpdate(ctx, client, name), c.strayRequest(ctx))
}

// again has a pod evicted and a taint previewed once more, after Prometheus has seen the first: a
// rate knows nothing of what a counter began with.
func (c *cluster) again(ctx context.Context, client kubernetes.Interface, namespace string) error {
	if err := poll(ctx, "the first evictions are scraped", func(ctx context.Context) error {
		evicted, err := scraper.total(ctx, c.evictedPods())
		if err == nil && evicted < 4 {
			err = fmt.Errorf("%v evicted", evicted)
		}
		return err
	}); err != nil {
		return err
	}
	pod := newPod("again")
	pod.Spec.NodeName = controlplane.NodeName(1)
	if err := create(ctx, client, namespace, pod); err != nil {
		return err
	}
	return taint(ctx, client, controlplane.NodeName(4), plainKey, metav1.DryRunAll)
}

// keepSpreading has the scheduler spread a pod again and again until stop is called, because a
// rate is of what goes on, and the scheduler measures its plugins for one pod in ten.
func (c *cluster) keepSpreading(ctx context.Context) (stop func(), err error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	namespace, err := c.CreateNamespace(ctx, "spread-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var spreading sync.WaitGroup
	spreading.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			// One that could not be created is one less.
			_, _ = client.CoreV1().Pods(namespace).Create(ctx, spreadPod(i), metav1.CreateOptions{})
			if i >= most {
				_ = client.CoreV1().Pods(namespace).Delete(ctx, spreadPod(i-most).Name, metav1.DeleteOptions{})
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return func() { cancel(); spreading.Wait() }, nil
}

// most is how many of the pods that are spread are there at one time.
const most = 50

// spreadPod returns a pod that tolerates what evicts others.
func spreadPod(i int) *corev1.Pod {
	pod := newPod("spread-" + strconv.Itoa(i))
	pod.Labels = map[string]string{"app": "spread"}
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
	}}
	for _, key := range []string{plainKey, breakerKey, budgetKey} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return pod
}

// taintUnder puts a taint on a node with three pods; under budgetKey a budget keeps them.
func taintUnder(ctx context.Context, client kubernetes.Interface, namespace, node, key string) error {
	if key == budgetKey {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"key": key}},
		}}
		if _, err := client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, budget, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create budget: %w", err)
		}
	}
	for i := range 3 {
		pod := newPod(node + "-" + strconv.Itoa(i))
		pod.Labels, pod.Spec.NodeName = map[string]string{"key": key}, node
		if err := create(ctx, client, namespace, pod); err != nil {
			return err
		}
	}
	return taint(ctx, client, node, key)
}

func taint(ctx context.Context, client kubernetes.Interface, node, key string, dryRun ...string) error {
	patch := `{"spec":{"taints":[{"key":"` + key + `","effect":"NoExecute"}]}}`
	_, err := client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun})
	if err != nil {
		return fmt.Errorf("taint node %s: %w", node, err)
	}
	return nil
}

// refusedToleration asks for a toleration that nobody is granted, until it is refused: the
// policy is in force a moment after it was created.
func refusedToleration(ctx context.Context, client kubernetes.Interface, namespace string) error {
	pod := newPod("refused")
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "guarded.example.com", Operator: corev1.TolerationOpExists}}
	return poll(ctx, "a toleration is refused", func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return errors.New("it was let through")
		case apierrors.IsForbidden(err):
			return nil
		}
		return fmt.Errorf("create pod: %w", err)
	})
}

// badUpdate sends an update of a pod that is answered 400: its name is not that of the path.
func badUpdate(ctx context.Context, client kubernetes.Interface, namespace string) error {
	err := client.CoreV1().RESTClient().Put().Namespace(namespace).Resource("pods").Name("one").
		Body(newPod("another")).Do(ctx).Error()
	if !apierrors.IsBadRequest(err) {
		return fmt.Errorf("an update of a pod under another name is answered %w", err)
	}
	return nil
}

// strayRequest sends the webhook what is no review.
func (c *cluster) strayRequest(ctx context.Context) error {
	status, _, err := ask(ctx, c.tollgate.WebhookURL+"/validate", "")
	if err == nil && status != http.StatusMethodNotAllowed {
		err = fmt.Errorf("the webhook answers a GET with %d", status)
	}
	return err
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}
}

func create(ctx context.Context, client kubernetes.Interface, namespace string, pod *corev1.Pod) error {
	if _, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return nil
}

// insecure does not ask who answers: what is asked is not secret, and the certificate is
// looked at by Prometheus.
var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
