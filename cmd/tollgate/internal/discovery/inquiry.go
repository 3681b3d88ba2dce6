package discovery

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inquiry is what the API server said in one look.
type inquiry struct {
	discovery discoverer
	// answers are by group and version.
	answers map[string]listed
}

// listed is what is served in one version of a group; nil for nothing.
type listed struct {
	list *metav1.APIResourceList
	err  error
}

// silence is what the API server does not say whether it serves, and why.
type silence struct {
	resource *resource
	err      error
}

// version returns the version in which a resource is to be watched, empty when it is
// not served. The one that is watched is kept while it is served: the replicas of
// a control plane that is being upgraded do not agree on the newest.
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

// ask asks about a version of a group, once a look.
func (q *inquiry) ask(ctx context.Context, group string) listed {
	answer, asked := q.answers[group]
	if asked {
		return answer
	}
	ctx, stop := context.WithTimeout(ctx, patience)
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

// unanswered takes in what the API server says nothing about, and says so once. It
// returns when to ask again. While it answers other questions, these are asked often
// for no longer than a permission is: an API server that is away says nothing at all.
func (k *Keeper) unanswered(ctx context.Context, about []silence) time.Duration {
	if ctx.Err() != nil {
		return lookAgain
	}
	log := logr.FromContextOrDiscard(ctx)
	next := lookEvery
	var news []string
	for _, s := range about {
		r := s.resource
		if r.mute.IsZero() {
			r.mute = k.clock.Now()
			news = append(news, r.Name.String())
		}
		if !r.skipped && len(about) < len(k.resources) && k.clock.Since(r.mute) >= grace {
			r.skipped = true
			if r.state == stateUnknown && r.Watch == nil {
				log.Error(s.err, "not known to be served", "resource", r.Name.String(), "so", r.Without)
			}
		}
		if !r.skipped {
			next = lookAgain
		}
	}
	if len(news) > 0 {
		log.Error(about[0].err, "the API server does not say what it serves", "resources", news)
	}
	return next
}
