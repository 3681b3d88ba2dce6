package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// askAbout sends the review of an object of resource.k8s.io that is to be created, as
// it is, past the API server that would refuse it first.
func (c *caller) askAbout(ctx context.Context, resource string, object *unstructured.Unstructured) (answer, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return answer{}, err
	}
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "1c8b4b6d-7a0e-4d0e-9a53-5a3f0a5e7a11",
			Resource:  metav1.GroupVersionResource{Group: resourceAPI, Version: "v1", Resource: resource},
			Operation: admissionv1.Create,
			Object:    runtime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, tollgate.WebhookURL+"/validate", bytes.NewReader(review))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, body: string(body)}, err
}

// verdict says who refuses an object.
type verdict string

const (
	neither verdict = "neither refuses"
	both    verdict = "both refuse"
	// onlyTollgate marks where Tollgate is stricter on purpose.
	onlyTollgate verdict = "only Tollgate refuses"
	// onlyServer marks what a newer API server may know.
	onlyServer verdict = "only the API server refuses"
)

// differential is an object of which Tollgate and the API server each have a verdict.
type differential struct {
	resource, spec string
	want           verdict
}

// manySpec returns the spec of a slice of n devices, the first with the taints.
func manySpec(n int, taints string) string {
	devices := []string{"{name: d0, taints: [" + taints + "]}"}
	for i := 1; i < n; i++ {
		devices = append(devices, fmt.Sprintf("{name: d%d}", i))
	}
	return "{driver: d, pool: {name: p, generation: 1, resourceSliceCount: 1}, allNodes: true, devices: [" + strings.Join(devices, ", ") + "]}"
}

// taintsOfDevice are taints of one device; each is asked about in a slice.
var taintsOfDevice = map[string]struct {
	taints string
	want   verdict
}{
	"AV-01 16 taints":                         {strings.TrimSuffix(strings.Repeat("{key: k, effect: None}, ", 16), ", "), neither},
	"AV-01 17 taints":                         {strings.TrimSuffix(strings.Repeat("{key: k, effect: None}, ", 17), ", "), both},
	"AV-03 every effect":                      {"{key: k, effect: None}, {key: k, effect: NoSchedule}, {key: k, effect: NoExecute}", neither},
	"AV-03 no key":                            {"{effect: None}", both},
	"AV-03 a key with a space":                {"{key: a b, effect: None}", both},
	"AV-03 a key of two slashes":              {"{key: a/b/c, effect: None}", both},
	"AV-03 a key of 64 characters":            {"{key: a" + strings.Repeat("a", 63) + ", effect: None}", both},
	"AV-03 a long domain and name":            {"{key: " + strings.Repeat("a.", 126) + "a/" + strings.Repeat("b", 63) + ", effect: None}", neither},
	"AV-03 a domain in capitals":              {"{key: Example.com/k, effect: None}", both},
	"AV-03 a value":                           {"{key: k, value: a_b.c-d, effect: None}", neither},
	"AV-03 a value that begins with a dash":   {"{key: k, value: '-a', effect: None}", both},
	"AV-03 a value of 64 characters":          {"{key: k, value: a" + strings.Repeat("a", 63) + ", effect: None}", both},
	"AV-03 no effect":                         {"{key: k}", both},
	"AV-03 PreferNoSchedule":                  {"{key: k, effect: PreferNoSchedule}", onlyServer},
	"AV-03 an effect in other letters":        {"{key: k, effect: noexecute}", onlyServer},
	"AV-04 duplicates":                        {"{key: k, effect: None}, {key: k, effect: None}", neither},
	"AV-04 a time in ten years":               {"{key: k, effect: NoExecute, timeAdded: '2036-01-01T00:00:00Z'}", neither},
	"AV-04 a time before there was Tollgate":  {"{key: k, effect: NoSchedule, timeAdded: '1999-01-01T00:00:00Z'}", neither},
	"a key of Kubernetes, which is warned of": {"{key: kubernetes.io/k, effect: None}", neither},
}

// selectors are those of rules.
var selectors = map[string]struct {
	selector string
	want     verdict
}{
	"AV-14 every device":                 {"{}", neither},
	"AV-14 no device":                    {"null", neither},
	"AV-14 all three":                    {"{driver: gpu.example.com, pool: node-1/rack.a, device: gpu-0}", neither},
	"AV-14 a driver in capitals":         {"{driver: GPU.example.com}", neither},
	"AV-14 a driver of 64 characters":    {"{driver: a" + strings.Repeat("a", 63) + "}", both},
	"AV-14 a driver with a slash":        {"{driver: a/b}", both},
	"AV-14 K10 an empty driver":          {"{driver: ''}", both},
	"AV-14 a pool that ends in a slash":  {"{pool: a/}", both},
	"AV-14 a pool of 253 characters":     {"{pool: " + strings.Repeat("a/", 126) + "a}", neither},
	"AV-14 a pool of 254 characters":     {"{pool: " + strings.Repeat("a/", 126) + "aa}", both},
	"AV-14 K10 an empty pool":            {"{pool: ''}", both},
	"AV-14 K10 an empty device":          {"{device: ''}", both},
	"AV-14 a device with a dot":          {"{device: a.b}", both},
	"AV-14 a device of 63 characters":    {"{device: " + strings.Repeat("a", 63) + "}", neither},
	"AV-14 a device of 64 characters":    {"{device: " + strings.Repeat("a", 64) + "}", both},
	"AV-14 a device in capital letters":  {"{device: GPU}", both},
	"AV-14 a pool in capital letters":    {"{pool: Node}", both},
	"AV-14 a driver with an underscore":  {"{driver: a_b}", both},
	"AV-14 a pool with an empty element": {"{pool: a//b}", both},
}

