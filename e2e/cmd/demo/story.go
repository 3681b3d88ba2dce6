package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

const (
	node     = "node-1"
	taintKey = "dedicated.example.com/maintenance"
	// grace is how long the patient pod tolerates the taint.
	grace = 10 * time.Second
	// patience is how late an eviction may be on a small, busy machine.
	patience = 5 * time.Second
	// leaseTime is how long a Tollgate that is started again waits for the lease
	// of one that was killed.
	leaseTime = 5 * time.Second
)

// shortLease configures Tollgate so that the story does not wait long for a
// killed leader.
func shortLease(config map[string]any) {
	config["leaderElection"] = map[string]any{
		"leaseDuration": leaseTime.String(), "renewDeadline": "2s", "retryPeriod": "500ms",
	}
}

// story tells what Tollgate does and checks each sentence.
type story struct {
	out      io.Writer
	cp       *controlplane.ControlPlane
	tollgate *install.Tollgate
	client   kubernetes.Interface
	programs binaries.Binaries
	root     string

	steps   int
	departs *departures
	// tainted is the moment before the last taint was written.
	tainted time.Time
}

func newStory(out io.Writer, cp *controlplane.ControlPlane, tollgate *install.Tollgate, programs binaries.Binaries) (*story, error) {
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &story{out: out, cp: cp, tollgate: tollgate, client: client, programs: programs, root: programs.Root, departs: newDepartures()}, nil
}

// tell goes through the story and stops at the first thing that is not so.
func (s *story) tell(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, step := range []struct {
		title string
		tell  func(context.Context) error
	}{
		{"Nodes join", s.nodesJoin},
		{"A policy: only the teams that paid may tolerate dedicated.example.com/*", s.applyPolicy},
		{"Team apple tries a wildcard toleration and is refused", s.refuse},
		{"Team banana may, and its pods run", s.run},
		{"What a taint would do is told before it is done", s.foretell},
		{"A limit of one pod refuses it; with an approval it may be set, once", s.limit},
		{"The node is tainted NoExecute; the taint gets the time from which it counts", s.taint},
		{"Who does not tolerate it leaves at once", s.leaveAtOnce},
		{"Tollgate is killed and started again, while a pod has seconds left", s.restart},
		{"The pod with 10 s leaves after 10 s, not later because of the restart", s.leaveOnTime},
		{"A driver publishes the GPUs of node-2, and the scheduler gives three pods one each", s.publish},
		{"A rule taints them, for now with no effect, and says what NoExecute would do", s.previewRule},
		{"NoSchedule: who runs goes on, but nobody joins a claim on a tainted device", s.refuseLatecomer},
		{"NoExecute: who does not tolerate it leaves at once", s.execute},
		{"The pod with 10 s leaves after 10 s, and who waits for the end is told", s.finish},
		{"A pod asks for an attribute that no driver publishes; a ResourceSlicePatch adds it, and the scheduler allocates the device", s.allocatePatched},
		{"A spread constraint counts a tainted node, and a pod waits: explained, and mended by a PlacementPolicy", s.spread},
		{"Prometheus sees it all", s.metrics},
	} {
		s.steps++
		_, _ = fmt.Fprintf(s.out, "\n%d. %s\n", s.steps, step.title)
		if err := step.tell(ctx); err != nil {
			return fmt.Errorf("step %d: %w", s.steps, err)
		}
	}
	_, _ = fmt.Fprintln(s.out)
	return nil
}

func (s *story) nodesJoin(ctx context.Context) error {
	out, err := s.kubectl(ctx, "get", "nodes")
	if err != nil {
		return err
	}
	if got := strings.Count(out, " Ready "); got != controlplane.DefaultNodes {
		return fmt.Errorf("%d nodes are Ready, want %d", got, controlplane.DefaultNodes)
	}
	return nil
}

