package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Claim is the explanation of a claim, by itself or as one of a pod.
type Claim struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Answer says how the claim is, in one sentence.
	Answer    string `json:"answer"`
	Found     bool   `json:"found"`
	Allocated bool   `json:"allocated"`
	// ReservedFor names who uses it.
	ReservedFor []string      `json:"reservedFor,omitempty"`
	Requests    []Request     `json:"requests,omitempty"`
	Devices     []ClaimDevice `json:"devices,omitempty"`
	Placement   *Placement    `json:"placement,omitempty"`
	Missing     []string      `json:"missing,omitempty"`

	// blocked says why it cannot be allocated, empty where that is not known here.
	blocked string
}

// Request is a request of a claim, or an alternative of one.
type Request struct {
	Name  string `json:"name"`
	Class string `json:"class"`
	// Asks is how many devices, 0 for all.
	Asks int64 `json:"asks"`
	// AdminAccess is true if the request takes devices beside those that use them.
	AdminAccess bool     `json:"adminAccess,omitempty"`
	Tolerations []string `json:"tolerations,omitempty"`
	// Candidates are the devices that the request selects, wherever they are; absent once
	// the claim is allocated, and where devices are not known.
	Candidates *Candidates `json:"candidates,omitempty"`

	tolerations []resourcev1.DeviceToleration
}

// Candidates counts devices.
type Candidates struct {
	Selected int `json:"selected"`
	// Tainted have taints that are not tolerated, Taken are allocated to other claims
	// without admin access, and Free are the rest.
	Tainted int `json:"tainted"`
	Taken   int `json:"taken"`
	Free    int `json:"free"`
	// Taints are those that are not tolerated, with where they come from.
	Taints []string `json:"taints,omitempty"`
	// NoClass is true when the DeviceClass does not exist.
	NoClass bool `json:"noClass,omitempty"`
}

// ClaimDevice is a device of an allocation.
type ClaimDevice struct {
	Device  string  `json:"device"`
	Request string  `json:"request"`
	Taints  []Taint `json:"taints,omitempty"`
}

// Claim explains a claim of the namespace of the world.
func (w *World) Claim(ctx context.Context, namespace, name string, now time.Time) (*Claim, error) {
	c := w.explainClaim(ctx, namespace, name, now)
	c.Missing = w.Missing
	stored := w.claim(name)
	if stored == nil {
		return c, nil
	}
	return c, w.claimPlacement(ctx, c, stored)
}

// explainClaim explains a claim apart from what policies gave it.
func (w *World) explainClaim(ctx context.Context, namespace, name string, now time.Time) *Claim {
	c := &Claim{Kind: "ResourceClaim", Namespace: namespace, Name: name}
	stored := w.claim(name)
	if stored == nil && w.Unread["resourceclaims"] {
		c.Answer = "It is not known how it is: ResourceClaims could not be read."
		return c
	}
	if stored == nil {
		c.blocked = "claim " + name + " does not exist"
		c.Answer = sentence("not found: namespace " + namespace + " has no ResourceClaim " + name)
		return c
	}
	c.Found, c.Allocated = true, stored.Status.Allocation != nil
	for i := range stored.Status.ReservedFor {
		c.ReservedFor = append(c.ReservedFor, stored.Status.ReservedFor[i].Resource+"/"+stored.Status.ReservedFor[i].Name)
	}
	c.Requests = requestsOf(&stored.Spec)
	if !c.Allocated {
		w.unallocated(ctx, c, stored)
		return c
	}
	w.allocated(c, stored, now)
	return c
}

// requestsOf returns the requests of a claim and their alternatives, in order.
func requestsOf(spec *resourcev1.ResourceClaimSpec) []Request {
	var requests []Request
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if r.Exactly != nil {
			request := newRequest(r.Name, r.Exactly.DeviceClassName, r.Exactly.AllocationMode, r.Exactly.Count, r.Exactly.Tolerations)
			request.AdminAccess = r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess
			requests = append(requests, request)
		}
		for j := range r.FirstAvailable {
			sub := &r.FirstAvailable[j]
			requests = append(requests, newRequest(r.Name+"/"+sub.Name, sub.DeviceClassName, sub.AllocationMode, sub.Count, sub.Tolerations))
		}
	}
	return requests
}

