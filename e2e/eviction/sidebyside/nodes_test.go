package sidebyside

import (
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

const hour = 3600

// deletions are the requests by which a pod of the story is evicted.
func (s *stage) deletions() faultproxy.Match {
	return faultproxy.Match{Verbs: []string{"delete"}, Resources: []string{"pods"}, Namespaces: []string{s.namespace}}
}

// identities is about pods that are created anew under the name of an evicted one.
func identities() []row {
	return []row{
		{
			fault: "G01, G02", upstream: "U1",
			story: "while the request to delete a pod is under way, the pod is deleted and created anew on another node, without a taint",
			play: func(s *stage) string {
				s.nodes("tainted", "free")
				s.pod("a", "tainted")
				defer s.proxy.Inject(faultproxy.Fault{Match: s.deletions(), Times: 1, Delay: 8 * time.Second})()
				s.begin()
				s.taint("tainted")
				s.waitMarked("a")
				s.pause(time.Second) // The request to delete it has begun.
				s.remove("a")
				anew := s.pod("a", "free")
				s.after(16 * time.Second)
				return s.fate("a", anew)
			},
			kubernetes: evicted, tollgate: stays,
		},
	}
}

// missed is about an evictor that hears of a pod that is gone and of the one created anew
// under its name as of one change.
func missed() []row {
	return []row{{
		fault: "G02", upstream: "U4",
		story: "the watch of pods stands still and breaks off; meanwhile a pod is evicted and created anew on the tainted node",
		play: func(s *stage) string {
			s.nodes("tainted")
			old := s.pod("a", "tainted")
			s.waitRunning("a")
			s.pause(time.Second) // It knows of the pod.
			watches := faultproxy.Match{Verbs: []string{"watch"}, Resources: []string{"pods"}}
			thaw := s.proxy.Freeze(watches)
			defer thaw()
			s.taint("tainted")
			s.waitGone("a", old)
			anew := s.pod("a", "tainted")
			// It has to list the pods anew.
			expire := s.proxy.Inject(faultproxy.Fault{Match: watches, Status: http.StatusGone})
			defer expire()
			s.proxy.Disconnect()
			thaw()
			s.pause(4 * time.Second)
			expire()
			s.pause(6 * time.Second)
			return s.fate("a", anew)
		},
		kubernetes: stays, tollgate: evicted,
	}}
}

// changes is about what changes while a toleration runs, and about pods that have ended.
func changes() []row {
	change := func(from, to int64) func(s *stage) string {
		return func(s *stage) string {
			s.nodes("tainted")
			uid := s.pod("a", "tainted", from)
			untolerant := s.pod("b", "tainted")
			s.taint("tainted")
			s.waitGone("b", untolerant) // The toleration of the other one runs.
			s.tolerate("a", to)
			s.begin()
			return s.fateWithin(21*time.Second, "a", uid)
		}
	}
	return []row{
		{
			fault: "G06", upstream: "U5",
			story: "the toleration of a pod is lengthened from 15 s to an hour while it runs",
			play:  change(15, hour), kubernetes: evicted, tollgate: stays,
		},
		{
			fault: "G06", upstream: "U5",
			story: "the toleration of a pod is shortened from an hour to 5 s while it runs",
			play:  change(hour, 5), kubernetes: stays, tollgate: evicted,
		},
		{
			fault: "G08", upstream: "U10",
			story: "a pod has ended well on a node that is tainted afterwards",
			play: func(s *stage) string {
				s.nodes("tainted")
				uid := s.pod("a", "tainted")
				s.waitRunning("a")
				s.do("end pod", func() error {
					_, err := s.client.CoreV1().Pods(s.namespace).Patch(s.ctx, "a", types.StrategicMergePatchType,
						[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
					return err
				})
				s.begin()
				s.taint("tainted")
				s.after(8 * time.Second)
				return s.fate("a", uid)
			},
			kubernetes: evicted, tollgate: stays,
		},
	}
}

// stale is about an evictor that does not hear what happens to nodes.
func stale() []row {
	return []row{{
		fault: "G03", upstream: "U3",
		story: "the watch of nodes stands still; a taint is taken off its node, and then a pod is bound to it",
		play: func(s *stage) string {
			s.nodes("tainted")
			s.taint("tainted")
			old := s.pod("a", "tainted")
			s.waitGone("a", old) // It knows of the taint.
			thaw := s.proxy.Freeze(faultproxy.Match{Resources: []string{"nodes"}})
			defer thaw()
			s.setTaints("tainted")
			s.begin()
			anew := s.pod("b", "tainted")
			return s.fateWithin(5*time.Second, "b", anew)
		},
		kubernetes: evicted, tollgate: stays,
	}}
}

// restarts is about an evictor that is started anew.
func restarts() []row {
	return []row{{
		fault: "H03", upstream: "U6",
		story: "the evictor crashes 8 s into a toleration of 12 s; it is looked 6 s after that has run out",
		play: func(s *stage) string {
			s.nodes("tainted")
			uid := s.pod("a", "tainted", 12)
			s.begin()
			s.taint("tainted")
			s.after(8 * time.Second)
			s.do("restart", func() error { return s.restart(s.ctx) })
			s.after(18 * time.Second)
			return s.fate("a", uid)
		},
		kubernetes: stays, tollgate: evicted,
	}}
}
