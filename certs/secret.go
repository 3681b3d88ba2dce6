package certs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// maxPasses caps the steps of one refresh. The longest plan, for a restored Secret
	// whose CA is to be rolled over, has four; the rest is for lost races.
	maxPasses = 12
	// refreshTimeout bounds a refresh.
	refreshTimeout = 30 * time.Second
)

var (
	errForeign      = errors.New("secret lacks the label " + labelOwned + "=" + labelOwnedValue + " and is left alone")
	errNotPublished = errors.New("CA bundle is not in the webhook configurations yet")
)

// ownCA is the source that stores a CA of its own in a Secret.
type ownCA struct {
	secrets   typedcorev1.SecretInterface
	client    kubernetes.Interface
	options   *Options
	wanted    wanted
	publisher *publisher
	reporter  *reporter
	metrics   *Metrics
	use       *inUse
	// remembered is the last whole state.
	remembered *state
	// trust has the CAs that this replica has seen in all existing configurations.
	trust trust
	// published is true if trust verifies the pair in use. A later failed write of the
	// bundle does not reset it: the server stays trusted.
	published atomic.Bool
}

func newOwnCA(o *Options, use *inUse, r *reporter) (*ownCA, error) {
	base, err := o.parseURL()
	if err != nil {
		return nil, err
	}
	hosts := o.Hosts
	if base != nil {
		hosts = append([]string{base.Hostname()}, hosts...)
	}
	return &ownCA{
		secrets: o.Client.CoreV1().Secrets(o.Namespace),
		client:  o.Client,
		options: o,
		wanted: wanted{
			hosts:           hosts,
			caLifetime:      o.CALifetime,
			servingLifetime: o.ServingLifetime,
			bundleDelay:     o.BundleDelay,
		},
		publisher: newPublisher(o.Client, o, base, r),
		reporter:  r,
		metrics:   o.Metrics,
		use:       use,
	}, nil
}

func (c *ownCA) ready() error {
	if !c.published.Load() {
		return errNotPublished
	}
	return nil
}

// refresh runs passes until the plan has no step left.
func (c *ownCA) refresh(ctx context.Context, now time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	var errs error
	for range maxPasses {
		act, err := c.pass(ctx, now)
		if err == nil && act.step == stepNone {
			return act.again, nil
		}
		if err != nil && !errors.Is(err, errChanged) {
			return act.again, err
		}
		errs = err
	}
	return time.Time{}, fmt.Errorf("reach a stable state in %d passes: %w", maxPasses, errs)
}

// pass reads the configurations and the Secret, takes one step and returns it.
func (c *ownCA) pass(ctx context.Context, now time.Time) (action, error) {
	found := c.publisher.read(ctx)
	secret, err := c.read(ctx)
	if err != nil {
		return action{}, err
	}
	s := parseState(secret)
	if secret != nil && secret.Labels[labelOwned] != labelOwnedValue && !s.whole(now) {
		return action{}, c.refuse(ctx)
	}
	c.judge(ctx, &s)
	know := seen{trusted: found.trusted(), remembered: c.remembered}
	published := errNotPublished
	if s.serving != nil && !forgetsTrusted(&s, now, know.trusted) {
		published = c.publish(ctx, found, &s)
	}
	if errors.Is(published, errChanged) {
		return action{}, published
	}
	know.published = published == nil
	act := plan(&s, now, &c.wanted, know)
	if act.step != stepNone {
		err = c.step(ctx, act.step, secret, &s, now, know)
		if err == nil || errors.Is(err, errChanged) {
			return act, err
		}
	}
	// The Secret may still be newer than the pair in use.
	if until := c.settle(ctx, &s, now, know.published); act.step == stepNone && !until.IsZero() {
		act.again = earlier(act.again, until)
	}
	return act, errors.Join(err, published)
}

func (c *ownCA) read(ctx context.Context) (*corev1.Secret, error) {
	secret, err := c.secrets.Get(ctx, c.options.SecretName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		secret = nil
	case err != nil:
		err = fmt.Errorf("get secret: %w", err)
		c.reporter.report(ctx, reasonSecretRead, c.object(), err)
		return nil, err
	}
	c.reporter.well(ctx, c.object(), reasonSecretRead)
	return secret, nil
}

