package app

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// addProbes adds the liveness check and the given readiness checks. Readiness depends on the
// certificate and the policies, not on the list of pods.
func (p *program) addProbes(ready map[string]healthz.Checker) error {
	if err := p.manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add liveness check: %w", err)
	}
	for name, check := range ready {
		if err := p.manager.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("add readiness check %s: %w", name, err)
		}
	}
	return nil
}
