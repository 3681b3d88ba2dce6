package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// never stands where a pod need not leave.
const never = "never"

// WriteText writes the explanation for people, seen from now. Wide says all in full.
func (p *Pod) WriteText(w io.Writer, wide bool, now time.Time) error {
	return writePage(w, wide, now, p.Answer, func(page *page) {
		page.line("")
		page.fact("Pod", p.Namespace+"/"+p.Name)
		page.fact("Node", p.Node)
		page.fact("Controller", p.Controller)
		page.fact("Created", page.when(p.Created))
		leaves := "Leaves"
		if p.State == Due || p.State == Held {
			leaves = "Due"
		}
		page.fact(leaves, page.when(p.Leaves))
		p.writeEviction(page)
		if p.Scheduler != nil {
			page.fact("Scheduler", p.Scheduler.Message)
		}
		page.gates(p.Gates)
		page.nodeSets(p.Nodes)
		page.taints("Taints of its node", p.Taints)
		for i := range p.Claims {
			page.claim(&p.Claims[i])
		}
		for i := range p.Spread {
			page.spread(&p.Spread[i])
		}
		page.rulings(p.Tolerations)
		page.placement(p.Placement)
		page.events(p.Events)
	})
}

func (p *Pod) writeEviction(page *page) {
	e := p.Eviction
	if e == nil {
		return
	}
	how := e.By + ", with the method " + e.Method
	if e.Policy != "" {
		how += " of EvictionPolicy " + e.Policy
	}
	if e.DeleteAfter != nil {
		how += ", deleted " + duration.HumanDuration(e.DeleteAfter.Duration) + " after it is due"
	}
	page.fact("Evicted by", how)
	if e.Paused {
		page.fact("Paused", "yes, EvictionPolicy "+e.Policy+" is")
	}
	page.fact("Breakers", strings.Join(e.Breakers, ", "))
	page.fact("Tripped", strings.Join(e.Tripped, ", "))
	var budgets []string
	for _, b := range e.Budgets {
		budgets = append(budgets, fmt.Sprintf("%s (%d may go now)", b.Name, b.Allowed))
	}
	page.fact("Budgets", strings.Join(budgets, ", "))
}

func (p *page) gates(gates []Gate) {
	if len(gates) > 0 {
		p.section("Scheduling gates")
	}
	for i := range gates {
		p.item(gates[i].Name, gates[i].Opens)
	}
}

func (p *page) nodeSets(sets []NodeSet) {
	words := map[Standing]string{NotSelected: "not what it requires", Cordoned: "cordoned", Tainted: "tainted", TooFull: "topology spread", Open: "open"}
	var rows [][]string
	for i := range sets {
		s := &sets[i]
		names := some(s.Nodes)
		if p.wide {
			names = cli.Joined(s.Nodes)
		}
		rows = append(rows, []string{strconv.Itoa(len(s.Nodes)), words[s.Standing], strings.Join(s.Taints, ", "), names})
	}
	p.table("Nodes", []string{"COUNT", "VERDICT", "TAINTS", "NODES"}, rows)
}

func (p *page) taints(title string, taints []Taint) {
	var rows [][]string
	for i := range taints {
		t := &taints[i]
		rows = append(rows, []string{t.Taint, object(t.Source), p.when(t.Since), met(t), p.leaves(t)})
	}
	p.table(title, []string{"TAINT", "FROM", "SINCE", "TOLERATION", "LEAVES"}, rows)
}

// object leaves of a source its kind and its name.
func object(source string) string { return strings.TrimPrefix(source, ofDriver) }

// met says what meets a taint, and if nothing does, what nearly would.
func met(t *Taint) string {
	switch {
	case t.Tolerated:
		return t.By
	case len(t.Near) > 0:
		return "no: " + nearWords(t.Near)
	default:
		return "no"
	}
}

func (p *page) leaves(t *Taint) string {
	if t.Leaves == nil {
		return never
	}
	return p.when(t.Leaves)
}

func (p *page) claim(c *Claim) {
	p.section("Claim " + c.Name)
	p.paragraph("", c.Answer)
	p.claimDetails(c)
}

