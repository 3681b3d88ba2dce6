package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// user is who the evictor is to the API server.
func (e evictor) user(devices bool) string {
	switch {
	case e == tollgate:
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
	case tollgate:
		return install.Name
	case builtin:
		return controlplane.ControllerManager
	case loop32, loop64:
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
		r.evictAll, err = s.newLoop(ctx, n)
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
		return errors.Join(installed.Terminate(ctx), s.unregister(ctx))
	}
	return r, nil
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
