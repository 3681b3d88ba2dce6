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
	// maxPasses bounds the steps of one refresh. The longest plan, for a Secret from
	// a backup whose CA is to be rolled over, has four; the rest is for lost races.
	maxPasses = 12
	// refreshTimeout ends a refresh whose API server does not answer.
	refreshTimeout = 30 * time.Second
)

var (
	errForeign      = errors.New("secret lacks the label " + labelOwned + "=" + labelOwnedValue + " and is left alone")
	errNotPublished = errors.New("CA bundle is not in the webhook configurations yet")
)

// ownCA is the source that keeps a CA of its own in a Secret.
type ownCA struct {
	secrets   typedcorev1.SecretInterface
	client    kubernetes.Interface
	options   *Options
	wanted    wanted
	publisher *publisher
	reporter  *reporter
	metrics   *Metrics
	use       *inUse
	// remembered is the last state that was whole.
	remembered *state
	// trust is what this replica has seen in all existing configurations.
	trust trust
	// published is set if trust verifies the pair in use. That the bundle cannot
	// be written later takes nothing away from a server that is trusted.
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

// refresh takes steps until the plan has none left.
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

// pass reads everything, takes one step and says which.
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
	// What could not be changed may still be newer than what is in use.
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

// judge reports what in the Secret cannot be used.
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

// step writes the Secret on condition that it is as it was read.
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

// settle takes what the Secret holds into use, or says when it will. A pair whose
// CA the API servers may not have noticed yet waits, unless there is no other
// that works. After a roll-over that wait is over already; it is for CAs that
// came without one.
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

// waitUntil is when next may take the place of current, at the latest a little
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
