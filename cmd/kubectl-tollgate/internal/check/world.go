package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// world has the objects of the files, and reads all others from a cluster, if there is one. It
// implements client.Reader for the reviews, ignores options, and is safe for concurrent use once
// the objects of the files are added.
type world struct {
	// cluster is nil without a cluster.
	cluster *cli.Clients

	mu      sync.Mutex // guards the fields below
	objects map[schema.GroupKind]objects
	// errors are the errors of queries, nil for those that succeeded. Each object and each list is
	// read once: many objects depend on one namespace, and all pods on the same PriorityClasses.
	errors map[query]error
	// unread are the kinds of classes that the user may not read, which count as absent. unknown
	// are the requested namespaces that do not exist.
	unread, unknown sets.Set[string]
}

// objects are objects of one kind.
type objects map[types.NamespacedName]*unstructured.Unstructured

// query is a read of an object, or without a key of a list.
type query struct {
	kind schema.GroupKind
	key  types.NamespacedName
}

// scheme returns the types of Kubernetes and of Tollgate.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
})

func newWorld(cluster *cli.Clients) *world {
	return &world{
		cluster: cluster, objects: map[schema.GroupKind]objects{},
		errors: map[query]error{}, unread: sets.Set[string]{}, unknown: sets.Set[string]{},
	}
}

func (w *world) add(object *unstructured.Unstructured) {
	gk := object.GroupVersionKind().GroupKind()
	if w.objects[gk] == nil {
		w.objects[gk] = objects{}
	}
	w.objects[gk][client.ObjectKeyFromObject(object)] = object
}

// Get implements client.Reader.
func (w *world) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, scheme())
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	object, ok := w.objects[gvk.GroupKind()][key]
	if !ok && w.cluster == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	if !ok {
		err = w.once(query{gvk.GroupKind(), key}, func() error {
			resource, _ := meta.UnsafeGuessKindToResource(gvk)
			object, err = w.cluster.Dynamic.Resource(resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			if err == nil {
				w.add(object)
			}
			of := resource.GroupResource()
			return cli.Failed(err, "get "+of.String()+" "+key.Name, "get", of)
		})
	}
	if err != nil {
		return err
	}
	return decodeInto(object, into)
}

