package placement

import "github.com/tollgate-dev/tollgate/policy"

// MaxFindings bounds what is said about one object.
const MaxFindings = 32

// report collects up to so many findings. What refuses is filed before what warns, so
// that the bound never changes the verdict.
type report struct {
	most     int
	findings []policy.Finding
	// cut says that there was more, and that all that follows is dropped.
	cut bool
}

func (r *report) add(f policy.Finding) {
	switch {
	case len(r.findings) < r.most-1:
		r.findings = append(r.findings, f)
	case !r.cut:
		r.findings = append(r.findings, policy.Finding{
			Reason:  policy.MoreFindings,
			Policy:  f.Policy,
			Actions: f.Actions,
			Field:   f.Field,
			Problem: "more is amiss, by this policy or others, than is listed",
		})
		r.cut = true
	}
}
