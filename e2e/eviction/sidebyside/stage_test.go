package sidebyside

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// interval is how often it is looked whether something has come about.
const interval = 100 * time.Millisecond

// taintKey is the taint that stories put on nodes and devices.
const taintKey = "faults.example.com/drain"

// The fates of a pod.
const (
	stays   = "stays"
	evicted = "is evicted"
)

// stage is where one story is played. After the first error nothing more is done, and
// the error is kept.
type stage struct {
	*plane

	ctx       context.Context //nolint:containedctx // A stage lives as long as one story is played.
	namespace string
	nodeNames map[string]string
	// began is when the story began for the evictor.
	began time.Time
	err   error
}

// newStage creates the namespace of a story.
func (p *plane) newStage(ctx context.Context, number int) *stage {
	s := &stage{plane: p, ctx: ctx, namespace: fmt.Sprintf("s%02d", number), nodeNames: map[string]string{}}
	s.do("create namespace", func() error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
		_, err := p.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		return err
	})
	s.eventually("service account", func() error {
		_, err := p.client.CoreV1().ServiceAccounts(s.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return s
}

func (s *stage) do(what string, act func() error) {
	if s.err != nil {
		return
	}
	if err := act(); err != nil {
		s.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (s *stage) eventually(what string, check func() error) {
	s.do("wait for "+what, func() error {
		last := errors.New("never looked")
		err := wait.PollUntilContextTimeout(s.ctx, interval, patience, true, func(context.Context) (bool, error) {
			last = check()
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("%w: %w", err, last)
		}
		return nil
	})
}

// begin notes that the story begins now.
func (s *stage) begin() { s.began = time.Now() }

// after waits until some time after the beginning.
func (s *stage) after(d time.Duration) { s.pause(time.Until(s.began.Add(d))) }

// pause waits for some time.
func (s *stage) pause(d time.Duration) {
	s.do("wait", func() error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	})
}

// node returns the full name of a node of the story.
func (s *stage) node(name string) string { return s.nodeNames[name] }

// nodes gives the story nodes.
func (s *stage) nodes(names ...string) {
	for _, name := range names {
		s.do("find node", func() (err error) {
			s.nodeNames[name], err = s.take()
			return err
		})
	}
}

// pod creates a pod on a node that tolerates the taint for some seconds, if any, and
// returns its UID. It needs no time to end.
func (s *stage) pod(name, node string, seconds ...int64) types.UID {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      s.node(node),
			Containers:                    []corev1.Container{{Name: "c", Image: "image"}},
			TerminationGracePeriodSeconds: new(int64(0)),
		},
	}
	for _, n := range seconds {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: taintKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &n,
		})
	}
	s.do("create pod", func() (err error) {
		pod, err = s.client.CoreV1().Pods(s.namespace).Create(s.ctx, pod, metav1.CreateOptions{})
		return err
	})
	if s.err != nil {
		return ""
	}
	return pod.UID
}

// waitRunning waits until kubelets, or who plays them, know of a pod.
func (s *stage) waitRunning(name string) {
	s.eventually("pod "+name, func() error {
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
}

// taint puts the taint on a node, with the time of now as a careful user gives it.
func (s *stage) taint(node string) {
	added := metav1.Now().Rfc3339Copy()
	s.setTaints(node, corev1.Taint{Key: taintKey, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added})
}

func (s *stage) setTaints(name string, taints ...corev1.Taint) {
	client := s.client.CoreV1().Nodes()
	s.do("taint node", func() error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			node, err := client.Get(s.ctx, s.node(name), metav1.GetOptions{})
			if err != nil {
				return err
			}
			node.Spec.Taints = taints
			_, err = client.Update(s.ctx, node, metav1.UpdateOptions{})
			return err
		})
	})
}

// tolerate changes for how long a pod tolerates the taint.
func (s *stage) tolerate(name string, seconds int64) {
	client := s.client.CoreV1().Pods(s.namespace)
	s.do("change toleration", func() error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			pod, err := client.Get(s.ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			pod.Spec.Tolerations[0].TolerationSeconds = &seconds
			_, err = client.Update(s.ctx, pod, metav1.UpdateOptions{})
			return err
		})
	})
}

// remove deletes a pod as a user does, at once.
func (s *stage) remove(name string) {
	s.do("delete pod", func() error {
		err := s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	s.waitGone(name, "")
}

// waitGone waits until a pod is there no more; any of the name, if the UID is empty.
func (s *stage) waitGone(name string, uid types.UID) {
	s.eventually("end of pod "+name, func() error {
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && uid != "" && pod.UID != uid:
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is there")
	})
}

// waitMarked waits until a pod is marked as one that is to be evicted: the request to
// delete it comes next.
func (s *stage) waitMarked(name string) {
	s.eventually("mark on pod "+name, func() error {
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it has none")
	})
}

// fate says what has become of a pod.
func (s *stage) fate(name string, uid types.UID) string {
	fate := stays
	s.do("get pod", func() error {
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && (pod.UID != uid || pod.DeletionTimestamp != nil):
			fate = evicted
			return nil
		default:
			return err
		}
	})
	return fate
}

// fateWithin says what has become of a pod as soon as it is evicted, and else when so much
// time has passed since the beginning.
func (s *stage) fateWithin(d time.Duration, name string, uid types.UID) string {
	for s.err == nil && time.Since(s.began) < d {
		if s.fate(name, uid) == evicted {
			return evicted
		}
		s.pause(interval)
	}
	return s.fate(name, uid)
}

// left is how many pods are in the namespace and not on their way out.
func (s *stage) left() int {
	count := 0
	s.do("list pods", func() error {
		list, err := s.client.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil {
				count++
			}
		}
		return nil
	})
	return count
}

// inParallel does something for each of some numbers.
func (s *stage) inParallel(what string, count int, act func(i int) error) {
	s.do(what, func() error {
		var group errgroup.Group
		group.SetLimit(16)
		for i := range count {
			group.Go(func() error { return act(i) })
		}
		return group.Wait()
	})
}
