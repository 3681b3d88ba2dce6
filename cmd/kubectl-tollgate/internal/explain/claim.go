package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Claim is the explanation of a claim, by itself or as one of a pod.
type Claim struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Answer describes the claim in one sentence.
	Answer    string `json:"answer"`
	Found     bool   `json:"found"`
	Allocated bool   `json:"allocated"`
	// ReservedFor are the consumers, as resource/name.
	ReservedFor []string      `json:"reservedFor,omitempty"`
	Requests    []Request     `json:"requests,omitempty"`
	Devices     []ClaimDevice `json:"devices,omitempty"`
	Placement   *Placement    `json:"placement,omitempty"`
	Missing     []string      `json:"missing,omitempty"`

	// blocked is why it cannot be allocated or used; empty if unknown.
	blocked string
	// asked are the requests as PlacementPolicies see them.
	asked []placement.ClaimRequest
}

// Request is a request of a claim, or an alternative of one.
type Request struct {
	Name  string `json:"name"`
	Class string `json:"class"`
	// Asks is the number of devices, 0 for all.
	Asks int64 `json:"asks"`
	// AdminAccess is true if the request shares devices with other claims.
	AdminAccess bool     `json:"adminAccess,omitempty"`
	Tolerations []string `json:"tolerations,omitempty"`
	// Candidates are the devices on all nodes that the request selects; absent if the claim is
	// allocated, or devices are not known.
	Candidates *Candidates `json:"candidates,omitempty"`

	exact *resourcev1.ExactDeviceRequest
}

// Candidates counts devices.
type Candidates struct {
	Selected int `json:"selected"`
	// Tainted have taints that are not tolerated, Taken are allocated to other claims
	// without admin access, and Free are the rest.
	Tainted int `json:"tainted"`
	Taken   int `json:"taken"`
	Free    int `json:"free"`
	// Taints are the taints that are not tolerated, with their sources.
	Taints []string `json:"taints,omitempty"`
	// NoClass is true if the DeviceClass does not exist.
	NoClass bool `json:"noClass,omitempty"`
}

// ClaimDevice is a device of an allocation.
type ClaimDevice struct {
	Device  string  `json:"device"`
	Request string  `json:"request"`
	Taints  []Taint `json:"taints,omitempty"`
}

// Claim explains a claim of the namespace of the world.
func (w *World) Claim(ctx context.Context, namespace, name string) (*Claim, error) {
	c := w.explainClaim(ctx, namespace, name)
	c.Missing = w.Missing()
	stored := named(w.Claims, name)
	if stored == nil || w.Namespace == nil {
		return c, nil
	}
	var err error
	c.Placement, err = w.placement(ctx, stored, []Claim{*c}, nil, func(matching placement.Matching) []placement.Gift { return matching.ClaimGifts(c.asked) })
	return c, err
}

// explainClaim explains a claim without PlacementPolicies.
func (w *World) explainClaim(ctx context.Context, namespace, name string) *Claim {
	c := &Claim{Kind: "ResourceClaim", Namespace: namespace, Name: name}
	stored := named(w.Claims, name)
	switch {
	case stored != nil:
	case w.Unread("resourceclaims"):
		c.Answer = "It is not known how it is: ResourceClaims could not be read."
		return c
	default:
		c.blocked = "claim " + name + " does not exist"
		c.Answer = "Not found: namespace " + namespace + " has no ResourceClaim " + name + "."
		return c
	}
	c.Found, c.Allocated = true, stored.Status.Allocation != nil
	for _, consumer := range stored.Status.ReservedFor {
		c.ReservedFor = append(c.ReservedFor, consumer.Resource+"/"+consumer.Name)
	}
	c.setRequests(&stored.Spec)
	if c.Allocated {
		w.allocated(c, stored)
	} else {
		w.unallocated(ctx, c)
	}
	return c
}

// count returns the number of devices, or all.
func (r *Request) count() string {
	if r.Asks > 0 {
		return strconv.FormatInt(r.Asks, 10)
	}
	return "all"
}

// setRequests sets the requests of a claim and their alternatives, in order.
func (c *Claim) setRequests(spec *resourcev1.ResourceClaimSpec) {
	add := func(name string, path *field.Path, r *resourcev1.ExactDeviceRequest) {
		request := Request{
			Name: name, Class: r.DeviceClassName, Asks: max(r.Count, 1), AdminAccess: ptr.Deref(r.AdminAccess, false), exact: r,
		}
		if r.AllocationMode == resourcev1.DeviceAllocationModeAll {
			request.Asks = 0
		}
		for _, t := range selector.FromDevices(r.Tolerations) {
			request.Tolerations = append(request.Tolerations, tolerationWords(t))
		}
		c.Requests = append(c.Requests, request)
		c.asked = append(c.asked, placement.ClaimRequest{Path: path.Child("tolerations"), Tolerations: r.Tolerations})
	}
	for _, r := range spec.Devices.Requests {
		path := field.NewPath("spec", "devices", "requests").Key(r.Name)
		if r.Exactly != nil {
			add(r.Name, path, r.Exactly)
		}
		for _, sub := range r.FirstAvailable {
			add(r.Name+"/"+sub.Name, path.Child("firstAvailable").Key(sub.Name), &resourcev1.ExactDeviceRequest{
				DeviceClassName: sub.DeviceClassName, AllocationMode: sub.AllocationMode, Count: sub.Count, Tolerations: sub.Tolerations, Selectors: sub.Selectors,
			})
		}
	}
}

