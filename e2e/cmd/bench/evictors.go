package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// user is who the evictor is to the API server.
func (e evictor) user(devices bool) string {
	switch {
	case e == tollgate, e == byEvictionAPI, e == whileTerminating:
		return tollgateUser
	case e.atATime() > 0:
		return loopUser
	case devices:
		return builtinDeviceUser
	}
	return builtinNodeUser
}

// process is the name of the process that evicts, empty for this program.
func (e evictor) process() string {
	switch e {
	case tollgate, byEvictionAPI, whileTerminating:
		return install.Name
	case builtin:
		return controlplane.ControllerManager
	case loop32, loop64, evictions64, deletions64:
	}
	return ""
}

// started is an evictor that was started.
type started struct {
	// stop ends it.
	stop func(context.Context) error
	// evictAll evicts all pods that leave, if the evictor is a loop.
	evictAll func(context.Context) error
	// metricsURL is where Tollgate's metrics are.
	metricsURL string
}

// start starts the evictor and sees to it that no other one runs.
func (s *stage) start(ctx context.Context, who evictor, limit int) (started, error) {
	r := started{stop: func(context.Context) error { return nil }}
	var args []string
	if limit > 0 {
		args = append(args, "--kube-api-qps="+strconv.Itoa(limit), "--kube-api-burst="+strconv.Itoa(limit))
	}
	if who != builtin {
		args = append(args, "--controllers=*,-taint-eviction-controller,-device-taint-eviction-controller")
	}
	if err := s.cp.RestartWith(ctx, controlplane.ControllerManager, args...); err != nil {
		return r, err
	}
	if n := who.atATime(); n > 0 {
		var err error
		r.evictAll, err = s.newLoop(ctx, n, who.mark())
		return r, err
	}
	if who == builtin {
		return r, nil
	}
	installed, err := install.Install(ctx, s.cp, install.Options{Programs: s.programs, Patch: func(config map[string]any) {
		if limit > 0 {
			config["clientConnection"] = map[string]any{"qps": limit, "burst": limit}
		}
		if s.workers > 0 {
			config["eviction"] = map[string]any{"workers": s.workers}
		}
	}})
	if err != nil {
		return r, err
	}
	r.metricsURL = installed.MetricsURL
	r.stop = func(ctx context.Context) error {
		return errors.Join(s.dropPolicy(ctx), installed.Terminate(ctx), s.unregister(ctx))
	}
	if mark := who.mark(); mark != v1alpha1.EvictionMarkBefore {
		return r, s.markBy(ctx, mark)
	}
	return r, nil
}

// policyName is the name of the EvictionPolicy that says how pods are marked.
const policyName = "bench-marks"

// markBy creates an EvictionPolicy with a mark, and returns when Tollgate evicts by it.
func (s *stage) markBy(ctx context.Context, mark v1alpha1.EvictionMark) error {
	policy := &v1alpha1.EvictionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policyName},
		Spec:       v1alpha1.EvictionPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: taintKey}}, Mark: mark},
	}
	if err := s.objects.Create(ctx, policy); err != nil {
		return fmt.Errorf("create EvictionPolicy: %w", err)
	}
	return poll(ctx, "the EvictionPolicy to be in force", func(ctx context.Context) (bool, error) {
		if err := s.objects.Get(ctx, types.NamespacedName{Name: policyName}, policy); err != nil {
			return false, fmt.Errorf("get EvictionPolicy: %w", err)
		}
		return meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ConditionReady), nil
	})
}

func (s *stage) dropPolicy(ctx context.Context) error {
	err := s.objects.Delete(ctx, &v1alpha1.EvictionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete EvictionPolicy: %w", err)
	}
	return nil
}

// unregister takes the webhooks away, which would else be called in vain.
func (s *stage) unregister(ctx context.Context) error {
	registrations := s.client.AdmissionregistrationV1()
	err := errors.Join(
		registrations.MutatingWebhookConfigurations().Delete(ctx, install.Name, metav1.DeleteOptions{}),
		registrations.ValidatingWebhookConfigurations().Delete(ctx, install.Name, metav1.DeleteOptions{}),
	)
	if err != nil {
		return fmt.Errorf("unregister webhooks: %w", err)
	}
	return nil
}
