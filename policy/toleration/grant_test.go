package toleration

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
)

// asked is a request by a user for a pod that tolerates the dedicated taint.
type asked struct {
	namespace string
	user      authenticationv1.UserInfo
	pod       string // in JSON
	account   string
	authority *court
	unknown   bool
}

const dedicatedExists = `{key: dedicated, operator: Exists}`

func (a *asked) input(t *testing.T, tolerates string) Input {
	t.Helper()
	var pod corev1.Pod
	if a.pod == "" {
		a.pod = `{"metadata": {}, "spec": {}}`
	}
	require.NoError(t, json.Unmarshal([]byte(a.pod), &pod))
	in := inputOf(a.namespace, tolerationsOf(t, tolerates)...)
	in.User, in.RequesterUnknown = a.user, a.unknown
	in.Pod, in.Labels, in.ServiceAccount = json.RawMessage(a.pod), pod.Labels, a.account
	in.Review = &cel.Review{
		Request: &admissionv1.AdmissionRequest{
			Namespace: a.namespace, Operation: admissionv1.Create, UserInfo: a.user,
			Object: runtime.RawExtension{Raw: []byte(a.pod)},
		},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace, Labels: map[string]string{"tier": "gold"}}},
	}
	if a.authority != nil {
		in.Review.Authorizer = a.authority
	}
	return in
}

func userOf(name string, groups ...string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: name, Groups: groups}
}

