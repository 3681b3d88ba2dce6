package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

const (
	sets = 12
	// leastTolerations and leastTaints are how many have to be judged both ways.
	leastTolerations, leastTaintWrites = 2000, 300
)

func TestTheExportedPoliciesSayWhatTollgateSays(t *testing.T) {
	d := newDice(t)
	world := furnish(t, d)
	everybody := crowd{}
	var n tally
	for i := range sets {
		var found policies
		for _, name := range []string{"a", "b"} {
			found.tolerations = append(found.tolerations, d.tolerationPolicy(name))
		}
		found.taints = append(found.taints, d.taintPolicy("c"))
		requests := world.requests(t, d, everybody, 80, 27)
		revoke := apply(t, i, &found)
		t.Cleanup(revoke)
		by := handler(t, &found)
		for _, r := range requests {
			_, got := everybody.send(t, r)
			n.compare(t, r, judge(t, by, r), got, &found)
		}
		revoke()
	}
	t.Logf("%+v", n)
	require.GreaterOrEqual(t, n.Tolerations, leastTolerations)
	require.GreaterOrEqual(t, n.TaintWrites, leastTaintWrites)
	require.Greater(t, n.Denied, n.Requests/10)
	require.Greater(t, n.Requests-n.Denied, n.Requests/10)
	require.LessOrEqual(t, n.Costly, n.Requests/10, "what is refused because of its cost is the exception")
}

// tally counts what was compared.
type tally struct{ Requests, Tolerations, TaintWrites, Denied, Warned, Costly int }

// asks reports whether a grant asks what is authorized, for each toleration: an export says
// that the API server does that twice at most.
func asks(found *policies) bool {
	return slices.ContainsFunc(found.tolerations, func(p v1alpha1.TolerationPolicy) bool {
		return slices.ContainsFunc(p.Spec.Grants, func(g v1alpha1.TolerationGrant) bool { return strings.Contains(g.Expression, "authorizer.") })
	})
}

// compare holds what is said of a request by the API server against what Tollgate says.
func (n *tally) compare(t *testing.T, r *request, want, got answer, found *policies) {
	t.Helper()
	if want.denied != got.denied || !want.denied && want.warned != got.warned {
		if strings.Contains(got.text, "actual cost limit exceeded") && asks(found) {
			n.Costly++
			return
		}
		require.Failf(t, "they disagree", "Tollgate: denied %t, warned %t: %s\nAPI server: denied %t, warned %t: %s\n%s %s by %s %v\nobject %s\nold %s\npolicies %s %s",
			want.denied, want.warned, want.text, got.denied, got.warned, got.text, r.operation, r.resource.Resource, r.user, r.groups,
			text(t, r.seen), text(t, r.old), text(t, found.tolerations), text(t, found.taints))
	}
	n.Requests++
	if r.resource.Resource == "nodes" {
		n.TaintWrites++
	} else {
		n.Tolerations += r.judged
	}
	if want.denied {
		n.Denied++
	}
	if want.warned {
		n.Warned++
	}
}

// world is what there is to write to.
type world struct{ pods, nodes []*unstructured.Unstructured }

// furnish creates namespaces, pods that wait behind a gate, and nodes with taints that no
// kubelet looks after.
func furnish(t *testing.T, d dice) *world {
	t.Helper()
	client, w := admin(t), &world{}
	for _, name := range namespaces {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: d.meta(name)}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
		eventually(t, "namespace "+name+" can be used", func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
	}
	for i := range 12 {
		pod := d.storedPod(i)
		stored, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, client.CoreV1().Pods(pod.Namespace).Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
		})
		w.pods = append(w.pods, unstructuredOf(t, "Pod", stored))
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		for _, key := range []string{"dedicated", "example.com/a", "example.com/b"} {
			taint := corev1.Taint{Key: key, Value: pick(d, values...), Effect: corev1.TaintEffectNoSchedule}
			if !has(node.Spec.Taints, &taint) {
				node.Spec.Taints = append(node.Spec.Taints, taint)
			}
		}
		node.ResourceVersion = ""
		stored, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.nodes = append(w.nodes, unstructuredOf(t, "Node", stored))
	}
	return w
}

func unstructuredOf(t *testing.T, kind string, object runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion("v1")
	u.SetKind(kind)
	return u
}