func (p *page) claimDetails(c *Claim) {
	var requests, devices [][]string
	for i := range c.Requests {
		r := &c.Requests[i]
		count := "all"
		if r.Asks > 0 {
			count = strconv.FormatInt(r.Asks, 10)
		}
		row := []string{r.Name, r.Class, count, strings.Join(r.Tolerations, ", "), "", "", "", ""}
		if d := r.Candidates; d != nil {
			row[4], row[5], row[6], row[7] = strconv.Itoa(d.Selected), strconv.Itoa(d.Tainted), strconv.Itoa(d.Taken), strconv.Itoa(d.Free)
		}
		requests = append(requests, row)
	}
	p.table("Requests of claim "+c.Name, []string{"REQUEST", "CLASS", "ASKS", "TOLERATIONS", "SELECTS", "TAINTED", "TAKEN", "FREE"}, requests)
	for i := range c.Devices {
		d := &c.Devices[i]
		if len(d.Taints) == 0 {
			devices = append(devices, []string{d.Device, d.Request, "", "", "", ""})
		}
		for j := range d.Taints {
			t := &d.Taints[j]
			devices = append(devices, []string{d.Device, d.Request, t.Taint, object(t.Source), met(t), p.leaves(t)})
		}
	}
	p.table("Devices of claim "+c.Name, []string{"DEVICE", "REQUEST", "TAINT", "FROM", "TOLERATION", "LEAVES"}, devices)
}

func (p *page) spread(s *Spread) {
	p.line("")
	p.paragraph("", fmt.Sprintf("Topology spread over %s (%s, maxSkew %d, minDomains %d, nodeTaintsPolicy %s, nodeAffinityPolicy %s)",
		s.TopologyKey, s.WhenUnsatisfiable, s.MaxSkew, s.MinDomains, s.NodeTaintsPolicy, s.NodeAffinity))
	p.paragraph("", fmt.Sprintf("With nodeTaintsPolicy Honor %s, and the emptiest has %s: %s within maxSkew. With Ignore %s, and the emptiest has %s: %s.",
		domainsCount(s.Honor.Domains), counted(s.Honor.Minimum, "pod"), counted(s.Honor.Allows, "node"),
		domainsCount(s.Ignore.Domains), counted(s.Ignore.Minimum, "pod"), counted(s.Ignore.Allows, "node")))
	if len(s.Stuck) > 0 {
		p.paragraph("", "Taints keep the pod from all nodes of "+some(s.Stuck)+" that count: "+some(s.Taints)+".")
	}
	var rows, excluded [][]string
	for i := range s.Domains {
		d := &s.Domains[i]
		counts := strconv.Itoa(d.Nodes)
		if !d.Counts {
			counts = "none counts"
		}
		rows = append(rows, []string{d.Value, counts, strconv.Itoa(d.Pods), skew(d.Honor, s.MaxSkew), skew(d.Ignore, s.MaxSkew)})
	}
	p.table("Domains of "+s.TopologyKey, []string{"DOMAIN", "NODES", "PODS", "SKEW IF HONOR", "SKEW IF IGNORE"}, rows)
	for i := range s.Excluded {
		excluded = append(excluded, []string{strconv.Itoa(len(s.Excluded[i].Nodes)), s.Excluded[i].Why, some(s.Excluded[i].Nodes)})
	}
	p.table("Nodes that do not count", []string{"COUNT", "WHY", "NODES"}, excluded)
}

func domainsCount(n int) string {
	if n == 1 {
		return "1 domain counts"
	}
	return strconv.Itoa(n) + " domains count"
}

func skew(of *int, most int) string {
	switch {
	case of == nil:
		return "does not count"
	case *of > most:
		return strconv.Itoa(*of) + " (too much)"
	default:
		return strconv.Itoa(*of)
	}
}

func (p *page) rulings(rulings []Ruling) {
	var rows [][]string
	for i := range rulings {
		r := &rulings[i]
		verdict := "granted"
		switch {
		case !r.Granted && r.Warns:
			verdict = "not granted (warns)"
		case !r.Granted:
			verdict = "not granted"
		}
		allowed := ""
		if p.wide {
			allowed = r.Allowed
		}
		rows = append(rows, []string{r.Toleration, r.Policy, verdict, allowed})
	}
	p.table("TolerationPolicies about its tolerations, as far as is known without who made it", []string{"TOLERATION", "POLICY", "VERDICT", "ALLOWED"}, rows)
}