func (s *story) applyPolicy(ctx context.Context) error {
	for _, args := range [][]string{
		{"apply", "-f", filepath.Join(s.root, "deploy", "samples", "tolerationpolicy.yaml")},
		{"wait", "--for=condition=Ready", "--timeout=30s", "tolerationpolicy/dedicated"},
		{"create", "namespace", "apple"},
		{"create", "namespace", "banana"},
	} {
		if _, err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) refuse(ctx context.Context) error {
	out, err := s.kubectl(ctx, "run", "sneaky", "-n", "apple", "--image=app",
		`--overrides={"spec":{"tolerations":[{"operator":"Exists"}]}}`)
	if err == nil {
		return errors.New("the pod was created")
	}
	for _, part := range []string{"TolerationPolicy/dedicated", "spec.tolerations[0]", "banana"} {
		if !strings.Contains(out, part) {
			return fmt.Errorf("the refusal does not name %s", part)
		}
	}
	return nil
}

// run creates the three pods of the story on one node.
func (s *story) run(ctx context.Context) error {
	if err := s.departs.watch(ctx, s.client, "banana"); err != nil {
		return err
	}
	pods := []struct{ name, toleration string }{
		{"stays", `{"key":"` + taintKey + `","operator":"Exists","effect":"NoExecute"}`},
		{"leaves-after-10s", `{"key":"` + taintKey + `","operator":"Exists","effect":"NoExecute","tolerationSeconds":10}`},
		{"leaves-at-once", `{"key":"another","operator":"Exists"}`},
	}
	for _, pod := range pods {
		overrides := `{"spec":{"nodeSelector":{"kubernetes.io/hostname":"` + node + `"},"tolerations":[` + pod.toleration + `]}}`
		if _, err := s.kubectl(ctx, "run", pod.name, "-n", "banana", "--image=app", "--overrides="+overrides); err != nil {
			return err
		}
	}
	if _, err := s.kubectl(ctx, "wait", "-n", "banana", "--for=condition=Ready", "--timeout=60s", "pod", "--all"); err != nil {
		return err
	}
	_, err := s.kubectl(ctx, "get", "pods", "-n", "banana", "-o", "wide")
	return err
}

func (s *story) taint(ctx context.Context) error {
	s.tainted = time.Now()
	if _, err := s.kubectl(ctx, "taint", "node", node, taintKey+"=:NoExecute"); err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, "get", "node", node, "-o", "jsonpath={.spec.taints}"); err != nil {
		return err
	}
	object, err := s.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	for _, taint := range object.Spec.Taints {
		if taint.Key != taintKey {
			continue
		}
		if taint.TimeAdded == nil || time.Since(taint.TimeAdded.Time).Abs() > patience {
			return fmt.Errorf("timeAdded is %v", taint.TimeAdded)
		}
		return nil
	}
	return errors.New("the node has no such taint")
}

func (s *story) leaveAtOnce(ctx context.Context) error {
	left, err := s.departs.wait(ctx, "leaves-at-once", patience)
	if err != nil {
		return err
	}
	s.say("leaves-at-once left %.1f s after the taint", left.Sub(s.tainted).Seconds())
	return s.stillThere(ctx, "banana", "stays", "leaves-after-10s")
}

func (s *story) restart(ctx context.Context) error {
	if err := s.tollgate.Kill(ctx); err != nil {
		return fmt.Errorf("kill Tollgate: %w", err)
	}
	s.say("kill -9; %.1f s after the taint nobody counts", time.Since(s.tainted).Seconds())
	if err := s.tollgate.Start(ctx); err != nil {
		return fmt.Errorf("start Tollgate: %w", err)
	}
	s.say("started again %.1f s after the taint", time.Since(s.tainted).Seconds())
	return nil
}

func (s *story) leaveOnTime(ctx context.Context) error {
	left, err := s.departs.wait(ctx, "leaves-after-10s", grace+leaseTime+patience)
	if err != nil {
		return err
	}
	after := left.Sub(s.tainted)
	s.say("leaves-after-10s left %.1f s after the taint", after.Seconds())
	if after < grace {
		return fmt.Errorf("it left after %s, too early", after)
	}
	return s.stillThere(ctx, "banana", "stays")
}

// stillThere checks that pods are there and not on their way out.
func (s *story) stillThere(ctx context.Context, namespace string, names ...string) error {
	for _, name := range names {
		pod, err := s.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get pod: %w", err)
		}
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is in phase %s, deletion %v; it should run", name, pod.Status.Phase, pod.DeletionTimestamp)
		}
		s.say("%s is still there", name)
	}
	return nil
}