func newRequest(name, class string, mode resourcev1.DeviceAllocationMode, count int64, tolerations []resourcev1.DeviceToleration) Request {
	r := Request{Name: name, Class: class, Asks: max(count, 1), tolerations: tolerations}
	if mode == resourcev1.DeviceAllocationModeAll {
		r.Asks = 0
	}
	for i := range tolerations {
		r.Tolerations = append(r.Tolerations, deviceTolerationWords(&tolerations[i]))
	}
	return r
}

// allocated tells of a claim with devices.
func (w *World) allocated(c *Claim, stored *resourcev1.ResourceClaim, now time.Time) {
	kept := tracker.ClaimOf(stored)
	var bad []string
	for i := range kept.Devices {
		used := &kept.Devices[i]
		d := ClaimDevice{Device: used.ID.String(), Request: stored.Status.Allocation.Devices.Results[i].Request}
		taints := w.Tracker.DeviceTaints(used.ID)
		for j := range taints {
			m := w.meetAllocated(now, used, &taints[j])
			if repels(taints[j].Effect) && !m.Tolerated {
				bad = append(bad, m.Taint+" of "+d.Device+" ("+m.Source+")")
			}
			d.Taints = append(d.Taints, m)
		}
		c.Devices = append(c.Devices, d)
	}
	c.Answer = "It has " + counted(len(c.Devices), "device") + ", and none of them has a taint that it does not tolerate."
	if len(bad) > 0 {
		c.Answer = "It has " + counted(len(c.Devices), "device") + ", with taints that it does not tolerate: " + some(bad) + "."
		c.blocked = "claim " + c.Name + " has a device with a taint that it does not tolerate: " + some(bad)
	}
}

// meetAllocated says what a taint of an allocated device means to who uses it.
func (w *World) meetAllocated(now time.Time, used *tracker.AllocatedDevice, taint *tracker.Taint) Taint {
	m := meetDevice(used.Tolerations, taint)
	m.Device = used.ID.String()
	if taint.Effect != corev1.TaintEffectNoExecute {
		return m
	}
	m.Leaves = w.leaves(now, tracker.Situation{
		Pod:     tracker.Pod{NodeName: "any"},
		Devices: []tracker.TaintedDevice{{ID: used.ID, Tolerations: used.Tolerations, Taints: []tracker.Taint{*taint}}},
	})
	return m
}

// unallocated tells of a claim without devices: which there would be, and what is against
// them.
func (w *World) unallocated(ctx context.Context, c *Claim, stored *resourcev1.ResourceClaim) {
	c.Answer = "It is not allocated: nothing is known here that is against it, and the scheduler allocates it for the first pod that uses it."
	if w.Inventory == nil {
		return
	}
	problems := map[string][]string{}
	alternatives := map[string]int{}
	for i := range c.Requests {
		r := &c.Requests[i]
		r.Candidates = w.candidates(ctx, r, selectorsOf(&stored.Spec, r.Name))
		parent, _, _ := strings.Cut(r.Name, "/")
		alternatives[parent]++
		if problem := r.problem(); problem != "" {
			problems[parent] = append(problems[parent], problem)
		}
	}
	for i := range c.Requests {
		parent, _, _ := strings.Cut(c.Requests[i].Name, "/")
		if list := problems[parent]; len(list) > 0 && len(list) == alternatives[parent] {
			c.blocked = "claim " + c.Name + " cannot be allocated: " + strings.Join(list, ", and ")
			c.Answer = "It is not allocated, and cannot be: " + strings.Join(list, ", and ") + "."
			return
		}
	}
}

// selectorsOf returns the selectors of a request, or of an alternative.
func selectorsOf(spec *resourcev1.ResourceClaimSpec, name string) []resourcev1.DeviceSelector {
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if r.Name == name && r.Exactly != nil {
			return r.Exactly.Selectors
		}
		for j := range r.FirstAvailable {
			if r.Name+"/"+r.FirstAvailable[j].Name == name {
				return r.FirstAvailable[j].Selectors
			}
		}
	}
	return nil
}

// Taken are the devices that claims have, those with admin access apart: who has that takes
// a device from nobody.
type Taken map[device.ID]bool

