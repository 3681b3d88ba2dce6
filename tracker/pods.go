package tracker

import (
	"slices"
)

// SetPod records a pod. A pod without a node has no taints yet and is not kept.
func (t *Tracker) SetPod(pod Pod) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.setPod(t.pods[pod.Namespace][pod.Key], pod)
}

// RefreshPod records a pod that the API server returned to a request of our own.
// Like RefreshNode, it changes nothing unless that very pod is known.
func (t *Tracker) RefreshPod(pod Pod) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.pods[pod.Namespace][pod.Key]
	if old == nil {
		return nil
	}
	return t.setPod(old, pod)
}

// setPod puts pod in the place of old, nil for none.
func (t *Tracker) setPod(old *Pod, pod Pod) []Key {
	if old != nil && Older(pod.ResourceVersion, old.ResourceVersion) {
		return nil
	}
	if pod.NodeName == "" {
		return t.remove(old)
	}
	if old != nil {
		pod.Terminating = pod.Terminating || old.Terminating
		if sameFate(old, &pod) {
			t.replace(old, &pod)
			if slices.Equal(old.Labels(), pod.Labels()) {
				return nil
			}
			// Policies and disruption budgets go by labels.
			return t.ifExposed(&pod)
		}
	}
	left := t.remove(old)
	t.insert(&pod)
	if left != nil {
		return left
	}
	return t.ifExposed(&pod)
}

// DeletePod forgets a pod.
func (t *Tracker) DeletePod(key Key) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remove(t.pods[key.Namespace][key])
}

// SetTerminating records that the API server accepted the deletion of a pod.
func (t *Tracker) SetTerminating(key Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.pods[key.Namespace][key]
	if old == nil || old.Terminating {
		return
	}
	pod := *old
	pod.Terminating = true
	t.replace(old, &pod)
}

// enter makes a pod known by its key and node.
func (t *Tracker) enter(pod *Pod) {
	t.pods.Set(pod.Namespace, pod.Key, pod)
	t.count(pod, 1)
	t.onNode.Set(pod.NodeName, pod, struct{}{})
}

// leave reverts enter, but for the key.
func (t *Tracker) leave(pod *Pod) {
	t.count(pod, -1)
	t.onNode.Delete(pod.NodeName, pod)
}

func (t *Tracker) insert(pod *Pod) {
	t.enter(pod)
	pod.states = nil
	if len(pod.Claims) == 0 {
		return
	}
	states := make([]*claimState, 0, len(pod.Claims))
	for _, ref := range pod.Claims {
		state := t.claim(ClaimName{Namespace: pod.Namespace, Name: ref.Name})
		if !slices.Contains(states, state) {
			state.users = append(state.users, pod)
		}
		states = append(states, state)
	}
	pod.states = &states
}

// replace puts a new version of a pod in the place of the old one, which is on the
// same node and uses the same claims.
func (t *Tracker) replace(old, pod *Pod) {
	t.enter(pod)
	t.leave(old)
	pod.states = old.states
	for _, state := range old.claimStates() {
		if i := slices.Index(state.users, old); i >= 0 {
			state.users[i] = pod
		}
	}
}

// remove forgets a pod, nil for none.
func (t *Tracker) remove(pod *Pod) []Key {
	if pod == nil {
		return nil
	}
	keys := t.ifExposed(pod)
	t.pods.Delete(pod.Namespace, pod.Key)
	t.leave(pod)
	for i, state := range pod.claimStates() {
		state.users = without(state.users, pod)
		t.pruneClaim(ClaimName{Namespace: pod.Namespace, Name: pod.Claims[i].Name})
	}
	return keys
}

// count counts a pod, if it lives.
func (t *Tracker) count(pod *Pod, times int) {
	if !pod.Finished && !pod.Terminating {
		t.live += times
	}
}

// ifExposed returns the key of pod when a taint holds for it: without one, a pod's
// fate is to stay, whatever else changes.
func (t *Tracker) ifExposed(pod *Pod) []Key {
	if !t.exposed(pod) {
		return nil
	}
	return []Key{pod.Key}
}

func (t *Tracker) exposed(pod *Pod) bool {
	return len(t.nodes[pod.NodeName].taints) > 0 || t.onTaintedDevice(pod)
}

// onTaintedDevice reports whether a NoExecute taint of a device holds for pod.
func (t *Tracker) onTaintedDevice(pod *Pod) bool {
	return len(t.actual().held(pod)) > 0
}
