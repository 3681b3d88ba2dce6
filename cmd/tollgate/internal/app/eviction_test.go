package app

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestLabelsOfNamespaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		factory := clientinformers.NewSharedInformerFactory(client, 0)
		informer := factory.Core().V1().Namespaces().Informer()
		var changed []string
		_, err := informer.AddEventHandler(namespaceHandler(func(name string) { changed = append(changed, name) }))
		require.NoError(t, err)
		labelsOf := namespaceLabels(informer.GetIndexer())
		ctx, stop := context.WithCancel(t.Context())
		defer factory.Shutdown()
		defer stop()
		factory.StartWithContext(ctx)
		synctest.Wait()
		_, known := labelsOf("a")
		require.False(t, known, "what has not been read is not known")

		namespace := func(uid types.UID, tier string) *corev1.Namespace {
			object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}
			if tier != "" {
				object.Labels = map[string]string{"tier": tier}
			}
			return object
		}
		for _, step := range []struct {
			sentence string
			do       func(api *fake.Clientset) error
			known    bool
			tier     string
			told     int
		}{
			{"a namespace without labels is known to have none", func(api *fake.Clientset) error {
				_, err := api.CoreV1().Namespaces().Create(t.Context(), namespace("1", ""), metav1.CreateOptions{})
				return err
			}, true, "", 1},
			{"a change of labels is told", func(api *fake.Clientset) error {
				_, err := api.CoreV1().Namespaces().Update(t.Context(), namespace("1", "dev"), metav1.UpdateOptions{})
				return err
			}, true, "dev", 2},
			{"any other change is not", func(api *fake.Clientset) error {
				_, err := api.CoreV1().Namespaces().Update(t.Context(), namespace("2", "dev"), metav1.UpdateOptions{})
				return err
			}, true, "dev", 2},
			{"I09 one that is deleted is not known any more", func(api *fake.Clientset) error {
				return api.CoreV1().Namespaces().Delete(t.Context(), "a", metav1.DeleteOptions{})
			}, false, "", 2},
			{"one that is created anew is told", func(api *fake.Clientset) error {
				_, err := api.CoreV1().Namespaces().Create(t.Context(), namespace("3", "prod"), metav1.CreateOptions{})
				return err
			}, true, "prod", 3},
		} {
			require.NoError(t, step.do(client), step.sentence)
			synctest.Wait()
			labels, known := labelsOf("a")
			require.Equal(t, step.known, known, step.sentence)
			if known {
				require.Equal(t, step.tier, labels.Get("tier"), step.sentence)
			}
			require.Len(t, changed, step.told, step.sentence)
		}
	})
}

func TestI09WhatIsNoNamespaceIsLeftOut(t *testing.T) {
	t.Parallel()
	handler := namespaceHandler(func(string) { t.Error("called") })
	handler.OnAdd(&corev1.Pod{}, false)
	handler.OnUpdate(nil, &corev1.Pod{})
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a"})
}