func TestGrants(t *testing.T) {
	const monitor = `{"metadata": {"labels": {"app": "monitor", "maintenance": "true"}}, "spec": {"priority": 5}}`
	operator := userOf("system:serviceaccount:infra:operator", "system:serviceaccounts")
	tests := map[string]struct {
		grants  string
		from    asked
		allowed bool
	}{
		"a user who is named as a subject":             {`[{subjects: [{kind: User, name: jane}]}]`, asked{user: userOf("jane")}, true},
		"another user than the subject":                {`[{subjects: [{kind: User, name: jane}]}]`, asked{user: userOf("joe")}, false},
		"a group that the user is in":                  {`[{subjects: [{kind: Group, name: sre}]}]`, asked{user: userOf("joe", "dev", "sre")}, true},
		"C18 a user who is called like a group":        {`[{subjects: [{kind: Group, name: sre}]}]`, asked{user: userOf("sre", "dev")}, false},
		"C18 a group that is called like a user":       {`[{subjects: [{kind: User, name: jane}]}]`, asked{user: userOf("joe", "jane")}, false},
		"C18 a user whose name begins like another":    {`[{subjects: [{kind: User, name: "system:node"}]}]`, asked{user: userOf("system:node:evil")}, false},
		"a service account that is named":              {`[{subjects: [{kind: ServiceAccount, name: operator, namespace: infra}]}]`, asked{user: operator}, true},
		"a service account of another namespace":       {`[{subjects: [{kind: ServiceAccount, name: operator, namespace: infra}]}]`, asked{user: userOf("system:serviceaccount:evil:operator")}, false},
		"the account of a pod is no subject":           {`[{subjects: [{kind: ServiceAccount, name: operator, namespace: infra}]}]`, asked{namespace: "infra", account: "operator", user: userOf("joe")}, false},
		"both the namespace and the subject are asked": {`[{namespaces: [banana], subjects: [{kind: User, name: jane}]}]`, asked{namespace: "apple", user: userOf("jane")}, false},
		"labels of the object narrow":                  {`[{namespaces: ["*"], objectSelector: {matchLabels: {app: monitor}}}]`, asked{}, false},
		"labels of the object are there":               {`[{namespaces: ["*"], objectSelector: {matchLabels: {app: monitor}}}]`, asked{pod: monitor}, true},
		"RBAC of the user":                             {`[{rbac: true}]`, asked{user: userOf("jane"), authority: &court{allows: []string{"jane dedicated"}}}, true},
		"RBAC of another key":                          {`[{rbac: true}]`, asked{user: userOf("jane"), authority: &court{allows: []string{"jane other", "jane "}}}, false},
		"RBAC of the pod's service account":            {`[{rbac: true}]`, asked{user: userOf("jane"), namespace: "infra", account: "operator", authority: &court{allows: []string{"system:serviceaccount:infra:operator dedicated"}}}, true},
		"RBAC of an account of another namespace":      {`[{rbac: true}]`, asked{user: userOf("jane"), namespace: "apple", account: "operator", authority: &court{allows: []string{"system:serviceaccount:infra:operator dedicated"}}}, false},
		"RBAC in another namespace":                    {`[{rbac: true, namespaces: [banana]}]`, asked{user: userOf("jane"), namespace: "apple", authority: &court{allows: []string{"jane dedicated"}}}, false},
		"an expression about the pod":                  {`[{expression: "pod.metadata.?labels[?'maintenance'].orValue('') == 'true'"}]`, asked{pod: monitor}, true},
		"an expression about the pod that is false":    {`[{expression: "pod.metadata.?labels[?'maintenance'].orValue('') == 'true'"}]`, asked{}, false},
		"an expression about the object":               {`[{expression: "object.spec.priority < 10"}]`, asked{pod: monitor}, true},
		"an expression about the requester":            {`[{expression: "request.userInfo.username.startsWith('admin:')"}]`, asked{user: userOf("admin:jane")}, true},
		"an expression about the toleration":           {`[{expression: "toleration.operator == 'Equal'"}]`, asked{}, false},
		"an expression about the namespace":            {`[{expression: "namespaceObject.metadata.labels.tier == 'gold'"}]`, asked{}, true},
		"an expression that asks the authorizer":       {`[{expression: "authorizer.group('tollgate.dev').resource('taints').name('dedicated').check('tolerate').allowed()"}]`, asked{user: userOf("jane"), authority: &court{allows: []string{"jane dedicated"}}}, true},
		"no claim is there for a pod":                  {`[{expression: "claim == null"}]`, asked{}, true},
		"an expression that fails grants nothing":      {`[{expression: "object.spec.nothing == 1"}]`, asked{}, false},
		"another grant after one that fails":           {`[{expression: "object.spec.nothing == 1"}, {expression: "true"}]`, asked{}, true},
		"all of a grant must match":                    {`[{rbac: true, expression: "false"}, {rbac: true, subjects: [{kind: User, name: joe}]}, {namespaces: [banana], expression: "true"}]`, asked{namespace: "apple", user: userOf("jane"), authority: &court{allows: []string{"jane dedicated"}}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: `+tt.grants+`}`)})
			require.Empty(t, set.Problems())
			if tt.from.authority == nil {
				tt.from.authority = &court{}
			}
			got := judge(t, set, tt.from.input(t, dedicatedExists))
			require.Equal(t, tt.allowed, got.Verdict == policy.Allowed, "%v", got.Findings)
		})
	}
}

func TestAWildcardNeedsPermissionOnEveryKey(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: [{rbac: true}]}`)})
	for name, tt := range map[string]struct {
		allows  []string
		allowed bool
	}{
		"C17 permission on the guarded key is not enough": {[]string{"jane dedicated"}, false},
		"permission on all": {[]string{"jane "}, true},
	} {
		t.Run(name, func(t *testing.T) {
			from := asked{user: userOf("jane"), authority: &court{allows: tt.allows}}
			got := judge(t, set, from.input(t, `{operator: Exists}`))
			require.Equal(t, tt.allowed, got.Verdict == policy.Allowed)
			require.Equal(t, []string{"jane "}, from.authority.asked)
		})
	}
}

