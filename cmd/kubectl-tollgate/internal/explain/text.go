package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/placement"
)

// write writes the explanation.
func (p *Pod) write(page *page) {
	page.begin(p.Answer)
	page.fact("Pod", p.Namespace+"/"+p.Name)
	page.fact("Node", p.Node)
	page.fact("Controller", p.Controller)
	page.fact("Created", page.when(p.Created))
	leaves := "Leaves"
	if p.State == Due || p.State == Held {
		leaves = "Due"
	}
	page.fact(leaves, page.when(p.Leaves))
	if p.Eviction != nil {
		page.eviction(p.Eviction)
	}
	if p.Scheduler != nil {
		page.fact("Scheduler", p.Scheduler.Message)
	}
	for _, gate := range p.Gates {
		page.item("Scheduling gates", gate.Name, gate.Opens)
	}
	table(page, "Nodes", "COUNT, VERDICT, TAINTS, NODES", p.Nodes, func(s NodeSet) row {
		verdict := map[Standing]string{NotSelected: "not what it requires", Cordoned: "cordoned", Tainted: "tainted", TooFull: "topology spread", Open: "open"}
		names := cli.Few
		if page.wide {
			names = cli.Joined
		}
		return row{strconv.Itoa(len(s.Nodes)), verdict[s.Standing], strings.Join(s.Taints, ", "), names(s.Nodes)}
	})
	table(page, "Taints of its node", "TAINT, FROM, SINCE, TOLERATION, LEAVES", p.Taints, page.taint)
	for _, claim := range p.Claims {
		page.section("Claim " + claim.Name)
		page.paragraph("", claim.Answer)
		page.claim(&claim)
	}
	for _, s := range p.Spread {
		page.spread(&s)
	}
	table(page, "TolerationPolicies about its tolerations, as far as is known without who made it", "TOLERATION, POLICY, VERDICT, ALLOWED", p.Tolerations, func(r Ruling) row {
		cells := row{r.Toleration, r.Policy, "granted"}
		switch {
		case !r.Granted && r.Warns:
			cells[2] = "not granted (warns)"
		case !r.Granted:
			cells[2] = "not granted"
		}
		if page.wide {
			cells = append(cells, r.Allowed)
		}
		return cells
	})
	page.placement(p.Placement)
	page.events(p.Events)
}

func (p *page) eviction(e *Eviction) {
	how := e.By + ", with the method " + e.Method
	if e.Policy != "" {
		how += " of EvictionPolicy " + e.Policy
	}
	if e.DeleteAfter != nil {
		how += ", deleted " + duration.HumanDuration(e.DeleteAfter.Duration) + " after it is due"
	}
	p.fact("Evicted by", how)
	if e.Paused {
		p.fact("Paused", "yes, EvictionPolicy "+e.Policy+" is")
	}
	p.fact("Breakers", e.Breakers...)
	p.fact("Tripped", e.Tripped...)
	var budgets []string
	for _, b := range e.Budgets {
		budgets = append(budgets, fmt.Sprintf("%s (%d may go now)", b.Name, b.Allowed))
	}
	p.fact("Budgets", budgets...)
}

// taint returns the cells of a taint: the taint, the kind and the name of its source, its time, the
// toleration that matches it or those that nearly do, and when the pod leaves because of it.
func (p *page) taint(t Taint) row {
	toleration := "no"
	switch {
	case t.Tolerated:
		toleration = t.By
	case len(t.Near) > 0:
		toleration += ": " + cli.Joined(t.Near)
	}
	return row{t.Taint, strings.TrimPrefix(t.Source, ofDriver), p.when(t.Since), toleration, cmp.Or(p.when(t.Leaves), "never")}
}

func (p *page) claim(c *Claim) {
	table(p, "Requests of claim "+c.Name, "REQUEST, CLASS, ASKS, TOLERATIONS, SELECTS, TAINTED, TAKEN, FREE", c.Requests, func(r Request) row {
		cells := row{r.Name, r.Class, r.count(), strings.Join(r.Tolerations, ", ")}
		if d := r.Candidates; d != nil {
			cells = append(cells, strconv.Itoa(d.Selected), strconv.Itoa(d.Tainted), strconv.Itoa(d.Taken), strconv.Itoa(d.Free))
		}
		return cells
	})
	var rows []row
	for _, d := range c.Devices {
		if len(d.Taints) == 0 {
			rows = append(rows, row{d.Device, d.Request})
		}
		for _, t := range d.Taints {
			cells := p.taint(t)
			rows = append(rows, slices.Concat(row{d.Device, d.Request}, cells[:2], cells[3:])) // without its time
		}
	}
	table(p, "Devices of claim "+c.Name, "DEVICE, REQUEST, TAINT, FROM, TOLERATION, LEAVES", rows, func(cells row) row { return cells })
}