// tolerationLists are asked about in claims and templates.
var tolerationLists = map[string]struct {
	tolerations string
	want        verdict
}{
	"AV-09 every taint":                  {"[{operator: Exists}]", neither},
	"AV-09 Equal is the default":         {"[{key: k, value: v}]", neither},
	"AV-09 every effect":                 {"[{key: k, effect: None}, {key: k, effect: NoSchedule}, {key: k, effect: NoExecute}]", neither},
	"AV-09 a key that is none":           {"[{key: a b, operator: Exists}]", both},
	"AV-09 Exists with a value":          {"[{key: k, operator: Exists, value: v}]", both},
	"AV-09 a value that is none":         {"[{key: k, operator: Equal, value: '-'}]", both},
	"AV-09 an operator of nodes":         {"[{key: k, operator: Lt, value: '1'}]", onlyServer},
	"AV-09 PreferNoSchedule":             {"[{key: k, operator: Exists, effect: PreferNoSchedule}]", onlyServer},
	"AV-11 16 tolerations":               {"[" + sixteen + "]", neither},
	"AV-11 17 tolerations":               {seventeen, onlyTollgate},
	"AV-12 an empty key with Equal":      {"[{operator: Equal, value: v}]", onlyTollgate},
	"AV-12 an empty key and no operator": {"[{value: v}]", onlyTollgate},
	"AV-12 seconds with any effect":      {"[{key: k, tolerationSeconds: 5}, {key: k, effect: NoSchedule, tolerationSeconds: -5}]", neither},
	"duplicates":                         {"[{operator: Exists}, {operator: Exists}]", neither},
}

// differentials are all objects that are asked about.
func differentials() map[string]differential {
	all := map[string]differential{
		"AV-02 a slice of 64 devices, one with a taint": {"resourceslices", manySpec(64, "{key: k, effect: None}"), neither},
		"AV-02 a slice of 65 devices, one with a taint": {"resourceslices", manySpec(65, "{key: k, effect: None}"), both},
		"AV-02 a slice of 128 devices without taints":   {"resourceslices", manySpec(128, ""), neither},
		"AV-15 a rule without a taint":                  {"devicetaintrules", "{deviceSelector: {pool: p}}", both},
	}
	for name, c := range taintsOfDevice {
		all["a slice, "+name] = differential{"resourceslices", taintedSlice("v1", "d", c.taints), c.want}
		if !strings.Contains(c.taints, "}, {") {
			all["AV-15 a rule, "+name] = differential{"devicetaintrules", "{deviceSelector: {pool: p}, taint: " + c.taints + "}", c.want}
		}
	}
	for name, c := range selectors {
		all["a rule, "+name] = differential{"devicetaintrules", "{deviceSelector: " + c.selector + ", taint: {key: k, effect: None}}", c.want}
	}
	for name, c := range tolerationLists {
		exactly := "{devices: {requests: [{name: r, exactly: {deviceClassName: c, tolerations: " + c.tolerations + "}}]}}"
		alternative := "{devices: {requests: [{name: r, firstAvailable: [{name: s, deviceClassName: c, tolerations: " + c.tolerations + "}]}]}}"
		all["a claim, "+name] = differential{"resourceclaims", exactly, c.want}
		all["a claim with alternatives, "+name] = differential{"resourceclaims", alternative, c.want}
		all["a template, "+name] = differential{"resourceclaimtemplates", "{spec: " + exactly + "}", c.want}
		all["a template with alternatives, "+name] = differential{"resourceclaimtemplates", "{spec: " + alternative + "}", c.want}
	}
	return all
}

func TestTollgateAndTheAPIServerJudgeDevicesAlike(t *testing.T) {
	namespace := namespaceOf(t, "alike-")
	direct, err := newCaller(t.Context(), t)
	require.NoError(t, err)
	clients := map[string]string{"resourceslices": "", "devicetaintrules": "", "resourceclaims": namespace, "resourceclaimtemplates": namespace}
	for name, d := range differentials() {
		t.Run(name, func(t *testing.T) {
			object := deviceObject(t, "v1", d.resource, "judged", d.spec)
			got, err := direct.askAbout(t.Context(), d.resource, object)
			require.NoError(t, err)
			byTollgate, err := got.allowed()
			require.NoError(t, err)
			_, err = ofDevices(t, "v1", d.resource, clients[d.resource], nil).Create(t.Context(), object, metav1.CreateOptions{DryRun: dryRun})
			// The API server judges first: its own refusal is Invalid, ours Forbidden.
			byServer := !apierrors.IsInvalid(err)
			if byServer && !byTollgate {
				require.True(t, apierrors.IsForbidden(err), "%v", err)
				require.ErrorContains(t, err, `"validate.tollgate.dev" denied the request`)
			}
			if byServer && byTollgate {
				require.NoError(t, err)
			}
			require.Equal(t, d.want, verdictOf(byServer, byTollgate), "the API server says %v, Tollgate: %s", err, got.body)
		})
	}
}

func verdictOf(byServer, byTollgate bool) verdict {
	switch {
	case byServer && byTollgate:
		return neither
	case byServer:
		return onlyTollgate
	case byTollgate:
		return onlyServer
	default:
		return both
	}
}
