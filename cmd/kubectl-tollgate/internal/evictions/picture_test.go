package evictions

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

// incident is a cluster with a pod in each state.
func incident(tb testing.TB) *Cluster {
	tb.Helper()
	return world(tb, configv1alpha1.EvictionReplace, gpus,
		node(-time.Minute, "example.com/broken"),
		pod("front-7d9c8b6f5-x2x4k", "front"),
		pod("back-0", "back", tolerated("example.com/broken", "300")),
		pod("db-0", "db"),
		pod("batch-1", "batch"), pod("batch-2", "batch"),
		pod("agent-x7k2p", "agent"),
		pod("report-1", "report"),
		strings.Replace(pod("old-1", "front"), "creationTimestamp", "deletionTimestamp: "+stamped(30*time.Second)+", creationTimestamp", 1),
		budget("db", "db", "0"),
		policy("gentle", "example.com/broken", "priority: 1", "podSelector: {matchLabels: {app: db}}", "method: Evict", "deleteAfter: 30m"),
		policy("batch", "example.com/broken", "priority: 1", "podSelector: {matchLabels: {app: batch}}", "breaker: {maxPods: 1, window: 10m}")+
			"\nstatus: {breaker: {tripped: \"2026-03-01T11:59:10.000000Z\", limit: 1}}",
		policy("agents", "example.com/broken", "priority: 1", "podSelector: {matchLabels: {app: agent}}", "protect: {podSelector: {matchLabels: {app: agent}}}"),
		policy("reports", "example.com/broken", "priority: 1", "podSelector: {matchLabels: {app: report}}", "paused: true"),
	)
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	list := incident(t).List(noon, &Filter{})
	for i := range list {
		list[i].Writers = map[tracker.Source]string{{Kind: tracker.SourceNode, Name: "n1"}: "kubectl-taint"}
	}
	for file, write := range map[string]func(out *bytes.Buffer) error{
		"table.txt":   func(out *bytes.Buffer) error { return WriteTable(out, list, noon, false, false) },
		"colours.txt": func(out *bytes.Buffer) error { return WriteTable(out, list, noon, false, true) },
		"wide.txt":    func(out *bytes.Buffer) error { return WriteTable(out, list, noon, true, false) },
		"names.txt":   func(out *bytes.Buffer) error { return WriteNames(out, list) },
		"list.yaml":   func(out *bytes.Buffer) error { return WriteDocument(out, "yaml", list, noon) },
		"list.json":   func(out *bytes.Buffer) error { return WriteDocument(out, "json", list, noon) },
		"notes.txt": func(out *bytes.Buffer) error {
			_, err := out.WriteString(strings.Join(Notes(list, noon), "\n") + "\n")
			return err
		},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.NoError(t, write(&out))
			golden(t, file, out.String())
			if file == "table.txt" {
				requireFits(t, strings.Split(out.String(), "\n"), cli.Width)
			}
		})
	}
}

func requireFits(t *testing.T, lines []string, width int) {
	t.Helper()
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), width, line)
	}
}

// refusing is a writer that takes nothing.
type refusing struct{}

var errFull = errors.New("no space left")

func (refusing) Write([]byte) (int, error) { return 0, errFull }

func TestSaysThatItCannotWrite(t *testing.T) {
	t.Parallel()
	list := incident(t).List(noon, &Filter{})
	require.ErrorIs(t, WriteTable(refusing{}, list, noon, false, false), errFull)
	require.ErrorIs(t, WriteNames(refusing{}, list), errFull)
	require.ErrorIs(t, WriteDocument(refusing{}, "yaml", list, noon), errFull)
	require.ErrorIs(t, WriteDocument(refusing{}, "json", list, noon), errFull)
	require.ErrorIs(t, changeDocuments(refusing{})(list, noon), errFull)
	require.ErrorIs(t, changeLines(refusing{})(list, noon), errFull)
	require.NoError(t, WriteTable(refusing{}, nil, noon, false, false))
}

func TestWhatOthersWroteTellsATerminalNothing(t *testing.T) {
	t.Parallel()
	const nasty = "refused: \x1b[2J\nby \u202esomebody"
	list := incident(t).List(noon, &Filter{})
	for i := range list {
		list[i].Hold = Hold{Reason: checks.Budget, By: "Pod/web/p", Why: nasty, Word: nasty}
	}
	var out bytes.Buffer
	require.NoError(t, WriteTable(&out, list, noon, false, false))
	require.NoError(t, WriteTable(&out, list, noon, true, false))
	require.NoError(t, changeLines(&out)(list, noon))
	log := NewLog(noon)
	log.Next(list, nil)
	screen := Frame{Now: noon, List: list, Log: log, Holds: Notes(list, noon)}
	out.WriteString(strings.Join(screen.lines(100, 40, false), "\n"))
	require.NotContains(t, out.String(), "\x1b")
	require.NotContains(t, out.String(), "\u202e")
	require.Contains(t, out.String(), "^[[2J by \\u202esomebody")
}

