package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// The components of tollgate serve. With the webhook, a process serves admission and keeps
// its certificates. With the evictor, it takes part in the leader election; the leader evicts
// pods and runs the controllers, which write nodes, rules and the status of all objects of
// Tollgate.
const (
	componentWebhook = "webhook"
	componentEvictor = "evictor"
)

// components are the components that a process runs.
type components struct {
	webhook, evictor bool
	// evictorUser is the user of an evictor in another process; empty where it is in this one.
	evictorUser string
}

// parseComponents reads the values of --components and --evictor-user.
func parseComponents(names []string, evictorUser string) (components, error) {
	for _, name := range names {
		if !slices.Contains([]string{componentWebhook, componentEvictor}, name) {
			return components{}, fmt.Errorf("--components has %q, want %s, %s or both, separated by a comma", name, componentWebhook, componentEvictor)
		}
	}
	c := components{
		webhook: slices.Contains(names, componentWebhook), evictor: slices.Contains(names, componentEvictor), evictorUser: evictorUser,
	}
	switch {
	case !c.webhook && !c.evictor:
		return components{}, fmt.Errorf("--components is empty, want %s, %s or both, separated by a comma", componentWebhook, componentEvictor)
	case c.webhook && !c.evictor && evictorUser == "":
		return components{}, errors.New("--evictor-user is empty, want the user name of the evictor, " +
			"such as system:serviceaccount:tollgate-system:tollgate: the webhook admits what the evictor writes")
	case c.evictor && evictorUser != "":
		return components{}, fmt.Errorf("--evictor-user is %q, want it with --components=%s alone", evictorUser, componentWebhook)
	}
	return c, nil
}

// validate returns an error where metrics are to be served by HTTPS without a certificate.
func (c components) validate(config *configv1alpha1.TollgateConfiguration) error {
	if c.webhook || !config.Metrics.Asked() || config.Metrics.CertificateDirectory != "" {
		return nil
	}
	return fmt.Errorf("metrics.certificateDirectory is empty, want the directory of tls.crt and tls.key: metrics at %s are served by HTTPS, "+
		"and with --components=%s there is no certificate of the webhooks (other ways: an address of the loopback interface, or metrics.authorization None)",
		config.Metrics.BindAddress, componentEvictor)
}

// selves returns the users whose writes the webhook does not judge, if self is the user of
// this process.
func (c components) selves(self string) []string {
	if c.evictor {
		return []string{self}
	}
	return []string{self, c.evictorUser}
}

// String implements fmt.Stringer.
func (c components) String() string {
	var names []string
	if c.webhook {
		names = append(names, componentWebhook)
	}
	if c.evictor {
		names = append(names, componentEvictor)
	}
	return strings.Join(names, ",")
}