// Add takes in a claim.
func (t Taken) Add(claim *resourcev1.ResourceClaim) {
	if claim.Status.Allocation == nil {
		return
	}
	results := claim.Status.Allocation.Devices.Results
	for i := range results {
		if r := &results[i]; r.AdminAccess == nil || !*r.AdminAccess {
			t[device.ID{Driver: r.Driver, Pool: r.Pool, Name: r.Device}] = true
		}
	}
}

// asked is the class by which devices are found that satisfy a request. No DeviceClass has
// such a name, so that no patch means it.
const asked = "as a request asks"

// candidates returns the devices that satisfy a request.
func (w *World) candidates(ctx context.Context, r *Request, selectors []resourcev1.DeviceSelector) *Candidates {
	class := w.Classes[r.Class]
	if class == nil {
		return &Candidates{NoClass: true}
	}
	both := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: asked},
		Spec:       resourcev1.DeviceClassSpec{Selectors: slices.Concat(class.Spec.Selectors, selectors)},
	}
	found := &Candidates{}
	taints := map[string]int{}
	for d := range w.Inventory(devices.Filter{Class: asked}, both).Devices(ctx) {
		found.Selected++
		bad := w.untolerated(d.Device, r.tolerations)
		shared := r.AdminAccess || d.Spec.AllowMultipleAllocations != nil && *d.Spec.AllowMultipleAllocations
		switch {
		case len(bad) > 0:
			found.Tainted++
		case !shared && w.Taken[d.Device]:
			found.Taken++
		default:
			found.Free++
		}
		for _, text := range bad {
			taints[text]++
		}
	}
	for text, devices := range taints {
		found.Taints = append(found.Taints, text+"; "+counted(devices, "device")+")")
	}
	slices.Sort(found.Taints)
	return found
}

// untolerated returns the taints of a device that keep a request from it. The last bracket
// is open.
func (w *World) untolerated(id device.ID, tolerations []resourcev1.DeviceToleration) []string {
	var bad []string
	taints := w.Tracker.DeviceTaints(id)
	for i := range taints {
		if m := meetDevice(tolerations, &taints[i]); repels(taints[i].Effect) && !m.Tolerated {
			text := m.Taint + " (" + m.Source
			if near := nearWords(m.Near); near != "" {
				text += ", " + near
			}
			bad = append(bad, text)
		}
	}
	return bad
}

// problem says why there are not enough devices for a request; empty if that is not known.
func (r *Request) problem() string {
	c := r.Candidates
	switch {
	case c.NoClass:
		return "DeviceClass " + r.Class + " of request " + r.Name + " does not exist"
	case c.Selected == 0:
		return "no device is what request " + r.Name + " asks for (DeviceClass " + r.Class + ")"
	case int64(c.Free) >= max(r.Asks, 1):
		// All are those of one node, so that one which is free may do.
		return ""
	}
	asks := "all"
	if r.Asks > 0 {
		asks = strconv.FormatInt(r.Asks, 10)
	}
	var against []string
	if c.Tainted > 0 {
		against = append(against, fmt.Sprintf("%d %s taints that it does not tolerate: %s", c.Tainted, has(c.Tainted), some(c.Taints)))
	}
	if c.Taken > 0 {
		is := "are"
		if c.Taken == 1 {
			is = "is"
		}
		against = append(against, strconv.Itoa(c.Taken)+" "+is+" allocated to other claims")
	}
	text := fmt.Sprintf("request %s asks for %s of %s (DeviceClass %s)", r.Name, asks, counted(c.Selected, "device"), r.Class)
	if len(against) > 0 {
		text += ", of which " + joined(against)
	}
	return text
}

// claimsOf explains the claims of a pod.
func (w *World) claimsOf(ctx context.Context, p *Pod, pod *corev1.Pod, now time.Time) {
	for _, ref := range tracker.PodOf(pod).Claims {
		p.Claims = append(p.Claims, *w.explainClaim(ctx, pod.Namespace, ref.Name, now))
	}
}

// blockedClaims says which claims of a pending pod cannot be allocated, or used.
func (p *Pod) blockedClaims() []Cause {
	var causes []Cause
	for i := range p.Claims {
		if p.Claims[i].blocked != "" {
			causes = append(causes, Cause{CauseClaim, p.Claims[i].blocked})
		}
	}
	return causes
}