// story follows the incident while pods go, one may stay, and time goes by.
func story(t *testing.T, each func(log *Log, list, changed []Eviction, now time.Time)) {
	t.Helper()
	c := incident(t)
	log := NewLog(noon)
	lives := func(key tracker.Key) bool {
		situation, known := c.Tracker.Lookup(key)
		return known && !situation.Pod.Finished
	}
	look := func(now time.Time) {
		list := c.List(now, &Filter{})
		each(log, list, log.Next(list, lives), now)
	}
	key := func(name string) tracker.Key { return tracker.Key{Namespace: "web", Name: name, UID: types.UID(name)} }
	look(noon)
	look(noon.Add(time.Second))
	c.Tracker.DeletePod(key("old-1"))
	c.Tracker.SetTerminating(key("front-7d9c8b6f5-x2x4k"))
	look(noon.Add(2 * time.Second))
	add(t, c, budget("db", "db", "1"))
	add(t, c, strings.Replace(pod("batch-1", "batch"), "}\nspec:", "}\nstatus: {phase: Succeeded}\nspec:", 1))
	c.Tracker.DeletePod(key("front-7d9c8b6f5-x2x4k"))
	look(noon.Add(5 * time.Minute))
	add(t, c, "kind: Node\nmetadata: {name: n1}\nspec: {}")
	look(noon.Add(6 * time.Minute))
}

func TestEachChangeIsALine(t *testing.T) {
	t.Parallel()
	var text, events bytes.Buffer
	write := changeLines(&text)
	story(t, func(_ *Log, _, changed []Eviction, now time.Time) {
		require.NoError(t, write(changed, now))
		require.NoError(t, changeDocuments(&events)(changed, now))
	})
	golden(t, "changes.txt", text.String())
	requireFits(t, strings.Split(text.String(), "\n"), cli.Width)
	golden(t, "changes.json", events.String())
}

func TestThePictureChanges(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	story(t, func(log *Log, list, _ []Eviction, now time.Time) {
		screen := Frame{Now: now, List: list, Log: log, Holds: Notes(list, now)}
		lines := screen.lines(100, 40, false)
		requireFits(t, lines, 100)
		text.WriteString(strings.Join(lines, "\n") + "\n\n----\n\n")
	})
	golden(t, "screen.txt", text.String())
}

func TestAPictureFitsIntoAnyTerminal(t *testing.T) {
	t.Parallel()
	list := manyPods(t, 200).List(noon, &Filter{})
	log := NewLog(noon)
	log.Next(list, nil)
	screen := Frame{Now: noon, List: list, Log: log, Holds: Notes(list, noon)}
	for _, size := range [][2]int{{0, 0}, {1, 1}, {20, 3}, {80, 8}, {80, 12}, {200, 50}, {300, 400}} {
		lines := screen.lines(size[0], size[1], false)
		require.LessOrEqual(t, len(lines), size[1])
		requireFits(t, lines, size[0])
	}
	golden(t, "many.txt", strings.Join(screen.lines(100, 20, true), "\n")+"\n")
}

func TestABarIsAsLongAsItIsWhateverItShows(t *testing.T) {
	t.Parallel()
	for gone := range 30 {
		for held := range 10 {
			g := Group{Pods: map[State]int{Gone: gone, Due: 1, Held: held, Blocked: held % 3, Protected: gone % 2, Leaving: held % 2}}
			bar, _ := g.bar()
			require.Len(t, bar, barWidth)
			for _, part := range parts {
				require.Equal(t, g.count(part.states) > 0, strings.Contains(bar, string(part.mark)), "%s of %+v", bar, g)
			}
		}
	}
	bar, _ := new(Group{Pods: map[State]int{Gone: 3}}).bar()
	require.Equal(t, strings.Repeat("#", barWidth), bar)
}

func TestManyObjectsAreSummedUp(t *testing.T) {
	t.Parallel()
	screen := Frame{Now: noon, Log: NewLog(noon)}
	for i := range 9 {
		screen.Log.gone[tracker.Source{Kind: tracker.SourceNode, Name: strings.Repeat("long-", 10) + strconv.Itoa(i)}] = 1
	}
	lines := screen.lines(100, 30, false)
	require.Equal(t, "...ng-long-long-long-long-long-0  ["+strings.Repeat("#", barWidth)+"]  1 of 1 gone", lines[2])
	require.Equal(t, "... and pods of 3 other objects", lines[8])
}

func TestOnlyWhoIsProtectedNeedNotLeave(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[State]int{Leaving: 1, Due: 2, Waiting: 1, Blocked: 1, Held: 2, Paused: 1}, Open(incident(t).List(noon, &Filter{})))
}

func BenchmarkScreen10000Pods(b *testing.B) {
	c := manyPods(b, 10_000)
	log := NewLog(noon)
	b.ReportAllocs()
	for b.Loop() {
		list := c.List(noon, &Filter{})
		log.Next(list, func(tracker.Key) bool { return true })
		screen := Frame{Now: noon, List: list, Log: log, Holds: Notes(list, noon)}
		screen.lines(100, 50, false)
	}
}
