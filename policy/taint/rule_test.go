package taint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func TestC25ARuleOverEveryDeviceNeedsASelector(t *testing.T) {
	every := &resourcev1.DeviceTaintSelector{}
	p := newPolicy("p", "*", ofDevices("gpu"), setBy("sre"), limited(v1alpha1.TaintLimits{RequireSelector: true}))
	tests := map[string]struct {
		change RuleChange
		want   policy.Verdict
	}{
		"an effect that is not known becomes NoExecute":   {RuleChange{Old: rule(every, "k", "", "Later"), New: rule(every, "k", "", "NoExecute")}, policy.Denied},
		"an effect that is not known becomes None":        {RuleChange{Old: rule(every, "k", "", "Later"), New: rule(every, "k", "", "None")}, policy.Allowed},
		"an effect becomes one that is not known":         {RuleChange{Old: rule(every, "k", "", "NoExecute"), New: rule(every, "k", "", "Later")}, policy.Denied},
		"the empty selector selects every device":         {RuleChange{New: rule(every, "k", "", "NoExecute")}, policy.Denied},
		"also where nothing is evicted":                   {RuleChange{New: rule(every, "k", "", "None")}, policy.Denied},
		"no selector selects none":                        {RuleChange{New: rule(nil, "k", "", "NoExecute")}, policy.Allowed},
		"a driver is a selector":                          {RuleChange{New: rule(driver("gpu"), "k", "", "NoExecute")}, policy.Allowed},
		"another of fields that are not known":            {RuleChange{Old: rule(every, "k", "", "None"), New: rule(every, "k", "", "None"), Reselected: true}, policy.Denied},
		"a selector that is emptied":                      {RuleChange{Old: rule(driver("gpu"), "k", "", "None"), New: rule(every, "k", "", "None")}, policy.Denied},
		"a selector that is emptied to mean nothing":      {RuleChange{Old: rule(driver("gpu"), "k", "", "None"), New: rule(nil, "k", "", "None")}, policy.Allowed},
		"C28 one that stood may do less":                  {RuleChange{Old: rule(every, "k", "", "NoExecute"), New: rule(every, "k", "", "None")}, policy.Allowed},
		"C28 one that stood may not do more":              {RuleChange{Old: rule(every, "k", "", "None"), New: rule(every, "k", "", "NoExecute")}, policy.Denied},
		"C28 one that stood may not become another taint": {RuleChange{Old: rule(every, "k", "", "None"), New: rule(every, "l", "", "None")}, policy.Denied},
		"one that is deleted":                             {RuleChange{Old: rule(every, "k", "", "NoExecute")}, policy.Allowed},
		"of other drivers":                                {RuleChange{New: rule(driver("nic"), "k", "", "NoExecute")}, policy.Allowed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decision := judge(t, ruleInput(sre, tt.change), p)
			require.Equal(t, tt.want, decision.Verdict, "%v", decision.Findings)
			if tt.want == policy.Denied {
				require.Equal(t, []policy.Reason{policy.SelectorRequired}, reasons(decision))
			}
		})
	}
}

