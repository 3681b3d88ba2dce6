package evictor

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

var update = flag.Bool("update", false, "write what the scenarios lead to into their files")

// TestScenarios runs the stories in testdata. A file is a list of blocks: lines
// of commands, a line of four dashes, and what the evictor did by then, with the
// seconds since the start of the story. Lines that start with # are comments.
//
//	set-node NAME [KEY[=VALUE][:EFFECT][@none|@DURATION] ...]   create a node or set its taints; a taint is added now unless said
//	set-pod NAME node=NODE [uid=UID] [tolerate=KEY[:SECONDS],...]  create a pod or replace its spec; * is every key
//	        [claims=CLAIM,...] [extended=CLAIM]  the claims that it names, or that the scheduler made
//	set-slice NAME GENERATION DEVICE[=TAINT[,TAINT ...]] ...  of the one driver and pool that there are
//	set-rule NAME all|none|DEVICE TAINT [uid=UID]            with taints as above
//	set-claim NAME [uid=UID] [for=POD,...] [of=POD] [devices=DEVICE,...] [tolerate=KEY[:SECONDS][~],...]
//	        reserved for pods, made for a pod, allocated devices; ~ is a toleration of every effect
//	delete-slice NAME, delete-rule NAME, delete-claim NAME
//	set-policy NAME [paused] [breaker] [method=Evict] [delete-after=DURATION], delete-policy NAME   over every taint
//	room N                    every breaker lets N pods go in all; release NAME tells what that policy holds
//	budget NAME N             a PodDisruptionBudget over pods with app=NAME lets N go
//	held                      list the pods that are held
//	phase NAME PHASE, delete-node NAME, delete-pod NAME, kubelet NAME   kubelet lets go of a terminating pod
//	lag on|off                the watch falls behind, or catches up
//	refuse PREFIX, allow      deny requests that start so, or none any more
//	start, restart            of the evictor
//	advance DURATION          let time pass, a second at a time
//	pods                      list the pods as they are
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var played string
			inWorld(t, func(w *world) { played = play(w, string(text)) })
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(played), 0o600))
				return
			}
			require.Equal(t, string(text), played)
		})
	}
}

// play runs the blocks of a story and returns it with what they lead to.
func play(w *world, story string) string {
	var told []string
	for block := range strings.SplitSeq(strings.TrimRight(story, "\n"), "\n\n") {
		commands, _, _ := strings.Cut(block, "\n----")
		s := &scene{world: w}
		for line := range strings.SplitSeq(commands, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				s.run(strings.Fields(line))
				s.collect()
			}
		}
		if strings.HasPrefix(block, "#") && !strings.Contains(block, "\n----") {
			told = append(told, block)
			continue
		}
		told = append(told, strings.Join(append([]string{commands, "----"}, s.lines...), "\n"))
	}
	return strings.Join(told, "\n\n") + "\n"
}

// scene is one block of a story.
type scene struct {
	*world

	lines []string
}

func (s *scene) say(text string) {
	s.lines = append(s.lines, fmt.Sprintf("%4ds %s", int(time.Since(s.started).Seconds()), text))
}

// collect tells what was asked for and announced since the last time.
func (s *scene) collect() {
	requests := s.api.took()
	slices.Sort(requests)
	for _, req := range requests {
		s.say(string(req))
	}
	events := append(s.recorder.took(), s.deviceRecorder.took()...)
	slices.Sort(events)
	for _, event := range events {
		s.say("event: " + event)
	}
}

func (s *scene) run(args []string) {
	s.t.Helper()
	name := ""
	if len(args) > 1 {
		name = args[1]
	}
	commands := map[string]func(){
		"start":       s.begin,
		"restart":     s.restart,
		"set-node":    func() { s.setNode(name, s.taints(args[2:])...) },
		"set-pod":     func() { s.definePod(name, args[2:]) },
		"phase":       func() { s.update("default/"+name, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPhase(args[2]) }) },
		"delete-pod":  func() { s.update("default/"+name, func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }) },
		"kubelet":     func() { s.api.remove("default/" + name); s.pass(0) },
		"delete-node": func() { s.api.remove(name); s.pass(0) },
		"lag":         func() { s.api.setLag(name == "on"); s.pass(0) },
		"refuse":      func() { s.api.setFaults(every(is(strings.Join(args[1:], " ")), errDenied), nil) },
		"allow":       func() { s.api.setFaults(nil, nil) },
		"advance":     func() { s.advance(name) },
		"pods":        s.list,
	}
	maps.Copy(commands, s.deviceCommands(name, args))
	maps.Copy(commands, s.policyCommands(name, args))
	command, ok := commands[args[0]]
	require.True(s.t, ok, "no such command: %s", args[0])
	command()
}

// begin starts the evictor between two seconds, so that nothing that it does on
// its own coincides with a deadline.
func (s *scene) begin() {
	s.pass(time.Second / 2)
	s.start()
}

func (s *scene) advance(text string) {
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	for ; d > 0; d -= time.Second {
		s.pass(min(d, time.Second))
		s.collect()
	}
}

func (s *scene) list() {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.api.objects)) {
		pod, ok := s.api.objects[key].(*corev1.Pod)
		if !ok {
			continue
		}
		state := "stays"
		if pod.DeletionTimestamp != nil {
			state = "terminating"
		}
		if c := tracker.PodOf(pod).Disruption; c != nil {
			state += ", " + c.Reason
		}
		s.say("pod " + pod.Name + " (" + string(pod.UID) + "): " + state)
	}
}

func (s *scene) taints(texts []string) []corev1.Taint {
	var taints []corev1.Taint
	for _, text := range texts {
		text, when, _ := strings.Cut(text, "@")
		text, effect, _ := strings.Cut(text, ":")
		key, value, _ := strings.Cut(text, "=")
		taint := noExecute(key)
		taint.Value = value
		if effect != "" {
			taint.Effect = corev1.TaintEffect(effect)
		}
		if when == "none" {
			taint.TimeAdded = nil
		} else if when != "" {
			d, err := time.ParseDuration(when)
			require.NoError(s.t, err)
			taint.TimeAdded = new(metav1.NewTime(s.started.Add(d)))
		}
		taints = append(taints, taint)
	}
	return taints
}

func (s *scene) definePod(name string, args []string) {
	pod := s.api.pod("default/" + name)
	if pod == nil {
		pod = newPod(name, "n")
	}
	pod.Spec.Tolerations, pod.Spec.ResourceClaims = nil, nil
	for _, arg := range args {
		field, value, _ := strings.Cut(arg, "=")
		switch field {
		case "node":
			pod.Spec.NodeName = value
		case "uid":
			if pod.UID != types.UID(value) {
				pod = newPod(name, pod.Spec.NodeName)
				pod.UID = types.UID(value)
			}
		case "tolerate":
			for toleration := range strings.SplitSeq(value, ",") {
				pod.Spec.Tolerations = append(pod.Spec.Tolerations, s.toleration(toleration))
			}
		case "app":
			labelled(pod, value)
		default:
			s.deviceField(pod, field, value)
		}
	}
	s.setPod(pod)
}

func (s *scene) toleration(text string) corev1.Toleration {
	key, seconds, limited := strings.Cut(text, ":")
	toleration := forever(strings.TrimPrefix(key, "*"))
	if limited {
		n, err := strconv.ParseInt(seconds, 10, 64)
		require.NoError(s.t, err)
		toleration.TolerationSeconds = &n
	}
	return toleration
}