// List implements client.Reader.
func (w *world) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, scheme())
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	w.mu.Lock()
	defer w.mu.Unlock()
	gk := gvk.GroupKind()
	if w.cluster != nil {
		err := w.once(query{kind: gk}, func() error {
			resource, _ := meta.UnsafeGuessKindToResource(gvk)
			return w.cluster.EachCustom(ctx, resource, func(object *unstructured.Unstructured) error {
				object.SetGroupVersionKind(gvk)
				if _, local := w.objects[gk][client.ObjectKeyFromObject(object)]; !local {
					w.add(object)
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	var all []runtime.Object
	for _, object := range w.objects[gk] {
		typed, err := scheme().New(gvk)
		if err == nil {
			err = decodeInto(object, typed)
		}
		if err != nil {
			return err
		}
		all = append(all, typed)
	}
	return meta.SetList(list, all)
}

// once calls request unless it was called, and returns its error. Errors that may be temporary are
// returned once. Classes only add fields to pods: if the user may not read them, they count as
// absent.
func (w *world) once(q query, request func() error) error {
	if err, called := w.errors[q]; called {
		return err
	}
	err := request()
	if apierrors.IsForbidden(err) && (q.kind.Kind == "PriorityClass" || q.kind.Kind == "RuntimeClass") {
		classes := q.kind.Kind + "es"
		w.unread.Insert(classes)
		if err = nil; q.key.Name != "" {
			err = apierrors.NewNotFound(schema.GroupResource{Group: q.kind.Group, Resource: classes}, q.key.Name)
		}
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		w.errors[q] = err
	}
	return err
}

func decodeInto(object *unstructured.Unstructured, into any) error {
	content, err := json.Marshal(object.Object)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// Namespace returns a namespace with the label that the API server sets. A namespace that does
// not exist has no other label: it is created before the objects in it.
func (w *world) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	err := w.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		w.mu.Lock()
		w.unknown.Insert(name)
		w.mu.Unlock()
		namespace.Name = name
	} else if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, corev1.LabelMetadataName, name)
	return namespace, nil
}

// Confirmed is Namespace, since no read here is stale.
func (w *world) Confirmed(ctx context.Context, name string) (*corev1.Namespace, error) {
	return w.Namespace(ctx, name)
}

// rbac decides by the Roles, ClusterRoles and bindings of the files. Aggregated roles have the rules
// that the files give them, and rules have no conditions.
type rbac struct {
	roles    map[query][]rbacv1.PolicyRule
	bindings []rbacv1.RoleBinding // a ClusterRoleBinding has no namespace
	// refused is true after a request that no rule allows, and a cluster might.
	refused bool
}

func rbacKind(name string) schema.GroupKind {
	return schema.GroupKind{Group: rbacv1.GroupName, Kind: name}
}

func newRBAC(w *world) (*rbac, error) {
	r := &rbac{roles: map[query][]rbacv1.PolicyRule{}}
	for _, name := range []string{"Role", "ClusterRole"} {
		for key, object := range w.objects[rbacKind(name)] {
			var role rbacv1.ClusterRole // A Role has the same rules.
			if err := decodeInto(object, &role); err != nil {
				return nil, err
			}
			r.roles[query{rbacKind(name), key}] = role.Rules
		}
	}
	for _, name := range []string{"RoleBinding", "ClusterRoleBinding"} {
		for _, object := range w.objects[rbacKind(name)] {
			var binding rbacv1.RoleBinding // A ClusterRoleBinding has the same fields.
			if err := decodeInto(object, &binding); err != nil {
				return nil, fmt.Errorf("read what is bound: %w", err)
			}
			r.bindings = append(r.bindings, binding)
		}
	}
	return r, nil
}

// Authorize is an authorizer.AuthorizerFunc.
func (r *rbac) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	for _, b := range r.bindings {
		role := query{rbacKind(b.RoleRef.Kind), types.NamespacedName{Name: b.RoleRef.Name}}
		if b.RoleRef.Kind == "Role" {
			role.key.Namespace = b.Namespace
		}
		if (b.Namespace == "" || b.Namespace == a.GetNamespace()) && includes(&b, a.GetUser()) &&
			slices.ContainsFunc(r.roles[role], func(rule rbacv1.PolicyRule) bool { return allows(&rule, a) }) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	r.refused = true
	return authorizer.DecisionNoOpinion, "", nil
}

// includes reports whether a user is among the subjects of a binding.
func includes(b *rbacv1.RoleBinding, who user.Info) bool {
	return slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.UserKind:
			return s.Name == who.GetName()
		case rbacv1.GroupKind:
			return slices.Contains(who.GetGroups(), s.Name)
		case rbacv1.ServiceAccountKind:
			return serviceaccount.MatchesUsername(cmp.Or(s.Namespace, b.Namespace), s.Name, who.GetName())
		default:
			return false
		}
	})
}

// allows reports whether a rule allows a request.
func allows(rule *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	among := func(list []string, names ...string) bool {
		return slices.ContainsFunc(list, func(name string) bool { return name == "*" || slices.Contains(names, name) })
	}
	if !among(rule.Verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			prefix, wildcard := strings.CutSuffix(url, "*")
			return url == a.GetPath() || wildcard && strings.HasPrefix(a.GetPath(), prefix)
		})
	}
	resource, wildcard := a.GetResource(), "*"
	if subresource := a.GetSubresource(); subresource != "" {
		resource, wildcard = resource+"/"+subresource, "*/"+subresource
	}
	return among(rule.Resources, resource, wildcard) && among(rule.APIGroups, a.GetAPIGroup()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}