func TestWhatCostsNothingIsAskedFirst(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{
		taints: [{key: dedicated}],
		grants: [{expression: "object.spec.nothing == 1"}, {rbac: true}, {namespaces: [banana]}]}`)})
	tests := map[string]struct {
		namespace string
		tolerates string
		asked     []string
	}{
		"a namespace that is granted":   {"banana", dedicatedExists, nil},
		"a namespace that is not":       {"apple", dedicatedExists, []string{"jane dedicated"}},
		"a taint that is not guarded":   {"apple", `{key: other, operator: Exists}`, nil},
		"nothing that is to be judged ": {"apple", ``, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			from := asked{namespace: tt.namespace, user: userOf("jane"), authority: &court{allows: []string{"jane dedicated"}}}
			require.Equal(t, policy.Allowed, judge(t, set, from.input(t, tt.tolerates)).Verdict)
			require.Equal(t, tt.asked, from.authority.asked)
		})
	}
}

func TestTheServiceAccountIsAskedAboutFirstWhereAControllerCreatesThePod(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: [{rbac: true}]}`)})
	const controller, account = "system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccount:infra:operator"
	for sentence, tt := range map[string]struct {
		user    string
		allows  string
		verdict policy.Verdict
		asked   []string
	}{
		"the service account may":     {controller, account, policy.Allowed, []string{account + " dedicated"}},
		"the controller may":          {controller, controller, policy.Allowed, []string{account + " dedicated", controller + " dedicated"}},
		"neither may":                 {controller, "jane", policy.Denied, []string{account + " dedicated", controller + " dedicated"}},
		"a user is asked about first": {"jane", account, policy.Allowed, []string{"jane dedicated", account + " dedicated"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			from := asked{user: userOf(tt.user), namespace: "infra", account: "operator", authority: &court{allows: []string{tt.allows + " dedicated"}}}
			require.Equal(t, tt.verdict, judge(t, set, from.input(t, dedicatedExists)).Verdict)
			require.Equal(t, tt.asked, from.authority.asked)
		})
	}
}

func TestAllPoliciesHearTheSameAnswer(t *testing.T) {
	var policies []v1alpha1.TolerationPolicy
	for _, name := range []string{"a", "b", "c"} {
		policies = append(policies, policyOf(t, name, `{taints: [{key: dedicated}], grants: [{rbac: true}]}`))
	}
	from := asked{user: userOf("jane"), authority: &court{allows: []string{"jane dedicated"}}}
	in := from.input(t, dedicatedExists+"\n"+`{key: dedicated, value: banana}`)
	require.Equal(t, policy.Allowed, judge(t, Compile(policies), in).Verdict)
	require.Equal(t, []string{"jane dedicated"}, from.authority.asked)
}

func TestAnAuthorizerThatIsAwayIsNotAskedAboutEveryToleration(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: "*"}], grants: [{rbac: true}]}`)})
	from := asked{user: userOf("jane"), authority: &court{allows: []string{"jane a"}, fault: errors.New("away")}}
	_, err := set.Judge(t.Context(), from.input(t, "{key: a}\n{key: b}\n{key: c}\n{key: a, value: d}"))
	require.ErrorContains(t, err, "away")
	require.Equal(t, []string{"jane a", "jane b"}, from.authority.asked)
}

func TestNobodyIsAskedWhereNothingMoreIsSaid(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: "*"}], grants: [{rbac: true}], validationActions: [Warn]}`)})
	from := asked{user: userOf("jane"), authority: &court{}}
	var lines strings.Builder
	for i := range 500 {
		lines.WriteString("{key: key-" + strconv.Itoa(i) + "}\n")
	}
	require.Equal(t, policy.Allowed, judge(t, set, from.input(t, lines.String())).Verdict)
	require.Less(t, len(from.authority.asked), policy.MaxFindings)
}