func (p *page) placement(given *Placement) {
	if given == nil {
		return
	}
	var rows [][]string
	for i := range given.Gifts {
		g := &given.Gifts[i]
		has := "lacks it"
		if g.Has {
			has = "has it"
		}
		rows = append(rows, []string{strings.Join(g.Policies, ", "), has, g.Field, g.Value})
	}
	p.table("Given by PlacementPolicies", []string{"POLICY", "STATE", "FIELD", "VALUE"}, rows)
	var unknown [][]string
	for _, name := range slices.Sorted(maps.Keys(given.Unknown)) {
		unknown = append(unknown, []string{name, given.Unknown[name]})
	}
	p.table("PlacementPolicies of which it is not known whether they match", []string{"POLICY", "WHY"}, unknown)
}

func (p *page) events(events []Event) {
	if len(events) > 0 {
		p.section("Events")
	}
	for i := range events {
		e := &events[i]
		p.item(p.when(e.At)+", "+e.About, e.Reason+": "+e.Message)
	}
}

func (p *page) fates(fates []Fate) {
	var rows [][]string
	for i := range fates {
		f := &fates[i]
		rows = append(rows, []string{f.Namespace, f.Name, string(f.State), p.when(f.At), f.Because, f.Policy})
	}
	p.table("Pods", []string{"NAMESPACE", "POD", "STATE", "WHEN", "BECAUSE OF", "POLICY"}, rows)
}

// WriteText writes the explanation for people.
func (c *Claim) WriteText(w io.Writer, wide bool, now time.Time) error {
	return writePage(w, wide, now, c.Answer, func(page *page) {
		page.line("")
		page.fact("Claim", c.Namespace+"/"+c.Name)
		page.fact("Reserved for", strings.Join(c.ReservedFor, ", "))
		page.claimDetails(c)
		page.placement(c.Placement)
	})
}

// WriteText writes the explanation for people.
func (n *Node) WriteText(w io.Writer, wide bool, now time.Time) error {
	return writePage(w, wide, now, n.Answer, func(page *page) {
		page.line("")
		page.fact("Node", n.Name)
		if n.Writer != "" {
			page.fact("Taints", "last written by "+n.Writer+" "+page.when(n.Written))
		}
		page.fact("Lacks", strings.Join(n.Lacks, ", "))
		var rows [][]string
		for i := range n.Taints {
			t := &n.Taints[i]
			rows = append(rows, []string{t.Taint, page.when(t.Since), t.Means, t.Registers})
		}
		page.table("Taints", []string{"TAINT", "SINCE", "MEANS", "REGISTERED BY"}, rows)
		page.setters(n.Taints)
		page.fates(n.Pods)
		page.events(n.Events)
	})
}

// setters says who may write the taints of a node, as far as policies do.
func (p *page) setters(taints []NodeTaint) {
	titled := false
	for i := range taints {
		for _, s := range taints[i].Policies {
			if !titled {
				p.section("Who may write them")
			}
			titled = true
			words := []string{s.Setters}
			if s.Limits != "" {
				words = append(words, s.Limits)
			}
			if s.Expires != nil {
				words = append(words, "removed "+p.when(s.Expires))
			}
			p.item(taints[i].Taint+", "+s.Policy, strings.Join(words, "; "))
		}
	}
}

// WriteText writes the explanation for people.
func (d *Device) WriteText(w io.Writer, wide bool, now time.Time) error {
	return writePage(w, wide, now, d.Answer, func(page *page) {
		page.line("")
		page.fact("Device", d.Name)
		page.fact("ResourceSlice", d.ResourceSlice)
		page.fact("Node", d.Node)
		page.fact("Claims", strings.Join(d.Claims, ", "))
		page.fact("Patches", strings.Join(d.Patches, ", "))
		page.fact("Failed", strings.Join(d.Failed, ", "))
		page.fact("Attributes", strings.Join(d.Attributes, ", "))
		page.fact("Capacity", strings.Join(d.Capacity, ", "))
		var rows [][]string
		for i := range d.Taints {
			t := &d.Taints[i]
			rows = append(rows, []string{t.Taint, object(t.Source), page.when(t.Since)})
		}
		page.table("Taints", []string{"TAINT", "FROM", "SINCE"}, rows)
		page.fates(d.Pods)
	})
}
