package tracker_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

const (
	// modelOperations is how many random operations are made, unless the variable of
	// that name says otherwise; make soak asks for a million.
	modelOperations   = 20_000
	operationsEnv     = "TOLLGATE_MODEL_OPERATIONS"
	seedEnv           = "TOLLGATE_MODEL_SEED"
	operationsAWorld  = 500
	modelDevices      = 4
	modelPods         = 7
	modelClaims       = 5
	modelRules        = 4
	modelSlices       = 5
	modelGenerations  = 3
	staleEvery        = 12
	unknownDevicesFor = 20
)

// naive holds the objects and nothing else, and computes every answer from
// scratch, by the words of docs/rules.md.
type naive struct {
	nodes   map[string]tracker.Node
	slices  map[string]tracker.Slice
	rules   map[string]tracker.Rule
	claims  map[string]tracker.Claim
	pods    map[string]tracker.Pod
	devices bool
	groups  bool
}

// taintsOf returns the taints of a device as text: the slices of the newest
// generation of the pool, by name (DE-16), then the rules that select it, by name
// (DE-20, DE-21).
func (n *naive) taintsOf(id device.ID) []string {
	newest := n.newest(id)
	var all []string
	for _, name := range sortedNames(n.slices) {
		s := n.slices[name]
		if s.Driver != id.Driver || s.Pool != id.Pool || s.Generation != newest {
			continue
		}
		for _, d := range s.Devices {
			if d.Name == id.Name {
				for _, taint := range d.Taints {
					all = append(all, describe(taint, "resourceslice/"+name))
				}
			}
		}
	}
	for _, name := range sortedNames(n.rules) {
		r := n.rules[name]
		if !r.Selects {
			continue
		}
		driver, hasDriver := r.Selector.Driver()
		pool, hasPool := r.Selector.Pool()
		dev, hasDevice := r.Selector.Name()
		if (!hasDriver || driver == id.Driver) && (!hasPool || pool == id.Pool) && (!hasDevice || dev == id.Name) {
			all = append(all, describe(r.Taint, "devicetaintrule/"+name))
		}
	}
	return all
}

// newest returns the newest generation of the pool of a device.
func (n *naive) newest(id device.ID) int64 {
	newest := int64(-1)
	for _, s := range n.slices {
		if s.Driver == id.Driver && s.Pool == id.Pool {
			newest = max(newest, s.Generation)
		}
	}
	return newest
}

func describe(taint resourcev1.DeviceTaint, source string) string {
	return fmt.Sprintf("%s=%s:%s@%d from %s", taint.Key, taint.Value, taint.Effect, taint.TimeAdded.Unix(), source)
}

// usable says by which claims a pod has devices (DE-03 to DE-09).
func (n *naive) usable(pod tracker.Pod) []tracker.Claim {
	var usable []tracker.Claim
	for _, ref := range pod.Claims {
		claim, ok := n.claims[ref.Name]
		if !ok || !claim.Allocated || pod.NodeName == "" {
			continue
		}
		group := n.groups && pod.PodGroup != ""
		owned := !ref.Generated
		if c := claim.Controller; c != nil {
			owned = owned || c.UID == pod.UID || (group && c.Kind == "PodGroup" && c.Name == pod.PodGroup)
		}
		reserved := slices.ContainsFunc(claim.Consumers, func(c resourcev1.ResourceClaimConsumerReference) bool {
			return c.UID == pod.UID || (group && c.Resource == "podgroups" && c.Name == pod.PodGroup)
		})
		twice := slices.ContainsFunc(usable, func(c tracker.Claim) bool { return c.Name == claim.Name })
		if owned && reserved && !twice {
			usable = append(usable, claim)
		}
	}
	return usable
}

// situation returns what holds for a pod, as text.
func (n *naive) situation(pod tracker.Pod) string {
	var parts []string
	for _, taint := range n.nodes[pod.NodeName].Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			parts = append(parts, fmt.Sprintf("node %s@%d", taint.Key, taint.TimeAdded.Unix()))
		}
	}
	if n.devices {
		for _, claim := range n.usable(pod) {
			for _, d := range claim.Devices {
				evicting := slices.DeleteFunc(n.taintsOf(d.ID), func(s string) bool { return !strings.Contains(s, ":NoExecute@") })
				if len(evicting) > 0 {
					parts = append(parts, fmt.Sprintf("%s %s %s %s %v", claim.Name, d.ID, textOfTolerations(d.Tolerations), textOfWindow(claim.Window), evicting))
				}
			}
		}
	}
	return withWindow(parts, pod.Window)
}

