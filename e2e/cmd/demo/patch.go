package main

import (
	"context"
	"errors"
	"strings"
)

// allocatePatched has a pod wait for a device with an attribute that no driver publishes,
// until a ResourceSlicePatch gives it to one.
func (s *story) allocatePatched(ctx context.Context) error {
	const pod, claim = "trainer", "fast-network"
	if _, err := s.kubectl(ctx, "apply", "-f", s.manifest("attribute.yaml")); err != nil {
		return err
	}
	if err := s.useDevice(ctx, pod, claim); err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, "wait", "-n", research, "--for=condition=PodScheduled=false", "--timeout=30s", "pod/"+pod); err != nil {
		return err
	}
	if err := s.pending(ctx, pod); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "-f", s.manifest("patch.yaml")},
		{"wait", "-n", research, "--for=condition=Ready", "--timeout=60s", "pod/" + pod},
	} {
		if _, err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	out, err := s.kubectl(ctx, "get", "resourceclaim", claim, "-n", research, "-o",
		"custom-columns=CLAIM:.metadata.name,DEVICE:.status.allocation.devices.results[*].device,USED BY:.status.reservedFor[*].name")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "nic-1") {
		return errors.New("the pod did not get nic-1, which the patch selects")
	}
	return nil
}
