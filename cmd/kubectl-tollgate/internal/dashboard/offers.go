package dashboard

import (
	"slices"
	"strconv"
	"strings"
)

// offers reports whether the page of a frame, nil for none, offers a command. The objects of a command
// are those of the frame, so that no argument is a flag but the ones here.
func (f *frame) offers(args []string) bool {
	if f == nil || len(args) < 2 {
		return false
	}
	command, objects, object := strings.Join(args[:2], " "), args[2:], ""
	if len(objects) == 1 {
		object = objects[0]
	}
	switch command {
	case "pause all", "resume all":
		return len(objects) == 0
	case "pause policy", "resume policy":
		return f.hasPolicy(object)
	case "approve node", "approve rule", "approve patch":
		return len(objects) == 2 && isNumber(objects[1]) &&
			slices.ContainsFunc(f.shown.Taints, func(p progress) bool { return p.Kind == args[1] && p.Name == objects[0] })
	case "explain node":
		return hasName(f.shown.Nodes, object)
	case "explain device":
		return hasName(f.shown.Devices, object)
	case "explain pod":
		return len(objects) == 3 && objects[1] == "--namespace" && f.hasPod(objects[2], objects[0])
	default:
		return args[0] == "release" && isNumber(object) && f.hasPolicy(args[1])
	}
}

// isNumber reports whether an argument is the number of pods that the user has seen: more may be held
// when the command runs.
func isNumber(arg string) bool {
	number, found := strings.CutPrefix(arg, "--pods=")
	pods, err := strconv.ParseInt(number, 10, 32)
	return found && err == nil && pods > 0
}

func (f *frame) hasPolicy(name string) bool {
	return slices.ContainsFunc(f.shown.Policies, func(p policy) bool { return p.Name == name })
}

func hasName(all []tainted, name string) bool {
	return slices.ContainsFunc(all, func(t tainted) bool { return t.Name == name })
}

// hasPod reports whether the list has a pod.
func (f *frame) hasPod(namespace, name string) bool {
	for key := range f.pods {
		if strings.HasPrefix(key, namespace+"/"+name+"/") {
			return true
		}
	}
	return false
}