// requests returns requests that the API server has nothing against, with what it makes of
// them.
func (w *world) requests(t *testing.T, d dice, everybody crowd, ofPods, ofNodes int) []*request {
	t.Helper()
	w.refresh(t)
	var list []*request
	for i := range ofPods + ofNodes {
		var r *request
		switch {
		case i >= ofPods:
			r = d.tainted(t, w.nodes)
		case i%4 == 0:
			r = d.updated(t, w.pods)
		default:
			r = d.created(t)
		}
		// The status of a node is written all the time; its spec is not.
		r.object.SetResourceVersion("")
		seen, said := everybody.send(t, r)
		require.False(t, said.denied, said.text)
		r.seen = seen
		list = append(list, r)
	}
	return list
}

// refresh reads the nodes again: controllers taint them too.
func (w *world) refresh(t *testing.T) {
	t.Helper()
	nodes, err := admin(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	w.nodes = nil
	for i := range nodes.Items {
		w.nodes = append(w.nodes, unstructuredOf(t, "Node", &nodes.Items[i]))
	}
}

// apply creates what policies are exported as, and returns when the API server judges by
// that and has no warnings about it. Revoke returns when it does so no more.
func apply(t *testing.T, set int, found *policies) (revoke func()) {
	t.Helper()
	var objects []runtime.Object
	add := func(exported vap.Exported, err error) {
		require.NoError(t, err)
		require.Empty(t, exported.Missing())
		objects = append(objects, exported.Objects...)
	}
	for i := range found.tolerations {
		add(vap.Tolerations(&found.tolerations[i], vap.DefaultSettings()))
	}
	for i := range found.taints {
		add(vap.Taints(&found.taints[i], found.taints, vap.DefaultSettings()))
	}
	name := "sentinel-" + strconv.Itoa(set)
	objects = append(objects, sentinel(name)...)
	custom := objectsClient(t)
	for _, object := range objects {
		create(t, custom, object)
	}
	checked(t, objects)
	eventually(t, name+" judges", func(ctx context.Context) error {
		return judged(ctx, t, name)
	})
	return sync.OnceFunc(func() {
		// The sentinel goes last: once it judges no more, none of them does.
		for _, object := range objects {
			remove(t, object)
		}
		eventually(t, name+" judges no more", func(ctx context.Context) error {
			err := judged(ctx, t, name)
			switch {
			case errors.Is(err, errLetsPass):
				return nil
			case err == nil:
				return errors.New("it refuses")
			default:
				return err
			}
		})
	})
}

// sentinel is a policy that is created last: where it is in force, the others are.
func sentinel(name string) []runtime.Object {
	rule := admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	typeMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
	}
	return []runtime.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			TypeMeta: typeMeta("ValidatingAdmissionPolicy"), ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule}},
				Validations:      []admissionregistrationv1.Validation{{Expression: "object.metadata.name != " + strconv.Quote(name), Message: "in force"}},
			},
		},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: typeMeta("ValidatingAdmissionPolicyBinding"), ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		},
	}
}

var errLetsPass = errors.New("it lets pass")

// judged returns nil where a sentinel is in force, and errLetsPass where it is not.
func judged(ctx context.Context, t *testing.T, name string) error {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := admin(t).CoreV1().ConfigMaps("default").Create(ctx, config, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return errLetsPass
	}
	if apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

func objectsClient(t *testing.T) dynamic.Interface {
	t.Helper()
	config := shared.RESTConfig()
	config.QPS = -1
	custom, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return custom
}

var (
	policyResource  = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	bindingResource = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings")
)

func create(t *testing.T, custom dynamic.Interface, object runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	resource := policyResource
	if _, ok := object.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding); ok {
		resource = bindingResource
	}
	_, err = custom.Resource(resource).Create(t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(t, err, text(t, object))
}

func remove(t *testing.T, object runtime.Object) {
	t.Helper()
	api := admin(t).AdmissionregistrationV1()
	switch o := object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		require.NoError(t, api.ValidatingAdmissionPolicies().Delete(context.WithoutCancel(t.Context()), o.Name, metav1.DeleteOptions{}))
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		require.NoError(t, api.ValidatingAdmissionPolicyBindings().Delete(context.WithoutCancel(t.Context()), o.Name, metav1.DeleteOptions{}))
	}
}

// checked returns when Kubernetes has checked the types of all expressions. There must be no
// warnings.
func checked(t *testing.T, objects []runtime.Object) {
	t.Helper()
	for _, object := range objects {
		p, ok := object.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if !ok {
			continue
		}
		eventually(t, "the types in "+p.Name+" are checked", func(ctx context.Context) error {
			now, err := admin(t).AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if now.Status.ObservedGeneration != now.Generation || now.Status.TypeChecking == nil {
				return fmt.Errorf("generation %d, status %+v", now.Generation, now.Status)
			}
			require.Empty(t, now.Status.TypeChecking.ExpressionWarnings)
			return nil
		})
	}
}