func TestAReviewAsksFewQuestions(t *testing.T) {
	const account = "system:serviceaccount:infra:operator"
	const denying, warning = `{taints: [{key: "*"}], grants: [{rbac: true}]}`, `{taints: [{key: "*"}], grants: [{rbac: true}], validationActions: [Warn]}`
	everyKey := func(who string) (all []string) {
		for i := range 40 {
			all = append(all, who+" key-"+strconv.Itoa(i))
		}
		return all
	}
	tests := map[string]struct {
		policy string
		allows []string
		want   policy.Verdict
		// asked is the number of questions, and findings that of findings.
		asked, findings int
	}{
		"what is refused is not asked about further":               {denying, nil, policy.Denied, 2, 2},
		"what was granted before the refusal":                      {denying, []string{"jane key-0", "jane key-1"}, policy.Denied, 4, 2},
		"a policy that only warns":                                 {warning, nil, policy.Allowed, 4, policy.MaxFindings - 1},
		"all keys are granted to the user":                         {denying, everyKey("jane"), policy.Allowed, 40, 0},
		"all keys are granted to the account, and not to the user": {denying, everyKey(account), policy.Allowed, 41, 0},
		"one is granted to the user and all others to the account": {denying, append(everyKey(account)[1:], "jane key-0"), policy.Allowed, 41, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", tt.policy)})
			from := asked{user: userOf("jane"), namespace: "infra", account: "operator", authority: &court{allows: tt.allows}}
			var lines strings.Builder
			for i := range 40 {
				lines.WriteString("{key: key-" + strconv.Itoa(i) + "}\n")
			}
			got := judge(t, set, from.input(t, lines.String()))
			require.Equal(t, tt.want, got.Verdict, "%v", got.Findings)
			require.Len(t, from.authority.asked, tt.asked)
			require.Len(t, got.Findings, tt.findings)
			if got.Verdict == policy.Denied {
				more := slices.IndexFunc(got.Findings, func(f policy.Finding) bool { return f.Reason == policy.MoreFindings })
				require.GreaterOrEqual(t, more, 0)
				require.Contains(t, got.Findings[more].Problem, "RBAC was not asked about more tolerations")
			}
		})
	}
}

func TestPermissionsThatAreNotGrantedNeverHinderARefusal(t *testing.T) {
	const four = `{key: a-0}
{key: a-1}
{key: a-2}
{key: b}`
	tests := map[string][]string{
		"where an expression grants the other keys": {
			`{taints: [{key: "*"}], grants: [{rbac: true}, {expression: "toleration.key.startsWith('a-')"}]}`,
		},
		"where RBAC is asked along with an expression": {
			`{taints: [{key: "*"}], grants: [{rbac: true, expression: "toleration.key == 'b'"}, {expression: "toleration.key.startsWith('a-')"}]}`,
		},
		"where a policy that only warns asked about them": {
			`{taints: [{key: "*"}], grants: [{rbac: true}], validationActions: [Warn]}`,
			`{taints: [{key: b}], grants: [{rbac: true}]}`,
		},
	}
	for name, specs := range tests {
		t.Run(name, func(t *testing.T) {
			var policies []v1alpha1.TolerationPolicy
			for i, spec := range specs {
				policies = append(policies, policyOf(t, "p-"+strconv.Itoa(i), spec))
			}
			from := asked{user: userOf("jane"), namespace: "infra", account: "operator", authority: &court{}}
			require.Equal(t, policy.Denied, judge(t, Compile(policies), from.input(t, four)).Verdict)
			require.LessOrEqual(t, len(from.authority.asked), 2*maxRefusals)
		})
	}
}

func TestAReviewEndsWithItsContext(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: [{namespaces: [apple]}]}`)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := set.Judge(ctx, inputOf("apple", toleration(t, dedicatedExists)))
	require.ErrorIs(t, err, context.Canceled)
	_, err = set.JudgeNode(ctx, inputOf("banana", toleration(t, dedicatedExists)), []corev1.Taint{{Key: "dedicated", Effect: noSchedule}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestTheTimeOfAGrantThatIsAsked(t *testing.T) {
	const grants = `[{rbac: true, maxTolerationSeconds: 600}, {subjects: [{kind: User, name: joe}], maxTolerationSeconds: 300}]`
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: `+grants+`}`)})
	authority := func() *court { return &court{allows: []string{"jane dedicated", "joe dedicated"}} }
	tests := map[string]struct {
		user    string
		seconds string
		reasons []policy.Reason
		remedy  string
	}{
		"within the time":              {"jane", "600", nil, ""},
		"longer":                       {"jane", "601", []policy.Reason{policy.TolerationTooLong}, "at most 600"},
		"the longer of two that match": {"joe", "400", nil, ""},
		"the longer of two that match is not long": {"joe", "700", []policy.Reason{policy.TolerationTooLong}, "at most 600"},
		"nobody": {"jim", "1", []policy.Reason{policy.TolerationNotGranted}, "whom RBAC allows"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			from := asked{user: userOf(tt.user), authority: authority()}
			got := judge(t, set, from.input(t, `{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: `+tt.seconds+`}`))
			var reasons []policy.Reason
			for _, f := range got.Findings {
				reasons = append(reasons, f.Reason)
				require.Contains(t, f.Remedy, tt.remedy)
			}
			require.Equal(t, tt.reasons, reasons)
		})
	}
}