// textOf returns a situation of the tracker in the same words.
func textOf(s tracker.Situation) string {
	var parts []string
	for _, taint := range s.Taints {
		parts = append(parts, fmt.Sprintf("node %s@%d", taint.Key, taint.TimeAdded.Unix()))
	}
	for _, d := range s.Devices {
		var taints []string
		for _, taint := range d.Taints {
			taints = append(taints, textOfTaint(taint))
		}
		parts = append(parts, fmt.Sprintf("%s %s %s %s %v", d.Claim.Name, d.ID, textOfTolerations(d.Tolerations), textOfWindow(d.Window), taints))
	}
	return withWindow(parts, s.Pod.Window)
}

// withWindow adds the window of a pod for which something holds.
func withWindow(parts []string, window *tracker.Window) string {
	if len(parts) > 0 && window != nil {
		parts = append(parts, textOfWindow(window))
	}
	return strings.Join(parts, "; ")
}

func textOfWindow(window *tracker.Window) string {
	return "given " + v1alpha1.FormatWindow(window.Tolerations())
}

func textOfTolerations(tolerations []resourcev1.DeviceToleration) string {
	var texts []string
	for _, toleration := range tolerations {
		texts = append(texts, fmt.Sprintf("%s for %d", toleration.Key, *toleration.TolerationSeconds))
	}
	return strings.Join(texts, ", ")
}

func textOfTaint(taint tracker.Taint) string {
	return fmt.Sprintf("%s=%s:%s@%d from %s/%s", taint.Key, taint.Value, taint.Effect, taint.TimeAdded.Unix(), taint.Source.Kind, taint.Source.Name)
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// situations returns what holds for every pod on a node.
func (n *naive) situations() map[tracker.Key]string {
	all := map[tracker.Key]string{}
	for _, pod := range n.pods {
		if pod.NodeName != "" {
			all[pod.Key] = n.situation(pod)
		}
	}
	return all
}

// world is a tracker and a model that are told the same.
type world struct {
	*rand.Rand
	tracker *tracker.Tracker
	model   naive
	version int
}

func newWorld(random *rand.Rand) *world {
	w := &world{Rand: random, tracker: tracker.New(), version: 1000}
	w.model = naive{
		nodes: map[string]tracker.Node{}, slices: map[string]tracker.Slice{}, rules: map[string]tracker.Rule{},
		claims: map[string]tracker.Claim{}, pods: map[string]tracker.Pod{},
	}
	return w
}

// next returns the version of a new object, or sometimes one that is long past.
func (w *world) next() string {
	if w.IntN(staleEvery) == 0 {
		return strconv.Itoa(1 + w.IntN(999))
	}
	w.version++
	return strconv.Itoa(w.version)
}

// newer reports whether a version takes the place of the one that is known, empty
// for none.
func newer(version, known string) bool {
	if known == "" {
		return true
	}
	a, errA := strconv.Atoi(version)
	b, errB := strconv.Atoi(known)
	return errA == nil && errB == nil && a >= b
}

func (w *world) deviceTaint() resourcev1.DeviceTaint {
	effects := []resourcev1.DeviceTaintEffect{
		resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoExecute,
		resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone, "Unknown",
	}
	return resourcev1.DeviceTaint{
		Key: "k" + strconv.Itoa(w.IntN(2)), Value: strconv.Itoa(w.IntN(2)), Effect: effects[w.IntN(len(effects))],
		TimeAdded: new(metav1.NewTime(start.Add(time.Duration(w.IntN(3)) * time.Second))),
	}
}

func (w *world) id() device.ID {
	return device.ID{
		Driver: "d" + strconv.Itoa(w.IntN(2)), Pool: "p" + strconv.Itoa(w.IntN(2)), Name: "x" + strconv.Itoa(w.IntN(modelDevices)),
	}
}

func (w *world) slice() tracker.Slice {
	i := w.IntN(modelSlices)
	s := tracker.Slice{
		Name: "s" + strconv.Itoa(i), UID: types.UID(strconv.Itoa(w.IntN(2))),
		Driver: "d" + strconv.Itoa(i%2), Pool: "p" + strconv.Itoa(i/2%2), Generation: int64(w.IntN(modelGenerations)),
	}
	for _, x := range w.Perm(modelDevices)[:w.IntN(modelDevices)] {
		d := tracker.Device{Name: "x" + strconv.Itoa(x)}
		for range w.IntN(3) {
			d.Taints = append(d.Taints, w.deviceTaint())
		}
		s.Devices = append(s.Devices, d)
	}
	return s
}

func (w *world) rule() tracker.Rule {
	id := w.id()
	var selector *resourcev1.DeviceTaintSelector
	if w.IntN(8) > 0 {
		selector = &resourcev1.DeviceTaintSelector{}
		if w.IntN(2) == 0 {
			selector.Driver = &id.Driver
		}
		if w.IntN(2) == 0 {
			selector.Pool = &id.Pool
		}
		if w.IntN(2) == 0 {
			selector.Device = &id.Name
		}
	}
	written := &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: selector, Taint: w.deviceTaint()}}
	if w.IntN(2) == 0 {
		writtenFor(written, w.patch(), w.IntN(2) == 0)
	}
	r := tracker.RuleOf(written)
	r.Name, r.UID = "r"+strconv.Itoa(w.IntN(modelRules)), types.UID(strconv.Itoa(w.IntN(2)))
	return r
}

