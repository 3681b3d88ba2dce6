package preview

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
)

// approvedOn is an approval of a taint k on a node, made a minute before noon for an
// hour.
func approvedOn(name string, pods int, change func(*Approved)) Approved {
	a := Approved{
		Carrier: tracker.Source{Kind: tracker.SourceNode, Name: name}, Key: "k", Pods: pods,
		From: at(-60), Until: at(3540),
	}
	if change != nil {
		change(&a)
	}
	return a
}

// crowd returns a site with a node n on which there are pods, which is tainted at noon.
func crowd(pods int) *site {
	s := newSite(clocktesting.NewFakePassiveClock(noon))
	s.tracker.SetNode(node("n"), at(-120))
	for i := range pods {
		s.tracker.SetPod(pod("p"+strconv.Itoa(i), "n"))
	}
	s.tracker.SetNode(node("n", exampleTaint("k", 0)), noon)
	return s
}

func (s *site) unapproved(approved ...Approved) int {
	return s.ledger.Others(Query{Window: tenMinutes, Governs: governed, Approved: approved})
}

func TestWhatWasApprovedDoesNotCountAgainstOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		approved []Approved
		want     int
	}{
		"none":                        {nil, 10},
		"for as many":                 {[]Approved{approvedOn("n", 10, nil)}, 0},
		"for more":                    {[]Approved{approvedOn("n", 300, nil)}, 0},
		"for fewer lets through none": {[]Approved{approvedOn("n", 4, nil)}, 6},
		"two together":                {[]Approved{approvedOn("n", 4, nil), approvedOn("n", 5, nil)}, 1},
		"for another node":            {[]Approved{approvedOn("m", 10, nil)}, 10},
		"for a rule of that name":     {[]Approved{approvedOn("n", 10, func(a *Approved) { a.Carrier.Kind = tracker.SourceRule })}, 10},
		"for another key":             {[]Approved{approvedOn("n", 10, func(a *Approved) { a.Key = "l" })}, 10},
		"that was made afterwards":    {[]Approved{approvedOn("n", 10, func(a *Approved) { a.From = at(1) })}, 10},
		"that was over before":        {[]Approved{approvedOn("n", 10, func(a *Approved) { a.Until = noon })}, 10},
		"that was made that second":   {[]Approved{approvedOn("n", 10, func(a *Approved) { a.From = noon })}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := crowd(10)
			require.Equal(t, tt.want, s.unapproved(tt.approved...), "while they are due")
			for i := range 10 {
				s.leave(pod("p"+strconv.Itoa(i), "n"))
			}
			require.Equal(t, tt.want, s.unapproved(tt.approved...), "when they have left")
		})
	}

	t.Run("writes that were admitted and not seen yet", func(t *testing.T) {
		t.Parallel()
		s := newSite(clocktesting.NewFakePassiveClock(noon))
		s.tracker.SetNode(node("n"), at(-120))
		s.tracker.SetPod(pod("p", "n"))
		s.ledger.Admit(s.strikes(t, node("n"), node("n", exampleTaint("k", 0))))
		require.Equal(t, 1, s.unapproved())
		require.Zero(t, s.unapproved(approvedOn("n", 1, nil)))
		require.Equal(t, 1, s.unapproved(approvedOn("m", 1, nil)))
	})

	t.Run("a pod that something else hits as well counts", func(t *testing.T) {
		t.Parallel()
		s := crowd(2)
		s.tracker.SetNode(node("n", exampleTaint("k", 0), exampleTaint("l", 0)), noon)
		both := func(*Hit) bool { return true }
		query := Query{Window: tenMinutes, Governs: both, Approved: []Approved{approvedOn("n", 9, nil)}}
		require.Equal(t, 2, s.ledger.Others(query))
		query.Approved = append(query.Approved, approvedOn("n", 9, func(a *Approved) { a.Key = "l" }))
		require.Zero(t, s.ledger.Others(query))
		query.Governs = governed
		require.Zero(t, s.ledger.Others(query))
	})

	t.Run("those that the write hits itself take no room from what was approved", func(t *testing.T) {
		t.Parallel()
		s := crowd(10)
		own := s.strikes(t, node("n"), node("n", exampleTaint("k", 0)))[:5]
		require.Equal(t, 1, s.ledger.Others(Query{Window: tenMinutes, Governs: governed, Except: own, Approved: []Approved{approvedOn("n", 4, nil)}}))
	})
}

func TestATaintThatIsToCountLaterWasWrittenWhenItWas(t *testing.T) {
	t.Parallel()
	s := newSite(clocktesting.NewFakePassiveClock(noon))
	s.tracker.SetDevicesKnown(true)
	p, claim := userOf("p", "x0")
	s.tracker.SetPod(p)
	s.tracker.SetClaim(claim)
	later := rule("r", &resourcev1.DeviceTaintSelector{}, deviceTaint("k", 86_400))
	later.Created = noon
	s.tracker.SetRule(later, noon)
	approved := approvedOn("r", 1, func(a *Approved) { a.Carrier.Kind = tracker.SourceRule })
	require.Equal(t, 1, s.unapproved())
	require.Zero(t, s.unapproved(approved))
	s.clock.SetTime(at(601))
	require.Zero(t, s.unapproved(), "its window is over, although the taint is ahead")
}

func TestAnApprovalIsReservedForOneWrite(t *testing.T) {
	t.Parallel()
	s := newSite(clocktesting.NewFakePassiveClock(noon))
	s.tracker.SetNode(node("n"), at(-120))
	for i := range 3 {
		s.tracker.SetPod(pod("p"+strconv.Itoa(i), "n"))
	}
	all := s.strikes(t, node("n"), node("n", exampleTaint("k", 0)))
	few := all[:2]
	first := s.ledger.Admit(few)
	require.True(t, s.ledger.Reserve(nil, "a", all), "who only asks takes nothing")
	require.True(t, s.ledger.Reserve(first, "a", few))
	require.True(t, s.ledger.Reserve(first, "a", few), "one write may need it for two limits")

	second := s.ledger.Admit(all)
	require.False(t, s.ledger.Reserve(second, "a", all))
	require.False(t, s.ledger.Reserve(nil, "a", all))
	require.True(t, s.ledger.Reserve(second, "b", all), "another one is free")
	again := s.ledger.Admit(few)
	require.True(t, s.ledger.Reserve(again, "a", few), "the API server asks again when another write came between")
	s.ledger.Withdraw(again)

	s.ledger.Withdraw(first)
	require.True(t, s.ledger.Reserve(second, "a", all), "what was refused gives it back")
	s.clock.SetTime(noon.Add(unseenFor + time.Second))
	require.True(t, s.ledger.Reserve(nil, "b", []Struck{{Key: tracker.Key{Name: "other"}}}), "by now it was seen or failed")
}