func TestAFaultIsNoVerdict(t *testing.T) {
	away := errors.New("the authorizer is away")
	const byRBAC = `{taints: [{key: dedicated}], grants: [{rbac: true}]`
	tests := map[string]struct {
		policies []string
		from     asked
		verdict  policy.Verdict
		fault    bool
	}{
		"nobody could say":                                    {[]string{byRBAC + `}`}, asked{authority: &court{fault: away}}, 0, true},
		"the service account may all the same":                {[]string{byRBAC + `}`}, asked{namespace: "infra", account: "operator", authority: &court{fault: away, allows: []string{"system:serviceaccount:infra:operator dedicated"}}}, policy.Allowed, false},
		"nobody could say of the user":                        {[]string{byRBAC + `}`}, asked{user: userOf("jane"), namespace: "infra", account: "operator", authority: &court{fault: away, who: "jane"}}, 0, true},
		"nobody could say of the account":                     {[]string{byRBAC + `}`}, asked{user: userOf("jane"), namespace: "infra", account: "operator", authority: &court{fault: away, who: "system:serviceaccount:infra:operator"}}, 0, true},
		"another grant is enough":                             {[]string{`{taints: [{key: dedicated}], grants: [{rbac: true}, {expression: "true"}]}`}, asked{authority: &court{fault: away}}, policy.Allowed, false},
		"another grant that does not match is not":            {[]string{`{taints: [{key: dedicated}], grants: [{rbac: true}, {expression: "false"}]}`}, asked{authority: &court{fault: away}}, 0, true},
		"another policy refuses all the same":                 {[]string{byRBAC + `}`, `{taints: [{key: dedicated}]}`}, asked{authority: &court{fault: away}}, policy.Denied, false},
		"another policy that only warns does not refuse":      {[]string{byRBAC + `}`, `{taints: [{key: dedicated}], validationActions: [Warn]}`}, asked{authority: &court{fault: away}}, 0, true},
		"a policy that cannot refuse does not stop":           {[]string{byRBAC + `, validationActions: [Warn]}`}, asked{authority: &court{fault: away}}, policy.Allowed, false},
		"a grant that would not be long enough is not missed": {[]string{`{taints: [{key: dedicated}], grants: [{rbac: true, maxTolerationSeconds: 5}]}`}, asked{authority: &court{fault: away}}, policy.Denied, false},
		"an expression that could not ask":                    {[]string{`{taints: [{key: dedicated}], grants: [{expression: "authorizer.group('').resource('pods').check('get').allowed()"}]}`}, asked{authority: &court{fault: away}}, 0, true},
		"a condition that could not ask":                      {[]string{`{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "authorizer.group('').resource('pods').check('get').allowed()"}]}`}, asked{authority: &court{fault: away}}, 0, true},
		"there is no authorizer":                              {[]string{byRBAC + `}`}, asked{}, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var policies []v1alpha1.TolerationPolicy
			for i, spec := range tt.policies {
				policies = append(policies, policyOf(t, string(rune('a'+i)), spec))
			}
			got, err := Compile(policies).Judge(t.Context(), tt.from.input(t, dedicatedExists))
			if tt.fault {
				require.Error(t, err)
				require.Equal(t, policy.Decision{}, got)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.verdict, got.Verdict)
			for _, f := range got.Findings {
				require.NotContains(t, f.String(), "away", "the inside is not shown")
			}
		})
	}
}