func podKey(i, incarnation int) tracker.Key {
	return tracker.Key{Namespace: "ns", Name: "pod" + strconv.Itoa(i), UID: types.UID(fmt.Sprintf("pod%d-%d", i, incarnation))}
}

func (w *world) tolerations() []resourcev1.DeviceToleration {
	var tolerations []resourcev1.DeviceToleration
	for range w.IntN(3) {
		tolerations = append(tolerations, resourcev1.DeviceToleration{Key: "k" + strconv.Itoa(w.IntN(2)), TolerationSeconds: new(w.Int64N(2))})
	}
	return tolerations
}

// amended returns a claim that differs from one that is known in one thing, or one
// that has nothing to do with it.
func (w *world) amended() tracker.Claim {
	fresh := w.claim()
	known, ok := w.model.claims[fresh.Name]
	if !ok || w.IntN(3) == 0 {
		return fresh
	}
	switch w.IntN(5) {
	case 0:
		known.Controller = fresh.Controller
	case 3:
		known.Window = w.window()
	case 1:
		known.Consumers = fresh.Consumers
	case 2:
		known.UID = fresh.UID
	default:
		known.Devices = slices.Clone(known.Devices)
		for i := range known.Devices {
			known.Devices[i].Tolerations = w.tolerations()
		}
	}
	return known
}

func (w *world) claim() tracker.Claim {
	c := tracker.Claim{
		ClaimName: tracker.ClaimName{Namespace: "ns", Name: "c" + strconv.Itoa(w.IntN(modelClaims))},
		UID:       types.UID(strconv.Itoa(w.IntN(2))), Allocated: w.IntN(5) > 0, Window: w.window(),
	}
	switch w.IntN(3) {
	case 0:
		c.Controller = &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", UID: podKey(w.IntN(modelPods), w.IntN(2)).UID}
	case 1:
		c.Controller = &metav1.OwnerReference{APIVersion: "scheduling.k8s.io/v1", Kind: "PodGroup", Name: "g" + strconv.Itoa(w.IntN(2)), UID: "group"}
	}
	if !c.Allocated {
		return c
	}
	for range 1 + w.IntN(3) {
		c.Devices = append(c.Devices, tracker.AllocatedDevice{ID: w.id(), Tolerations: w.tolerations()})
	}
	for _, i := range w.Perm(modelPods)[:w.IntN(modelPods)] {
		c.Consumers = append(c.Consumers, resourcev1.ResourceClaimConsumerReference{Resource: "pods", UID: podKey(i, w.IntN(2)).UID})
	}
	if w.IntN(3) == 0 {
		c.Consumers = append(c.Consumers, resourcev1.ResourceClaimConsumerReference{
			APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g" + strconv.Itoa(w.IntN(2)), UID: "group",
		})
	}
	return c
}

