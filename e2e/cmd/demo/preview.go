package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// foretold is what the taint of the story does to the pods on its node.
const foretold = "evicts 2 pods in 1 namespace: 1 now, 1 within 10s"

// foretell asks what the taint would do, and taints nothing.
func (s *story) foretell(ctx context.Context) error {
	out, err := s.kubectl(ctx, "taint", "node", node, taintKey+"=:NoExecute", "--dry-run=server")
	if err != nil {
		return err
	}
	if !strings.Contains(out, foretold) {
		return fmt.Errorf("nobody was warned that it %s", foretold)
	}
	return s.stillThere(ctx, "banana", "stays", "leaves-after-10s", "leaves-at-once")
}

// limit has a policy refuse the taint, and an approval allow it.
func (s *story) limit(ctx context.Context) error {
	for _, args := range [][]string{
		{"apply", "-f", s.manifest("limit.yaml")},
		{"wait", "--for=condition=Ready", "--timeout=30s", "taintpolicy/one-at-a-time"},
	} {
		if _, err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	out, err := s.kubectl(ctx, "taint", "node", node, taintKey+"=:NoExecute")
	if err == nil {
		return errors.New("the taint was set")
	}
	for _, part := range []string{"TaintPolicy/one-at-a-time", "2 pods", "EvictionApproval"} {
		if !strings.Contains(out, part) {
			return fmt.Errorf("the refusal does not name %s", part)
		}
	}
	for _, args := range [][]string{
		{"apply", "-f", s.manifest("approval.yaml")},
		{"wait", "--for=condition=Ready", "--timeout=30s", "evictionapproval/node-1-maintenance"},
	} {
		if _, err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}
