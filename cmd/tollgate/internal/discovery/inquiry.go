package discovery

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inquiry caches the discovery responses of one round.
type inquiry struct {
	discovery discoverer
	// answers are keyed by group and version.
	answers map[string]listed
}

// listed is the discovery response of a group version; list is nil if it is not served.
type listed struct {
	list *metav1.APIResourceList
	err  error
}

// silence is a resource whose discovery failed, and the error.
type silence struct {
	resource *resource
	err      error
}

// version returns the version in which to watch a resource, empty when it is not served. It keeps
// the current version while that is served: during an upgrade, replicas of the API server
// disagree on the newest.
func (q *inquiry) version(ctx context.Context, r *resource) (string, error) {
	candidates := r.Versions
	if r.version != "" {
		candidates = append([]string{r.version}, candidates...)
	}
	for _, version := range candidates {
		answer := q.ask(ctx, r.Name.WithVersion(version).GroupVersion().String())
		if answer.err != nil {
			return "", answer.err
		}
		if includes(answer.list, r.Name.Resource) {
			return version, nil
		}
	}
	return "", nil
}

// ask discovers a group version, once per inquiry.
func (q *inquiry) ask(ctx context.Context, group string) listed {
	answer, asked := q.answers[group]
	if asked {
		return answer
	}
	ctx, stop := context.WithTimeout(ctx, requestTimeout)
	defer stop()
	answer.list, answer.err = q.discovery.ServerResourcesForGroupVersionWithContext(ctx, group)
	if apierrors.IsNotFound(answer.err) {
		answer = listed{}
	}
	q.answers[group] = answer
	return answer
}

func includes(list *metav1.APIResourceList, name string) bool {
	if list == nil {
		return false
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == name {
			return true
		}
	}
	return false
}

// unanswered records failed discovery, logs it once, and returns when to retry. While other
// resources get a response, these are retried every retryInterval only during grace; if all fail,
// the API server is down and retries go on.
func (k *Keeper) unanswered(ctx context.Context, about []silence) time.Duration {
	if ctx.Err() != nil {
		return retryInterval
	}
	log := logr.FromContextOrDiscard(ctx)
	next := discoveryInterval
	var news []string
	for _, s := range about {
		r := s.resource
		if r.failedSince.IsZero() {
			r.failedSince = k.clock.Now()
			news = append(news, r.Name.String())
		}
		if !r.skipped && len(about) < len(k.resources) && k.clock.Since(r.failedSince) >= grace {
			r.skipped = true
			if r.state == stateUnknown && r.Watch == nil {
				log.Error(s.err, "not known to be served", "resource", r.Name.String(), "so", r.Without)
			}
		}
		if !r.skipped {
			next = retryInterval
		}
	}
	if len(news) > 0 {
		log.Error(about[0].err, "the API server does not say what it serves", "resources", news)
	}
	return next
}