func (w *world) pod() tracker.Pod {
	p := tracker.Pod{Key: podKey(w.IntN(modelPods), w.IntN(2)), Finished: w.IntN(6) == 0, Window: w.window()}
	if w.IntN(2) == 0 {
		p.Origin = &tracker.Origin{Labels: tracker.Labels{{Key: "app", Value: "a" + strconv.Itoa(w.IntN(2))}}}
	}
	if w.IntN(6) > 0 {
		p.NodeName = "n" + strconv.Itoa(w.IntN(2))
	}
	for range w.IntN(3) {
		p.Claims = append(p.Claims, tracker.PodClaim{Name: "c" + strconv.Itoa(w.IntN(modelClaims)), Generated: w.IntN(2) == 0})
	}
	if w.IntN(2) == 0 {
		p.PodGroup = "g" + strconv.Itoa(w.IntN(2))
	}
	return p
}

func (w *world) node() tracker.Node {
	name := "n" + strconv.Itoa(w.IntN(2))
	n := tracker.Node{Name: name, UID: types.UID(name)}
	if w.IntN(3) == 0 {
		n.Taints = []corev1.Taint{taint("gpu")}
	}
	for _, key := range []string{"gpu", corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if w.IntN(3) == 0 {
			n.Taints = append(n.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	if w.IntN(6) == 0 {
		n.Labels = tracker.Labels{{Key: "node.kubernetes.io/exclude-disruption"}}
	}
	return n
}

func (w *world) window() *tracker.Window {
	if w.IntN(3) > 0 {
		return nil
	}
	return &tracker.Window{{Key: "k" + strconv.Itoa(w.IntN(2)), Seconds: 1 + w.Int64N(2)}}
}

// step makes one random operation on both, and returns what it was, which pods
// the tracker says are concerned, and, where it was asked before, what would change.
func (w *world) step() (what string, named []tracker.Key, foretold []tracker.Change, asked bool) {
	version := w.next()
	switch w.IntN(12) {
	case 0, 1, 2:
		return w.writeSlice(version)
	case 3, 4, 5:
		return w.writeRule(version)
	case 6:
		n := w.node()
		n.ResourceVersion = version
		if w.IntN(8) == 0 {
			delete(w.model.nodes, n.Name)
			return "delete node " + n.Name, w.tracker.DeleteNode(n.Name, n.UID), nil, false
		}
		foretold, asked = w.tracker.IfNode(n, start), newer(version, w.model.nodes[n.Name].ResourceVersion)
		if asked {
			w.model.nodes[n.Name] = n
		}
		return "node " + n.Name, w.tracker.SetNode(n, start), foretold, asked
	case 7, 8, 9:
		c := w.amended()
		c.ResourceVersion = version
		if w.IntN(8) == 0 {
			old, ok := w.model.claims[c.Name]
			if ok && old.UID == c.UID {
				delete(w.model.claims, c.Name)
			}
			return "delete claim " + c.Name, w.tracker.DeleteClaim(c.ClaimName, c.UID), nil, false
		}
		if w.IntN(4) == 0 {
			old, ok := w.model.claims[c.Name]
			if ok && old.UID == c.UID && newer(version, old.ResourceVersion) {
				w.model.claims[c.Name] = c
			}
			return "refresh claim " + c.Name, w.tracker.RefreshClaim(c), nil, false
		}
		if newer(version, w.model.claims[c.Name].ResourceVersion) {
			w.model.claims[c.Name] = c
		}
		return "claim " + c.Name, w.tracker.SetClaim(c), nil, false
	case 10:
		return w.writePod(version)
	}
	if w.IntN(unknownDevicesFor) == 0 {
		w.model.devices = !w.model.devices
		return "devices known", w.tracker.SetDevicesKnown(w.model.devices), nil, false
	}
	if !w.model.devices {
		w.model.devices = true
		return "devices known", w.tracker.SetDevicesKnown(true), nil, false
	}
	w.model.groups = !w.model.groups
	return "pod groups", w.tracker.SetPodGroups(w.model.groups), nil, false
}

func (w *world) writeSlice(version string) (string, []tracker.Key, []tracker.Change, bool) {
	s := w.slice()
	s.ResourceVersion = version
	old, known := w.model.slices[s.Name]
	if w.IntN(6) == 0 {
		if known && old.UID == s.UID {
			delete(w.model.slices, s.Name)
		}
		return "delete slice " + s.Name, w.tracker.DeleteSlice(s.Name, s.UID), nil, false
	}
	if w.IntN(4) == 0 {
		if known && s.UID == old.UID && newer(version, old.ResourceVersion) {
			w.model.slices[s.Name] = s
		}
		return "refresh slice " + s.Name, w.tracker.RefreshSlice(s, "", start), nil, false
	}
	foretold, asked := w.tracker.IfSlice(s, start), newer(version, old.ResourceVersion)
	if asked {
		w.model.slices[s.Name] = s
	}
	return "slice " + s.Name, w.tracker.SetSlice(s, start), foretold, asked
}

func (w *world) writeRule(version string) (string, []tracker.Key, []tracker.Change, bool) {
	r := w.rule()
	r.ResourceVersion = version
	old, known := w.model.rules[r.Name]
	if w.IntN(6) == 0 {
		foretold, asked := []tracker.Change(nil), false
		if known && old.UID == r.UID {
			delete(w.model.rules, r.Name)
			foretold, asked = w.tracker.IfRuleDeleted(r.Name), true
		}
		return "delete rule " + r.Name, w.tracker.DeleteRule(r.Name, r.UID), foretold, asked
	}
	if w.IntN(4) == 0 {
		if known && r.UID == old.UID && newer(version, old.ResourceVersion) {
			w.model.rules[r.Name] = r
		}
		return "refresh rule " + r.Name, w.tracker.RefreshRule(r, "", start), nil, false
	}
	foretold, asked := w.tracker.IfRule(r, start), newer(version, old.ResourceVersion)
	if asked {
		w.model.rules[r.Name] = r
	}
	return "rule " + r.Name, w.tracker.SetRule(r, start), foretold, asked
}

func (w *world) writePod(version string) (string, []tracker.Key, []tracker.Change, bool) {
	p := w.pod()
	p.ResourceVersion = version
	name := string(p.UID)
	old := w.model.pods[name]
	if w.IntN(5) == 0 {
		delete(w.model.pods, name)
		return "delete pod " + name, w.tracker.DeletePod(p.Key), nil, false
	}
	if newer(version, old.ResourceVersion) {
		if p.NodeName == "" {
			delete(w.model.pods, name)
		} else {
			w.model.pods[name] = p
		}
	}
	return "pod " + name, w.tracker.SetPod(p), nil, false
}

func environment(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

func TestModelK02(t *testing.T) {
	t.Parallel()
	seed := uint64(environment(t, seedEnv, int(time.Now().UnixNano())))
	operations := environment(t, operationsEnv, modelOperations)
	t.Logf("%s=%d %s=%d", seedEnv, seed, operationsEnv, operations)
	random := rand.New(rand.NewPCG(seed, seed))
	var w *world
	for i := range operations {
		if i%operationsAWorld == 0 {
			w = newWorld(random)
		}
		before, twinned := w.model.situations(), w.model.twinned()
		what, named, foretold, asked := w.step()
		after := w.model.situations()
		described := fmt.Sprintf("operation %d, %s, seed %d", i, what, seed)
		w.check(t, described, after)
		w.checkTwins(t, described, twinned, named)
		w.checkPatches(t, described)
		w.checkOutage(t, described)
		w.checkBudgets(t, described)
		checkNamed(t, what, before, after, named)
		if asked {
			checkForetold(t, what, before, after, foretold)
		}
	}
}

// check compares every answer of the tracker with the model's.
func (w *world) check(t *testing.T, what string, want map[tracker.Key]string) {
	t.Helper()
	var exposed []tracker.Key
	for i := range modelPods {
		for incarnation := range 2 {
			key := podKey(i, incarnation)
			got, ok := w.tracker.Lookup(key)
			text, known := want[key]
			require.Equal(t, known, ok, what)
			require.Equal(t, text, textOf(got), what)
			if text != "" {
				exposed = append(exposed, key)
			}
		}
	}
	require.ElementsMatch(t, exposed, w.tracker.Exposed(), what)
	live := 0
	for _, pod := range w.model.pods {
		if !pod.Finished {
			live++
		}
	}
	require.Equal(t, live, w.tracker.Live(), what)
	id := w.id()
	var texts []string
	for _, taint := range w.tracker.DeviceTaints(id) {
		texts = append(texts, textOfTaint(taint))
	}
	require.Equal(t, w.model.taintsOf(id), texts, what)
	w.checkImpact(t, what)
}

func (w *world) checkImpact(t *testing.T, what string) {
	t.Helper()
	name := "r" + strconv.Itoa(w.IntN(modelRules))
	rule, known := w.model.rules[name]
	impact, ok := w.tracker.Impact(name)
	require.Equal(t, known && w.model.devices, ok, what)
	if !ok {
		return
	}
	alone := naive{claims: w.model.claims, rules: map[string]tracker.Rule{name: rule}, groups: w.model.groups, devices: true}
	evicting := rule
	evicting.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	alone.rules[name] = evicting
	var want, got []string
	for _, pod := range w.model.pods {
		if text := alone.situation(pod); text != "" {
			want = append(want, string(pod.UID)+" "+inOrder(text))
		}
	}
	for _, s := range impact.Pods {
		got = append(got, string(s.Pod.UID)+" "+inOrder(textOf(s)))
	}
	require.ElementsMatch(t, want, got, what)
	require.True(t, slices.IsSortedFunc(impact.Pods, func(a, b tracker.Situation) int { return cmp.Compare(a.Pod.Name, b.Pod.Name) }), what)
	allocated := 0
	for _, claim := range w.model.claims {
		for _, d := range claim.Devices {
			if len(alone.taintsOf(d.ID)) > 0 {
				allocated++
			}
		}
	}
	require.Equal(t, allocated, impact.Allocated, what)
	published := 0
	for _, slice := range w.model.slices {
		for _, d := range slice.Devices {
			id := device.ID{Driver: slice.Driver, Pool: slice.Pool, Name: d.Name}
			if slice.Generation == w.model.newest(id) && len(alone.taintsOf(id)) > 0 {
				published++
			}
		}
	}
	require.Equal(t, published, impact.Published, what)
}

// inOrder sorts what a text lists: Impact goes by claims in no order.
func inOrder(text string) string {
	parts := strings.Split(text, "; ")
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// checkNamed makes sure that every pod whose situation changed was named.
func checkNamed(t *testing.T, what string, before, after map[tracker.Key]string, named []tracker.Key) {
	t.Helper()
	for key := range union(before, after) {
		if before[key] != after[key] {
			require.Contains(t, named, key, what)
		}
	}
	once := map[tracker.Key]struct{}{}
	for _, key := range named {
		once[key] = struct{}{}
	}
	require.Len(t, named, len(once), "%s: named twice", what)
}

// checkForetold makes sure that what would change was what did.
func checkForetold(t *testing.T, what string, before, after map[tracker.Key]string, foretold []tracker.Change) {
	t.Helper()
	want, got := map[tracker.Key]string{}, map[tracker.Key]string{}
	for key := range union(before, after) {
		if before[key] != after[key] {
			want[key] = before[key] + " => " + after[key]
		}
	}
	for _, change := range foretold {
		if text := textOf(change.Before) + " => " + textOf(change.After); textOf(change.Before) != textOf(change.After) {
			require.NotContains(t, got, change.After.Pod.Key, "%s: foretold twice", what)
			got[change.After.Pod.Key] = text
		}
	}
	require.Equal(t, want, got, what)
}

func union(a, b map[tracker.Key]string) map[tracker.Key]struct{} {
	keys := map[tracker.Key]struct{}{}
	for key := range a {
		keys[key] = struct{}{}
	}
	for key := range b {
		keys[key] = struct{}{}
	}
	return keys
}
