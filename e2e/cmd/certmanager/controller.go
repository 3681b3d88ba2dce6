package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	crca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	crselfsigned "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"         // Issuers with ca.
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned" // Issuers with selfSigned.
	"golang.org/x/sync/errgroup"
)

// workers is the default of cert-manager's flag --concurrent-workers.
const workers = 5

// controllers are those that a Certificate of a CA in the cluster needs.
func controllers() []string {
	return []string{
		issuers.ControllerName,
		trigger.ControllerName,
		keymanager.ControllerName,
		requestmanager.ControllerName,
		approver.ControllerName,
		crselfsigned.CRControllerName,
		crca.CRControllerName,
		issuing.ControllerName,
		readiness.ControllerName,
		revisionmanager.ControllerName,
	}
}

// runController is cert-manager-controller, until ctx ends.
func runController(ctx context.Context, kubeconfig string) error {
	group, ctx := errgroup.WithContext(ctx)
	factory, err := controller.NewContextFactory(ctx, controllerOptions(kubeconfig))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	shared, err := factory.Build()
	if err != nil {
		return fmt.Errorf("make clients: %w", err)
	}
	for _, name := range controllers() {
		construct, ok := controller.Known()[name]
		if !ok {
			return fmt.Errorf("cert-manager has no controller %q", name)
		}
		c, err := construct(factory)
		if err != nil {
			return fmt.Errorf("make controller %s: %w", name, err)
		}
		group.Go(func() error { return c.Run(workers, ctx) })
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return group.Wait()
}

// controllerOptions are the defaults of cert-manager's flags.
func controllerOptions(kubeconfig string) controller.ContextOptions {
	return controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	}
}
