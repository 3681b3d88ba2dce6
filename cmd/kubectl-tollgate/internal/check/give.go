package check

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	jsonpatchv2 "gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// give applies the mutating webhook to an object, in the rounds of the API server: the plugins run
// again on the changes of the webhook, so that RuntimeClass drops a toleration that an added one
// covers (TP-04), and the webhook once more on the changes of the plugins, since its
// reinvocationPolicy is IfNeeded.
func (c *Checker) give(ctx context.Context, k *kind, typed runtime.Object, o *unstructured.Unstructured, by Subject, result *Result) (runtime.Object, error) {
	for again := true; ; again = false {
		req, err := request(k, typed, o, by)
		if err != nil {
			return nil, err
		}
		review, err := c.mutate.Review(ctx, req)
		if err != nil {
			return nil, explained(err)
		}
		if len(review.Patch) == 0 {
			return typed, nil
		}
		result.Given = append(result.Given, review.Patch...)
		if typed, err = c.patched(o, req.Object.Raw, review.Patch); err != nil || !again {
			return typed, err
		}
		before := typed.DeepCopyObject()
		if err := c.server.Admit(ctx, typed); err != nil || equality.Semantic.DeepEqual(before, typed) {
			return typed, err
		}
	}
}

// patched returns an object after JSON patches.
func (c *Checker) patched(o *unstructured.Unstructured, content []byte, operations []jsonpatchv2.Operation) (runtime.Object, error) {
	var patch jsonpatch.Patch
	var typed runtime.Object
	text, err := json.Marshal(operations)
	if err == nil {
		patch, err = jsonpatch.DecodePatch(text)
	}
	if err == nil {
		content, err = patch.Apply(content)
	}
	if err == nil {
		typed, err = c.world.scheme.New(o.GroupVersionKind())
	}
	if err == nil {
		err = json.Unmarshal(content, typed)
	}
	if err != nil {
		return nil, fmt.Errorf("give it what policies have for it: %w", err)
	}
	return typed, nil
}
