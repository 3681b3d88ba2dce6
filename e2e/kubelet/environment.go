package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// environment resolves what a container is given as variables. The pod is one whose status
// has the addresses.
func environment(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, container *corev1.Container) (map[string]string, error) {
	out := map[string]string{}
	for _, source := range container.EnvFrom {
		data, err := allOf(ctx, client, pod.Namespace, source)
		if err != nil {
			return nil, err
		}
		for key, value := range data {
			out[source.Prefix+key] = value
		}
	}
	for _, variable := range container.Env {
		value := expansion.Expand(variable.Value, expansion.MappingFuncFor(out))
		if variable.ValueFrom != nil {
			var err error
			if value, err = valueOf(ctx, client, pod, container, variable.ValueFrom); err != nil {
				return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
			}
		}
		out[variable.Name] = value
	}
	return out, nil
}

func allOf(ctx context.Context, client kubernetes.Interface, namespace string, source corev1.EnvFromSource) (map[string]string, error) {
	if ref := source.ConfigMapRef; ref != nil {
		return configMap(ctx, client, namespace, ref.Name, ref.Optional)
	}
	if ref := source.SecretRef; ref != nil {
		return secret(ctx, client, namespace, ref.Name, ref.Optional)
	}
	return nil, nil
}

func valueOf(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, container *corev1.Container, source *corev1.EnvVarSource) (string, error) {
	switch {
	case source.FieldRef != nil:
		return field(pod, source.FieldRef)
	case source.ResourceFieldRef != nil:
		return resource.ExtractContainerResourceValue(source.ResourceFieldRef, container)
	case source.ConfigMapKeyRef != nil:
		data, err := configMap(ctx, client, pod.Namespace, source.ConfigMapKeyRef.Name, source.ConfigMapKeyRef.Optional)
		return data[source.ConfigMapKeyRef.Key], err
	case source.SecretKeyRef != nil:
		data, err := secret(ctx, client, pod.Namespace, source.SecretKeyRef.Name, source.SecretKeyRef.Optional)
		return data[source.SecretKeyRef.Key], err
	default:
		return "", fmt.Errorf("its source is not known here: %v", source)
	}
}

// field is what the Downward API says of a pod.
func field(pod *corev1.Pod, ref *corev1.ObjectFieldSelector) (string, error) {
	switch ref.FieldPath {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return pod.Status.PodIP, nil
	case "status.hostIP", "status.hostIPs":
		return pod.Status.HostIP, nil
	default:
		return fieldpath.ExtractFieldPathAsString(pod, ref.FieldPath)
	}
}

func configMap(ctx context.Context, client kubernetes.Interface, namespace, name string, optional *bool) (map[string]string, error) {
	object, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	out := maps.Clone(object.Data)
	if out == nil {
		out = map[string]string{}
	}
	for key, value := range object.BinaryData {
		out[key] = string(value)
	}
	return out, nil
}

func secret(ctx context.Context, client kubernetes.Interface, namespace, name string, optional *bool) (map[string]string, error) {
	object, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	out := make(map[string]string, len(object.Data))
	for key, value := range object.Data {
		out[key] = string(value)
	}
	return out, nil
}

func unlessOptional(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

// command returns the arguments of a container, with its variables in them. If it has a
// command of its own, that begins with the program, which is that of the image here.
func command(container *corev1.Container, environment map[string]string) []string {
	mapping := expansion.MappingFuncFor(environment)
	arguments := container.Args
	if len(container.Command) > 0 {
		arguments = slices.Concat(container.Command[1:], container.Args)
	}
	out := make([]string, 0, len(arguments))
	for _, argument := range arguments {
		out = append(out, expansion.Expand(argument, mapping))
	}
	return out
}

// asEnv returns variables as a process is given them.
func asEnv(environment map[string]string) []string {
	out := make([]string, 0, len(environment))
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		out = append(out, name+"="+environment[name])
	}
	return out
}
