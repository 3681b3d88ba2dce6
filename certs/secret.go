package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The keys of the Secret. The serving certificate has the keys of every kubernetes.io/tls
// Secret.
const (
	dataServingCert = corev1.TLSCertKey
	dataServingKey  = corev1.TLSPrivateKeyKey
	// dataBundle holds every trusted CA. The private keys tell which of them signs, and
	// which is next.
	dataBundle    = "ca.crt"
	dataCAKey     = "ca.key"
	dataNextCAKey = "next-ca.key"

	// labelOwned marks the Secret as one that may be written.
	labelOwned      = "tollgate.dev/certificates"
	labelOwnedValue = "own-ca"
	// annotationPublished is the time since which all configurations hold the next CA.
	annotationPublished = "tollgate.dev/next-ca-published"
	// annotationRollOver requests a new CA, whatever its value.
	annotationRollOver = "tollgate.dev/roll-over"
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

// parseState parses the Secret. It returns an empty state for a Secret without data: a new
// one, or one that an administrator has created for Tollgate.
func parseState(secret *corev1.Secret) state {
	var s state
	if len(secret.Data) == 0 {
		return s
	}
	data := secret.Data
	problem := func(key string, err error) {
		if err != nil {
			s.problems = append(s.problems, fmt.Errorf("%s: %w", key, err))
		}
	}
	bundle, err := parseCertificates(data[dataBundle])
	problem(dataBundle, err)
	for _, c := range bundle {
		switch {
		case !c.IsCA:
			problem(dataBundle, errors.New("certificate is not a CA"))
		case !s.trusts(c):
			s.bundle = append(s.bundle, c)
		}
	}
	authorityOf := func(key string) *pair {
		for _, c := range s.bundle {
			if p, err := parsePair(encodeCertificates(c), data[key]); err == nil {
				return p
			}
		}
		_, err := parseKey(data[key])
		if err == nil {
			err = errors.New("key belongs to no certificate of the bundle")
		}
		problem(key, err)
		return nil
	}
	if len(data[dataNextCAKey]) != 0 {
		s.next = authorityOf(dataNextCAKey)
	}
	// Without a usable ca.key, the state has no ca while the next CA replaces it.
	if len(data[dataCAKey]) != 0 || s.next == nil {
		s.ca = authorityOf(dataCAKey)
	}
	serving, err := parsePair(data[dataServingCert], data[dataServingKey])
	if err == nil {
		if serving.issuer = serving.issuerAmong(s.bundle); serving.issuer != nil {
			s.serving = serving
		} else {
			err = errors.New("certificate was issued by none of the bundle")
		}
	}
	problem(dataServingCert, err)
	_, s.rollOver = secret.Annotations[annotationRollOver]
	if s.next != nil {
		// An invalid time counts as none: the delay starts again.
		s.published, _ = time.Parse(time.RFC3339Nano, secret.Annotations[annotationPublished])
	}
	return s
}

// issuerAmong returns the CA that signed the leaf, or nil. CAs of Tollgate have no
// intermediates.
func (p *pair) issuerAmong(cas []*x509.Certificate) *x509.Certificate {
	for _, ca := range cas {
		if bytes.Equal(p.leaf.RawIssuer, ca.RawSubject) && p.leaf.CheckSignatureFrom(ca) == nil {
			return ca
		}
	}
	return nil
}

// writeTo writes the state into the Secret and keeps all other fields. serving is not nil:
// every step of the plan results in one.
func (s *state) writeTo(secret *corev1.Secret) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[dataBundle] = encodeCertificates(s.bundle...)
	secret.Data[dataServingCert], secret.Data[dataServingKey] = s.serving.certPEM, s.serving.keyPEM
	for key, ca := range map[string]*pair{dataCAKey: s.ca, dataNextCAKey: s.next} {
		delete(secret.Data, key)
		if ca != nil {
			secret.Data[key] = ca.keyPEM
		}
	}
	delete(secret.Annotations, annotationPublished)
	if !s.published.IsZero() {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotationPublished, s.published.UTC().Format(time.RFC3339Nano))
	}
	if !s.rollOver {
		delete(secret.Annotations, annotationRollOver)
	}
}

// ownCA is the source that stores a CA of its own in a Secret.
type ownCA struct {
	*publisher

	use *inUse
	// object is the Secret, for logs.
	object string
	// remembered is the last whole state.
	remembered *state
	// trustedSince has, by their DER form, the CAs that all existing configurations hold, and
	// the times at which this replica first saw them there.
	trustedSince map[string]time.Time
}

// refresh runs passes until the plan has no step left.
func (c *ownCA) refresh(ctx context.Context, now time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	var lost error
	for range maxPasses {
		a, again, err := c.pass(ctx, now)
		if err == nil && a == "" || err != nil && !errors.Is(err, errChanged) {
			return again, err
		}
		lost = err
	}
	return time.Time{}, fmt.Errorf("reach a stable state in %d passes: %w", maxPasses, lost)
}

