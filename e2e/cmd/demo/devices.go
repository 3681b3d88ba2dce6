package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	research = "research"
	rule     = "devicetaintrule/replace-gpus"
	// conditions prints those of a rule, one a line.
	conditions = `jsonpath={range .status.conditions[*]}{.type}={.status} ({.reason}) {.message}{"\n"}{end}`
	// inProgress is the condition that the API documents for rules, and preview
	// that of Tollgate's own beside it.
	inProgress = "EvictionInProgress"
	preview    = "tollgate.dev/EvictionPreview"
)

// manifest is the path of a file of the story.
func (s *story) manifest(name string) string {
	return filepath.Join(s.root, "e2e", "cmd", "demo", "manifests", name)
}

// publish has three pods use a GPU each. Each pod is named as its claim.
func (s *story) publish(ctx context.Context) error {
	if err := s.departs.watch(ctx, s.client, research); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "-f", s.manifest("driver.yaml")},
		{"create", "namespace", research},
		{"apply", "-f", s.manifest("claims.yaml")},
	} {
		if _, err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	for _, name := range []string{"notebook", "training", "inference"} {
		if err := s.useDevice(ctx, name, name); err != nil {
			return err
		}
	}
	if _, err := s.kubectl(ctx, "wait", "-n", research, "--for=condition=Ready", "--timeout=60s", "pod", "--all"); err != nil {
		return err
	}
	out, err := s.kubectl(ctx, "get", "resourceclaims", "-n", research, "-o",
		"custom-columns=CLAIM:.metadata.name,DEVICE:.status.allocation.devices.results[*].device,USED BY:.status.reservedFor[*].name")
	if err != nil {
		return err
	}
	for _, device := range []string{"gpu-0", "gpu-1", "gpu-2"} {
		if !strings.Contains(out, device) {
			return fmt.Errorf("%s is not allocated", device)
		}
	}
	return nil
}

// useDevice runs a pod with a claim on a device.
func (s *story) useDevice(ctx context.Context, name, claim string) error {
	overrides := `{"spec":{"resourceClaims":[{"name":"device","resourceClaimName":"` + claim + `"}]}}`
	_, err := s.kubectl(ctx, "run", name, "-n", research, "--image=app", "--overrides="+overrides)
	return err
}

// previewRule shows what the rule would do if it had its effect.
func (s *story) previewRule(ctx context.Context) error {
	for _, args := range [][]string{
		{"apply", "-f", s.manifest("rule.yaml")},
		{"wait", "--for=condition=" + preview, "--timeout=30s", rule},
	} {
		if _, err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	out, err := s.kubectl(ctx, "get", rule, "-o", conditions)
	if err != nil {
		return err
	}
	for _, part := range []string{
		inProgress + "=False (NoEffect)", "3 published devices", "3 allocated devices", "2 pods", "research/notebook", "research/training",
	} {
		if !strings.Contains(out, part) {
			return fmt.Errorf("the conditions do not say %q", part)
		}
	}
	return s.stillThere(ctx, research, "notebook", "training", "inference")
}

// refuseLatecomer has the scheduler try to let one more pod use a claim.
func (s *story) refuseLatecomer(ctx context.Context) error {
	for _, args := range [][]string{
		{"patch", rule, "--type=merge", "-p", `{"spec":{"taint":{"effect":"NoSchedule"}}}`},
		// The condition is of this version of the rule once Tollgate has seen it.
		{"wait", "--for=condition=" + inProgress + "=false", "--timeout=30s", rule},
	} {
		if _, err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	if err := s.useDevice(ctx, "latecomer", "notebook"); err != nil {
		return err
	}
	event, err := s.refusal(ctx, "latecomer")
	if err != nil {
		return err
	}
	for _, line := range wrap("the scheduler says of latecomer: " + event) {
		s.say("%s", line)
	}
	for _, part := range []string{"replace-gpus", "ops.example.com/replace"} {
		if !strings.Contains(event, part) {
			return fmt.Errorf("the refusal does not name %s", part)
		}
	}
	return s.stillThere(ctx, research, "notebook", "training", "inference")
}

// refusal returns the event in which the scheduler says that Tollgate refused a pod.
func (s *story) refusal(ctx context.Context, pod string) (message string, err error) {
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 2*patience, true, func(ctx context.Context) (bool, error) {
		events, err := s.client.CoreV1().Events(research).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return false, fmt.Errorf("list events: %w", err)
		}
		for i := range events.Items {
			if message = events.Items[i].Message; strings.Contains(message, "tollgate.dev") {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return "", fmt.Errorf("wait for the refusal of pod %s: %w", pod, err)
	}
	return message, s.pending(ctx, pod)
}

func (s *story) pending(ctx context.Context, name string) error {
	pod, err := s.client.CoreV1().Pods(research).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get pod: %w", err)
	}
	if pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending {
		return fmt.Errorf("pod %s is on node %q in phase %s; it should be pending", name, pod.Spec.NodeName, pod.Status.Phase)
	}
	return nil
}

// execute gives the rule its effect.
func (s *story) execute(ctx context.Context) error {
	s.tainted = time.Now()
	if _, err := s.kubectl(ctx, "patch", rule, "--type=merge", "-p", `{"spec":{"taint":{"effect":"NoExecute"}}}`); err != nil {
		return err
	}
	left, err := s.departs.wait(ctx, "notebook", patience)
	if err != nil {
		return err
	}
	s.say("notebook left %.1f s after the patch", left.Sub(s.tainted).Seconds())
	return s.stillThere(ctx, research, "training", "inference")
}

// finish waits for the end of the evictions as anyone would.
func (s *story) finish(ctx context.Context) error {
	if _, err := s.kubectl(ctx, "wait", "--for=condition="+inProgress+"=false", "--timeout=60s", rule); err != nil {
		return err
	}
	left, gone, _ := s.departs.get("training")
	if !gone {
		return errors.New("kubectl wait returned and training is still there")
	}
	after := left.Sub(s.tainted)
	s.say("training left %.1f s after the patch", after.Seconds())
	if after < grace || after > grace+patience {
		return fmt.Errorf("it left after %s, not after %s", after, grace)
	}
	out, err := s.kubectl(ctx, "get", rule, "-o", conditions)
	if err != nil {
		return err
	}
	for _, part := range []string{inProgress + "=False (Completed)", "2 pods evicted"} {
		if !strings.Contains(out, part) {
			return fmt.Errorf("the conditions do not say %q", part)
		}
	}
	return s.stillThere(ctx, research, "inference")
}