func (c *ownCA) object() string {
	return "Secret/" + c.options.Namespace + "/" + c.options.SecretName
}

func (c *ownCA) refuse(ctx context.Context) error {
	c.reporter.report(ctx, reasonSecretForeign, c.object(), errForeign)
	return errForeign
}

// judge reports the problems of the Secret.
func (c *ownCA) judge(ctx context.Context, s *state) {
	if err := errors.Join(s.problems...); err != nil {
		c.reporter.report(ctx, reasonSecretInvalid, c.object(), err)
	} else {
		c.reporter.well(ctx, c.object(), reasonSecretInvalid)
	}
}

func (c *ownCA) publish(ctx context.Context, found *reading, s *state) error {
	bundle, err := encodeBundle(s.bundle)
	if err != nil {
		return err
	}
	return c.publisher.write(ctx, found, bundle)
}

// step writes the Secret with the resourceVersion that was read.
func (c *ownCA) step(ctx context.Context, a step, secret *corev1.Secret, s *state, now time.Time, know seen) error {
	if secret != nil && secret.Labels[labelOwned] != labelOwnedValue {
		return c.refuse(ctx)
	}
	c.reporter.well(ctx, c.object(), reasonSecretForeign)
	after, issued, err := apply(a, s, now, &c.wanted, know)
	if err != nil {
		c.reporter.report(ctx, reasonIssue, c.object(), err)
		return fmt.Errorf("%s: %w", a, err)
	}
	if err := c.write(ctx, secret, after); err != nil {
		if isChanged(err) {
			return fmt.Errorf("%s: %w: %w", a, errChanged, err)
		}
		err = fmt.Errorf("%s: write secret: %w", a, err)
		c.reporter.report(ctx, reasonSecretWrite, c.object(), err)
		return err
	}
	c.reporter.well(ctx, c.object(), reasonSecretWrite, reasonIssue)
	log.FromContext(ctx).Info("changed certificates", "step", a.String(), "secret", c.options.SecretName)
	for _, kind := range issued {
		c.metrics.renewed(kind)
	}
	return nil
}

func (c *ownCA) write(ctx context.Context, secret *corev1.Secret, s *state) error {
	if secret != nil {
		secret = secret.DeepCopy()
		if err := s.writeTo(secret); err != nil {
			return err
		}
		_, err := c.secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	}
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.options.Namespace,
			Name:      c.options.SecretName,
			Labels:    map[string]string{labelOwned: labelOwnedValue, "app.kubernetes.io/managed-by": "tollgate"},
		},
		Type: corev1.SecretTypeTLS,
	}
	if err := s.writeTo(secret); err != nil {
		return err
	}
	_, err := c.secrets.Create(ctx, secret, metav1.CreateOptions{})
	return err
}

// settle uses the pair of the Secret, or returns the time at which it will. A pair of a CA
// that API servers may not have seen yet waits, unless no other works. After a roll-over
// that wait is over already; it is for CAs that changed without one.
func (c *ownCA) settle(ctx context.Context, s *state, now time.Time, published bool) time.Time {
	if s.whole(now) {
		c.remembered = s
		c.metrics.valid(kindCA, s.ca.cert)
	}
	if published {
		c.trust.see(s.bundle, now)
	}
	if !s.serving.usable(now) {
		return time.Time{}
	}
	current := c.use.load()
	if until := c.waitUntil(current, s.serving); now.Before(until) {
		return until
	}
	c.use.adopt(ctx, s.serving)
	_, ok := c.trust.since(s.serving)
	c.published.Store(ok)
	return time.Time{}
}

// waitUntil returns the time at which next may replace current, at the latest shortly
// before current expires.
func (c *ownCA) waitUntil(current, next *pair) time.Time {
	if current == nil || current.issuer.Equal(next.issuer) {
		return time.Time{}
	}
	until := lastMoment(current, c.options.Recheck)
	if since, ok := c.trust.since(next); ok {
		until = earlier(until, since.Add(c.wanted.bundleDelay))
	}
	return until
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
