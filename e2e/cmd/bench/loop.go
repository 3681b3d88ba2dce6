package main

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// The loops are a service account, as evictors are: what the API server grants to
// an administrator without queuing, it does not grant to them.
const (
	loopAccount = "loop"
	loopUser    = "system:serviceaccount:" + namespace + ":" + loopAccount
)

// newLoop returns what evicts all pods that leave, n at a time, by the requests that an eviction takes
// with a mark.
func (s *stage) newLoop(ctx context.Context, n int, mark v1alpha1.EvictionMark) (func(context.Context) error, error) {
	config, err := s.loopConfig(ctx)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "group=" + string(leaves)})
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		jobs, ctx := errgroup.WithContext(ctx)
		jobs.SetLimit(n)
		for i := range pods.Items {
			jobs.Go(func() error { return evictPod(ctx, client, &pods.Items[i], mark) })
		}
		return jobs.Wait()
	}, nil
}

// loopConfig lets the loops in.
func (s *stage) loopConfig(ctx context.Context) (*rest.Config, error) {
	accounts := s.client.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: loopAccount}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create service account: %w", err)
	}
	_, err = s.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench-" + loopAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: loopAccount}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("bind service account: %w", err)
	}
	token, err := accounts.CreateToken(ctx, loopAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create token: %w", err)
	}
	config := rest.AnonymousClientConfig(s.cp.RESTConfig())
	config.BearerToken = token.Status.Token
	return config, nil
}

// evictPod marks a pod, by the patch that the built-in evictor sends too, and deletes it, or has the
// Eviction API do both.
func evictPod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, mark v1alpha1.EvictionMark) error {
	pods := client.CoreV1().Pods(pod.Namespace)
	preconditions := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	switch mark {
	case v1alpha1.EvictionMarkByEvictionAPI:
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &preconditions}
		if err := pods.EvictV1(ctx, eviction); err != nil {
			return fmt.Errorf("evict pod: %w", err)
		}
		return nil
	case v1alpha1.EvictionMarkWhileTerminating:
		if err := pods.Delete(ctx, pod.Name, preconditions); err != nil {
			return fmt.Errorf("delete pod: %w", err)
		}
		if err := markPod(ctx, pods, pod); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	case v1alpha1.EvictionMarkBefore:
	}
	if err := markPod(ctx, pods, pod); err != nil {
		return err
	}
	if err := pods.Delete(ctx, pod.Name, preconditions); err != nil {
		return fmt.Errorf("delete pod: %w", err)
	}
	return nil
}

func markPod(ctx context.Context, pods corev1client.PodInterface, pod *corev1.Pod) error {
	conditions := []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "Measured", Message: "evicted by a loop",
		ObservedGeneration: pod.Generation, LastTransitionTime: metav1.Now(),
	}}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("mark pod: %w", err)
	}
	return nil
}
