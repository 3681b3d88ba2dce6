package evictor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// policyCommands are the commands of a story about policies and budgets.
func (s *scene) policyCommands(name string, args []string) map[string]func() {
	return map[string]func(){
		"set-policy":    func() { s.definePolicy(name, args[2:]) },
		"delete-policy": func() { s.dropPolicy(name) },
		"budget":        func() { s.allow(name, s.number(args[2])) },
		"room":          func() { s.setRoom(s.number(name)) },
		"release":       func() { s.evictor.WakeHeld(types.UID(name + "-policy-uid")) },
		"held":          s.listHeld,
	}
}

func (s *scene) number(text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(s.t, err)
	return n
}

func (s *scene) definePolicy(name string, args []string) {
	s.setPolicy(newPolicy(name, func(spec *evictionSpec) {
		for _, arg := range args {
			field, value, _ := strings.Cut(arg, "=")
			switch field {
			case "paused":
				spec.Paused = true
			case "breaker":
				bounded(spec)
			case "method":
				byEviction(spec)
			case "delete-after":
				d, err := time.ParseDuration(value)
				require.NoError(s.t, err)
				deleteAfter(d)(spec)
			default:
				require.Fail(s.t, "no such field: "+field)
			}
		}
	}))
}

// setRoom has all breakers let so many pods go in all.
func (s *scene) setRoom(pods int) {
	if s.rooms == nil {
		s.rooms = &rooms{gone: func() int { return s.goneOf(podA) + s.goneOf(podB) }}
		s.options.Breaker, s.options.Workers = s.rooms.Ask, 1
	}
	s.rooms.set(pods, 0)
}

// listHeld lists what is held, and why.
func (s *scene) listHeld() {
	var lines []string
	for _, held := range s.evictor.Held() {
		lines = append(lines, fmt.Sprintf("held: pod %s, %s because of %s %s, policy %q", held.Key.Name, held.Reason, held.Carrier.Kind, held.Carrier.Name, held.PolicyName))
	}
	slices.Sort(lines)
	for _, line := range lines {
		s.say(line)
	}
}
