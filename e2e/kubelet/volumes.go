package kubelet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// volumes are the folders that a pod mounts. They belong to one goroutine.
type volumes struct {
	client kubernetes.Interface
	// dir holds a folder for each volume.
	dir string
	// rewrite is applied to ConfigMaps.
	rewrite rewriter
	// tokens are those given out, by the volume and the path in it.
	tokens map[string]token
}

type token struct {
	text string
	// renew is when another is asked for: a kubelet does after four fifths of its life.
	renew time.Time
}

// mounts are where the container finds the volumes.
func (v *volumes) mounts(container *corev1.Container) []mount {
	out := make([]mount, 0, len(container.VolumeMounts))
	for _, m := range container.VolumeMounts {
		out = append(out, mount{path: m.MountPath, dir: filepath.Join(v.dir, m.Name, m.SubPath)})
	}
	return out
}

// project writes what is in the volumes now, each as a whole: who reads finds the old or
// the new, as in a real pod.
func (v *volumes) project(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	for _, volume := range pod.Spec.Volumes {
		dir := filepath.Join(v.dir, volume.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create volume %s: %w", volume.Name, err)
		}
		if volume.EmptyDir != nil {
			continue
		}
		files, err := v.files(ctx, pod, &volume, now)
		if err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		writer, err := volumeutil.NewAtomicWriter(dir, "pod "+pod.Name)
		if err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		payload := map[string]volumeutil.FileProjection{}
		for name, content := range files {
			payload[name] = volumeutil.FileProjection{Data: []byte(content), Mode: 0o600}
		}
		if err := writer.Write(payload, nil); err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
	}
	return nil
}

// files are what is to be in a volume.
func (v *volumes) files(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume, now time.Time) (map[string]string, error) {
	source := corev1.VolumeProjection{}
	switch {
	case volume.ConfigMap != nil:
		ref := volume.ConfigMap
		source.ConfigMap = &corev1.ConfigMapProjection{LocalObjectReference: ref.LocalObjectReference, Items: ref.Items, Optional: ref.Optional}
	case volume.Secret != nil:
		ref := volume.Secret
		source.Secret = &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: ref.SecretName}, Items: ref.Items, Optional: ref.Optional}
	case volume.DownwardAPI != nil:
		source.DownwardAPI = &corev1.DownwardAPIProjection{Items: volume.DownwardAPI.Items}
	case volume.Projected != nil:
		out := map[string]string{}
		for _, source := range volume.Projected.Sources {
			files, err := v.projection(ctx, pod, volume.Name, source, now)
			if err != nil {
				return nil, err
			}
			maps.Copy(out, files)
		}
		return out, nil
	}
	return v.projection(ctx, pod, volume.Name, source, now)
}

func (v *volumes) projection(ctx context.Context, pod *corev1.Pod, volume string, source corev1.VolumeProjection, now time.Time) (map[string]string, error) {
	switch {
	case source.ConfigMap != nil:
		data, err := configMap(ctx, v.client, pod.Namespace, source.ConfigMap.Name, source.ConfigMap.Optional)
		if err != nil {
			return nil, err
		}
		return v.rewrite.configurations(chosen(data, source.ConfigMap.Items))
	case source.Secret != nil:
		data, err := secret(ctx, v.client, pod.Namespace, source.Secret.Name, source.Secret.Optional)
		return chosen(data, source.Secret.Items), err
	case source.ServiceAccountToken != nil:
		text, err := v.token(ctx, pod, volume, source.ServiceAccountToken, now)
		return map[string]string{source.ServiceAccountToken.Path: text}, err
	case source.DownwardAPI != nil:
		out := map[string]string{}
		for _, item := range source.DownwardAPI.Items {
			if item.FieldRef == nil {
				return nil, fmt.Errorf("%s: its source is not known here", item.Path)
			}
			text, err := field(pod, item.FieldRef)
			if err != nil {
				return nil, err
			}
			out[item.Path] = text
		}
		return out, nil
	default:
		return nil, fmt.Errorf("its source is not known here: %v", source)
	}
}

// chosen leaves what a volume names, or everything if it names nothing.
func chosen(data map[string]string, items []corev1.KeyToPath) map[string]string {
	if data == nil || items == nil {
		return data
	}
	out := map[string]string{}
	for _, item := range items {
		if text, ok := data[item.Key]; ok {
			out[item.Path] = text
		}
	}
	return out
}

// token returns a token of the pod's ServiceAccount that ends with the pod.
func (v *volumes) token(ctx context.Context, pod *corev1.Pod, volume string, source *corev1.ServiceAccountTokenProjection, now time.Time) (string, error) {
	key := volume + "/" + source.Path
	if held, ok := v.tokens[key]; ok && now.Before(held.renew) {
		return held.text, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	made, err := v.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create token for service account %s: %w", pod.Spec.ServiceAccountName, err)
	}
	life := made.Status.ExpirationTimestamp.Sub(now)
	v.tokens[key] = token{text: made.Status.Token, renew: now.Add(life * 4 / 5)}
	return made.Status.Token, nil
}