func TestAPolicyThatOnlyWarnsSaysThatItCouldNotBeJudged(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: [{rbac: true}], validationActions: [Warn]}`)})
	from := asked{namespace: "apple", user: userOf("jane"), authority: &court{fault: errors.New("away")}}
	got := judge(t, set, from.input(t, dedicatedExists))
	require.Len(t, got.Findings, 1)
	require.Contains(t, got.Findings[0].Problem, "not all of the policy could be judged")
}

func TestMatchConditions(t *testing.T) {
	tests := map[string]struct {
		conditions string
		allowed    bool
		said       string
	}{
		"all hold":                    {`[{name: a, expression: "true"}, {name: b, expression: "request.namespace == 'apple'"}]`, false, "could tolerate dedicated, which is not granted to namespace apple"},
		"one does not":                {`[{name: a, expression: "true"}, {name: b, expression: "request.namespace != 'apple'"}]`, true, ""},
		"one fails":                   {`[{name: a, expression: "object.spec.nothing == 1"}]`, false, "its matchConditions failed: "},
		"one fails, another is false": {`[{name: a, expression: "object.spec.nothing == 1"}, {name: b, expression: "false"}]`, true, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], matchConditions: `+tt.conditions+`}`)})
			from := asked{namespace: "apple"}
			got := judge(t, set, from.input(t, dedicatedExists))
			require.Equal(t, tt.allowed, got.Verdict == policy.Allowed)
			for _, f := range got.Findings {
				require.Contains(t, f.Problem, tt.said)
			}
		})
	}
}

func TestConditionsOfOnePolicyAreNotThoseOfAnother(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{
		policyOf(t, "a", `{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "false"}]}`),
		policyOf(t, "b", `{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "true"}]}`),
		policyOf(t, "c", `{taints: [{key: dedicated}], matchConditions: [{name: a, expression: "false"}]}`),
	})
	in := inputOf("apple", tolerationsOf(t, dedicatedExists+"\n"+`{key: dedicated, value: banana}`)...)
	requireRefused(t, []string{"b spec.tolerations[0]", "b spec.tolerations[1]"}, judge(t, set, in))
}

func TestWhatDependsOnAnUnknownRequesterIsNotHeldAgainstIt(t *testing.T) {
	tests := map[string]struct {
		grant   string
		allowed bool
	}{
		"subjects":                          {`{subjects: [{kind: User, name: jane}]}`, true},
		"RBAC":                              {`{rbac: true}`, true},
		"an expression about the requester": {`{expression: "request.userInfo.username == 'jane'"}`, true},
		"an expression that asks":           {`{expression: "authorizer.group('').resource('pods').check('get').allowed()"}`, true},
		"an expression about the pod":       {`{expression: "pod.metadata.?labels[?'a'].hasValue()"}`, false},
		"an expression about the namespace": {`{expression: "request.namespace == 'banana'"}`, false},
		"a namespace":                       {`{namespaces: [banana], subjects: [{kind: User, name: jane}]}`, false},
		"labels of the namespace":           {`{namespaceSelector: {matchLabels: {tier: gold}}, rbac: true}`, false},
		"labels of the object":              {`{subjects: [{kind: User, name: jane}], objectSelector: {matchLabels: {a: b}}}`, false},
		"the time":                          {`{rbac: true, maxTolerationSeconds: 600}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: [`+tt.grant+`]}`)})
			from := asked{namespace: "apple", user: userOf("system:serviceaccount:queue:controller"), unknown: true, authority: &court{}}
			got := judge(t, set, from.input(t, dedicatedExists))
			require.Equal(t, tt.allowed, got.Verdict == policy.Allowed, "%v", got.Findings)
			require.Empty(t, from.authority.asked)
			for _, f := range got.Findings {
				require.NotContains(t, f.String(), "queue", "it is not about whoever sent the request")
			}
		})
	}
}