func TestARuleMustHaveStoodAtNoneBeforeItEvicts(t *testing.T) {
	p := newPolicy("p", "*", ofDevices(), setBy("sre"), limited(v1alpha1.TaintLimits{RequirePreview: true}))
	none := rule(driver("gpu"), "k", "v", "None")
	later := rule(driver("gpu"), "k", "v", "NoExecute")
	later.Taint.TimeAdded = new(metav1.NewTime(noon.Add(time.Hour)))
	tests := map[string]struct {
		change RuleChange
		want   policy.Verdict
	}{
		"one that is created and evicts":        {RuleChange{New: rule(driver("gpu"), "k", "v", "NoExecute")}, policy.Denied},
		"one that is created at None":           {RuleChange{New: none}, policy.Allowed},
		"one that is created and keeps away":    {RuleChange{New: rule(driver("gpu"), "k", "v", "NoSchedule")}, policy.Allowed},
		"one that stood at None":                {RuleChange{Old: none, New: rule(driver("gpu"), "k", "v", "NoExecute")}, policy.Allowed},
		"one that stood at an effect not known": {RuleChange{Old: rule(driver("gpu"), "k", "v", "Later"), New: rule(driver("gpu"), "k", "v", "NoExecute")}, policy.Denied},
		"one that stood at NoSchedule":          {RuleChange{Old: rule(driver("gpu"), "k", "v", "NoSchedule"), New: rule(driver("gpu"), "k", "v", "NoExecute")}, policy.Denied},
		"with another value":                    {RuleChange{Old: none, New: rule(driver("gpu"), "k", "w", "NoExecute")}, policy.Denied},
		"with another key":                      {RuleChange{Old: none, New: rule(driver("gpu"), "l", "v", "NoExecute")}, policy.Denied},
		"with other devices":                    {RuleChange{Old: none, New: rule(driver("nic"), "k", "v", "NoExecute")}, policy.Denied},
		"with every device":                     {RuleChange{Old: none, New: rule(&resourcev1.DeviceTaintSelector{}, "k", "v", "NoExecute")}, policy.Denied},
		"with devices by a field not known":     {RuleChange{Old: none, New: rule(driver("gpu"), "k", "v", "NoExecute"), Reselected: true}, policy.Denied},
		"one that evicts with another time":     {RuleChange{Old: rule(driver("gpu"), "k", "v", "NoExecute"), New: later}, policy.Allowed},
		"one that evicts and is widened":        {RuleChange{Old: rule(driver("gpu"), "k", "v", "NoExecute"), New: rule(&resourcev1.DeviceTaintSelector{}, "k", "v", "NoExecute")}, policy.Denied},
		"one that evicted and no longer does":   {RuleChange{Old: rule(driver("gpu"), "k", "v", "NoExecute"), New: none}, policy.Allowed},
		"one that is deleted while it evicted":  {RuleChange{Old: rule(driver("gpu"), "k", "v", "NoExecute")}, policy.Allowed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decision := judge(t, ruleInput(sre, tt.change), p)
			require.Equal(t, tt.want, decision.Verdict, "%v", decision.Findings)
			if tt.want == policy.Denied {
				require.Equal(t, []policy.Reason{policy.PreviewRequired}, reasons(decision))
			}
		})
	}
}

func TestARuleThatLeavesAPolicyIsNotHeldToIt(t *testing.T) {
	p := newPolicy("p", "*", ofDevices("gpu"), setBy("sre"), limited(v1alpha1.TaintLimits{RequirePreview: true}))
	away := RuleChange{Old: rule(driver("gpu"), "k", "v", "NoExecute"), New: rule(driver("nic"), "k", "v", "NoExecute")}
	require.Equal(t, policy.Allowed, judge(t, ruleInput(sre, away), p).Verdict)
}

func TestARuleIsLiftedOnlyByWhoMay(t *testing.T) {
	quarantine := rule(driver("gpu"), "example.com/quarantine", "", "NoExecute")
	p := newPolicy("p", "example.com/*", ofDevices("gpu"), setBy("sre"))
	lifts := map[string]RuleChange{
		"by its deletion":                    {Old: quarantine},
		"by effect None":                     {Old: quarantine, New: rule(driver("gpu"), "example.com/quarantine", "", "None")},
		"by another driver":                  {Old: quarantine, New: rule(driver("nic"), "example.com/quarantine", "", "NoExecute")},
		"by a selector that selects nothing": {Old: quarantine, New: rule(nil, "example.com/quarantine", "", "NoExecute")},
		"by another key":                     {Old: quarantine, New: rule(driver("gpu"), "other.org/x", "", "NoExecute")},
	}
	for name, change := range lifts {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, policy.Denied, judge(t, ruleInput(outside, change), p).Verdict)
			require.Equal(t, policy.Allowed, judge(t, ruleInput(sre, change), p).Verdict)
		})
	}
	t.Run("to change it away takes the right to remove", func(t *testing.T) {
		changer := newPolicy("p", "example.com/*", ofDevices("gpu"), setBy("sre", v1alpha1.TaintChange))
		require.Equal(t, policy.Denied, judge(t, ruleInput(sre, lifts["by another driver"]), changer).Verdict)
	})
	t.Run("a rule that names no driver is one over all", func(t *testing.T) {
		pool := &resourcev1.DeviceTaintSelector{Pool: new("n1")}
		require.Equal(t, policy.Denied, judge(t, ruleInput(outside, RuleChange{New: rule(pool, "example.com/x", "", "NoExecute")}), p).Verdict)
	})
}