// pass reads the configurations and the Secret, takes one step and returns it, or the time
// of the next one.
func (c *ownCA) pass(ctx context.Context, now time.Time) (step, time.Time, error) { //nolint:gocyclo // Straight-line: read, plan, write, use.
	found, unread := c.read(ctx)
	secret, err := c.Client.CoreV1().Secrets(c.Namespace).Get(ctx, c.SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: c.Namespace,
				Name:      c.SecretName,
				Labels:    map[string]string{labelOwned: labelOwnedValue, "app.kubernetes.io/managed-by": "tollgate"},
			},
			Type: corev1.SecretTypeTLS,
		}
	}
	if err != nil {
		err = fmt.Errorf("get secret: %w", err)
	}
	if c.check(ctx, reasonSecretRead, c.object, err) != nil {
		return "", time.Time{}, err
	}
	s := parseState(secret)
	var foreign error
	if secret.Labels[labelOwned] != labelOwnedValue {
		foreign = errForeign
	}
	if foreign != nil && !s.whole(now) {
		return "", time.Time{}, c.check(ctx, reasonSecretForeign, c.object, foreign)
	}
	_ = c.check(ctx, reasonSecretInvalid, c.object, errors.Join(s.problems...))
	know := seen{trusted: found.trusted(), remembered: c.remembered}
	published := errNotPublished
	if s.serving != nil && !lacksTrusted(&s, now, know.trusted) {
		published = errors.Join(unread, c.write(ctx, found, s.bundle))
	}
	if errors.Is(published, errChanged) {
		return "", time.Time{}, published
	}
	know.published = published == nil
	a, again := plan(&s, now, c.Options, know)
	if a != "" {
		if err = c.check(ctx, reasonSecretForeign, c.object, foreign); err == nil {
			err = c.step(ctx, a, secret, &s, now, know)
		}
		if err == nil || errors.Is(err, errChanged) {
			return a, again, err
		}
	}
	// The Secret may still be newer than the pair in use.
	if until := c.settle(ctx, &s, now, know.published); a == "" && !until.IsZero() {
		again = earlier(again, until)
	}
	return a, again, errors.Join(err, published)
}

// step writes the Secret with the resourceVersion that was read, which is empty if there is
// none yet.
func (c *ownCA) step(ctx context.Context, a step, secret *corev1.Secret, s *state, now time.Time, know seen) error {
	after, issued, err := apply(a, s, now, c.Options, know)
	if c.check(ctx, reasonIssue, c.object, err) != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	secrets := c.Client.CoreV1().Secrets(c.Namespace)
	after.writeTo(secret)
	if secret.ResourceVersion == "" {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if isChanged(err) {
		return fmt.Errorf("%s: %w: %w", a, errChanged, err)
	}
	if err != nil {
		err = fmt.Errorf("%s: write secret: %w", a, err)
	}
	if c.check(ctx, reasonSecretWrite, c.object, err) != nil {
		return err
	}
	log.FromContext(ctx).Info("changed certificates", "step", string(a), "secret", c.SecretName)
	for _, kind := range issued {
		c.Metrics.renewals.WithLabelValues(kind).Inc()
	}
	return nil
}

// settle uses the pair of the Secret, or returns the time at which it will. A pair of a CA
// that API servers may not have seen yet waits, unless no other works. After a roll-over
// that wait is over already; it is for CAs that changed without one.
func (c *ownCA) settle(ctx context.Context, s *state, now time.Time, published bool) time.Time {
	if s.whole(now) {
		c.remembered = s
		c.Metrics.valid(kindCA, s.ca.leaf)
	}
	if published {
		c.see(s.bundle, now)
	}
	if !s.serving.usable(now) {
		return time.Time{}
	}
	if until := c.waitUntil(c.use.load(), s.serving); now.Before(until) {
		return until
	}
	c.use.adopt(ctx, s.serving)
	_, trusted := c.trustedSince[string(s.serving.issuer.Raw)]
	c.use.trusted.Store(trusted)
	return time.Time{}
}

// see records the bundle that all configurations hold now.
func (c *ownCA) see(bundle []*x509.Certificate, now time.Time) {
	held := map[string]time.Time{}
	for _, cert := range bundle {
		held[string(cert.Raw)] = cmp.Or(c.trustedSince[string(cert.Raw)], now)
	}
	c.trustedSince = held
}

// waitUntil returns the time at which next may replace current, at the latest shortly
// before current expires.
func (c *ownCA) waitUntil(current, next *pair) time.Time {
	if current == nil || current.issuer.Equal(next.issuer) {
		return time.Time{}
	}
	until := current.lastMoment(c.recheck)
	if since, ok := c.trustedSince[string(next.issuer.Raw)]; ok {
		until = earlier(until, since.Add(c.bundleDelay))
	}
	return until
}

// watch calls wake on changes of the Secret and of the named configurations. Each is
// watched by name, so that a Role with resourceNames suffices. A refresh does not use the
// caches; it reads from the API server.
func (c *ownCA) watch(ctx context.Context, wake func()) (func(), error) {
	named := func(name string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(c.Client, 0,
			informers.WithNamespace(c.Namespace),
			informers.WithTransform(nameOnly),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}))
	}
	admission := named(c.Configurations).Admissionregistration().V1()
	var running sync.WaitGroup
	for _, informer := range []cache.SharedIndexInformer{
		named(c.SecretName).Core().V1().Secrets().Informer(),
		admission.ValidatingWebhookConfigurations().Informer(),
		admission.MutatingWebhookConfigurations().Informer(),
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { wake() },
			UpdateFunc: func(any, any) { wake() },
			DeleteFunc: func(any) { wake() },
		})
		err = errors.Join(err, informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			c.Metrics.errors.WithLabelValues(reasonWatch).Inc()
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}))
		if err != nil {
			return nil, fmt.Errorf("set handlers: %w", err)
		}
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	return running.Wait, nil
}

// nameOnly keeps private keys out of the caches, which are not read.
func nameOnly(object any) (any, error) {
	meta, ok := object.(metav1.Object)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace:       meta.GetNamespace(),
		Name:            meta.GetName(),
		UID:             meta.GetUID(),
		ResourceVersion: meta.GetResourceVersion(),
	}}, nil
}