// String returns the counts as text.
func (m Measure) String() string {
	return fmt.Sprintf("%s %s, and the emptiest has %s: %s", cli.Counted(m.Domains, "domain"), cli.Plural(m.Domains, "counts", "count"), cli.Counted(m.Minimum, "pod"), cli.Counted(m.Allows, "node"))
}

func (p *page) spread(s *Spread) {
	p.line("")
	p.paragraph("", fmt.Sprintf("Topology spread over %s (%s, maxSkew %d, minDomains %d, nodeTaintsPolicy %s, nodeAffinityPolicy %s)",
		s.TopologyKey, s.WhenUnsatisfiable, s.MaxSkew, s.MinDomains, s.NodeTaintsPolicy, s.NodeAffinity))
	p.paragraph("", fmt.Sprintf("With nodeTaintsPolicy Honor %s within maxSkew. With Ignore %s.", s.Honor, s.Ignore))
	if len(s.Stuck) > 0 {
		p.paragraph("", "Taints keep the pod from all nodes of "+cli.Few(s.Stuck)+" that count: "+cli.Few(s.Taints)+".")
	}
	skew := func(of *int) string {
		switch {
		case of == nil:
			return "does not count"
		case *of > s.MaxSkew:
			return strconv.Itoa(*of) + " (too much)"
		default:
			return strconv.Itoa(*of)
		}
	}
	table(p, "Domains of "+s.TopologyKey, "DOMAIN, NODES, PODS, SKEW IF HONOR, SKEW IF IGNORE", s.Domains, func(d Domain) row {
		nodes := "none counts"
		if d.Counts {
			nodes = strconv.Itoa(d.Nodes)
		}
		return row{d.Value, nodes, strconv.Itoa(d.Pods), skew(d.Honor), skew(d.Ignore)}
	})
	table(p, "Nodes that do not count", "COUNT, WHY, NODES", s.Excluded, func(e ExcludedNodes) row {
		return row{strconv.Itoa(len(e.Nodes)), e.Why, cli.Few(e.Nodes)}
	})
}

func (p *page) placement(found *Placement) {
	if found == nil {
		return
	}
	table(p, "Given by PlacementPolicies", "POLICY, STATE, FIELD, VALUE", found.Gifts, func(g placement.Gift) row {
		has := "lacks it"
		if g.Has {
			has = "has it"
		}
		return row{cli.Joined(g.Policies), has, g.Field, g.Value}
	})
	table(p, "PlacementPolicies of which it is not known whether they match", "POLICY, WHY", slices.Sorted(maps.Keys(found.Unknown)), func(name string) row {
		return row{name, found.Unknown[name]}
	})
}

func (p *page) events(events []Event) {
	for _, e := range events {
		p.item("Events", p.when(e.At)+", "+e.About, e.Reason+": "+e.Message)
	}
}

func (p *page) fates(fates []Fate) {
	table(p, "Pods", "NAMESPACE, POD, STATE, WHEN, BECAUSE OF, POLICY", fates, func(f Fate) row {
		return row{f.Namespace, f.Name, string(f.State), p.when(f.At), f.Because, f.Policy}
	})
}

// write writes the explanation.
func (c *Claim) write(page *page) {
	page.begin(c.Answer)
	page.fact("Claim", c.Namespace+"/"+c.Name)
	page.fact("Reserved for", c.ReservedFor...)
	page.claim(c)
	page.placement(c.Placement)
}

// write writes the explanation.
func (n *Node) write(page *page) {
	page.begin(n.Answer)
	page.fact("Node", n.Name)
	if n.Writer != "" {
		page.fact("Taints", "last written by "+n.Writer+" "+page.when(n.Written))
	}
	page.fact("Lacks", n.Lacks...)
	table(page, "Taints", "TAINT, SINCE, MEANS, REGISTERED BY", n.Taints, func(t NodeTaint) row {
		return row{t.Taint, page.when(t.Since), t.Means, t.Registers}
	})
	for _, taint := range n.Taints {
		for _, s := range taint.Policies {
			text := s.Setters
			if s.Limits != "" {
				text += "; " + s.Limits
			}
			if s.Expires != nil {
				text += "; removed " + page.when(s.Expires)
			}
			page.item("Who may write them", taint.Taint+", "+s.Policy, text)
		}
	}
	page.fates(n.Pods)
	page.events(n.Events)
}

// write writes the explanation.
func (d *Device) write(page *page) {
	page.begin(d.Answer)
	page.fact("Device", d.Name)
	page.fact("ResourceSlice", d.ResourceSlice)
	page.fact("Node", d.Node)
	page.fact("Claims", d.Claims...)
	page.fact("Patches", d.Patches...)
	page.fact("Failed", d.Failed...)
	page.fact("Attributes", d.Attributes...)
	page.fact("Capacity", d.Capacity...)
	table(page, "Taints", "TAINT, FROM, SINCE", d.Taints, func(t Taint) row {
		return page.taint(t)[:3]
	})
	page.fates(d.Pods)
}