// allocated explains a claim with devices.
func (w *World) allocated(c *Claim, stored *resourcev1.ResourceClaim) {
	var bad []string
	for i, used := range tracker.ClaimOf(stored).Devices {
		d := ClaimDevice{Device: used.ID.String(), Request: stored.Status.Allocation.Devices.Results[i].Request}
		for _, taint := range w.Tracker.DeviceTaints(used.ID) {
			m := matchDevice(used.Tolerations, &taint)
			m.Device = d.Device
			if m.effect == corev1.TaintEffectNoExecute {
				m.Leaves = cli.TimeOrNone(w.Rules.Decide(w.Now, tracker.Situation{
					Pod:     tracker.Pod{NodeName: "any"},
					Devices: []tracker.TaintedDevice{{ID: used.ID, Tolerations: used.Tolerations, Taints: []tracker.Taint{taint}}},
				}).At)
			}
			if m.repels() {
				bad = append(bad, m.Taint+" of "+d.Device+" ("+m.Source+")")
			}
			d.Taints = append(d.Taints, m)
		}
		c.Devices = append(c.Devices, d)
	}
	c.Answer = "It has " + cli.Counted(len(c.Devices), "device")
	if len(bad) == 0 {
		c.Answer += ", and none of them has a taint that it does not tolerate."
		return
	}
	c.Answer += ", with taints that it does not tolerate: " + cli.Few(bad) + "."
	c.blocked = "claim " + c.Name + " has a device with a taint that it does not tolerate: " + cli.Few(bad)
}

// unallocated explains a claim without devices. It cannot be allocated if there are problems with
// all alternatives of a request.
func (w *World) unallocated(ctx context.Context, c *Claim) {
	c.Answer = "It is not allocated: nothing is known here that is against it, and the scheduler allocates it for the first pod that uses it."
	if w.Inventory == nil {
		return
	}
	problems := map[string][]string{} // those of all alternatives of a request
	for i := range c.Requests {
		r := &c.Requests[i]
		r.Candidates = w.candidates(ctx, r)
		request, _, _ := strings.Cut(r.Name, "/")
		problems[request] = append(problems[request], r.problem())
	}
	for _, r := range c.Requests {
		request, _, _ := strings.Cut(r.Name, "/")
		if !slices.Contains(problems[request], "") {
			why := strings.Join(problems[request], ", and ")
			c.blocked = "claim " + c.Name + " cannot be allocated: " + why
			c.Answer = "It is not allocated, and cannot be: " + why + "."
			return
		}
	}
}

// candidates counts the devices that match a request.
func (w *World) candidates(ctx context.Context, r *Request) *Candidates {
	class := w.Classes[r.Class]
	if class == nil {
		return &Candidates{NoClass: true}
	}
	selectors := devices.CompileClass(slices.Concat(class.Spec.Selectors, r.exact.Selectors))
	found, taints := &Candidates{}, map[string]int{}
	//nolint:contextcheck // An expression ends by its cost, not by a context.
	for d := range w.Inventory.Devices(ctx) {
		if !selectors.Selects(d) {
			continue
		}
		found.Selected++
		tainted := false
		for _, taint := range w.Tracker.DeviceTaints(d.Device) {
			if m := matchDevice(r.exact.Tolerations, &taint); m.repels() {
				tainted = true
				taints[m.Taint+" ("+cli.Joined(append([]string{m.Source}, m.Near...))]++ // The bracket is open.
			}
		}
		switch shared := r.AdminAccess || ptr.Deref(d.Spec.AllowMultipleAllocations, false); {
		case tainted:
			found.Tainted++
		case !shared && slices.ContainsFunc(d.Claims, func(claim devices.Claim) bool { return !claim.AdminAccess }):
			found.Taken++
		default:
			found.Free++
		}
	}
	for text, devices := range taints {
		found.Taints = append(found.Taints, text+"; "+cli.Counted(devices, "device")+")")
	}
	slices.Sort(found.Taints)
	return found
}

// problem returns why there are not enough devices for a request; empty if unknown.
func (r *Request) problem() string {
	c := r.Candidates
	switch {
	case c.NoClass:
		return "DeviceClass " + r.Class + " of request " + r.Name + " does not exist"
	case c.Selected == 0:
		return "no device is what request " + r.Name + " asks for (DeviceClass " + r.Class + ")"
	case int64(c.Free) >= max(r.Asks, 1):
		// All devices of one node are enough, so that one that is free may do.
		return ""
	}
	text := fmt.Sprintf("request %s asks for %s of %s (DeviceClass %s)", r.Name, r.count(), cli.Counted(c.Selected, "device"), r.Class)
	separator := ", of which"
	if c.Tainted > 0 {
		text += fmt.Sprintf("%s %d %s taints that it does not tolerate: %s", separator, c.Tainted, cli.Plural(c.Tainted, "has", "have"), cli.Few(c.Taints))
		separator = " and"
	}
	if c.Taken > 0 {
		text += fmt.Sprintf("%s %d %s allocated to other claims", separator, c.Taken, cli.Plural(c.Taken, "is", "are"))
	}
	return text
}
