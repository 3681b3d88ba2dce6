package check

import (
	"context"
	"fmt"
	"io"
	"slices"

	"k8s.io/utils/clock"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// connection says how to reach a cluster; a cli.Connection does.
type connection interface {
	Namespace() (name string, given bool, err error)
	Clients(notes io.Writer) (*cli.Clients, error)
}

// runner runs one command.
type runner struct {
	flags      *flags
	config     *configv1alpha1.TollgateConfiguration
	clock      clock.Clock
	connection connection
	stdin      io.Reader
	// out gets the report, notes what else is to be said.
	out, notes io.Writer
}

func (r *runner) run(ctx context.Context) error {
	given, err := ReadManifests(r.flags.policies, r.stdin)
	if err != nil {
		return err
	}
	objects, err := ReadManifests(r.flags.manifests, r.stdin)
	if err != nil {
		return err
	}
	if err := onlyPolicies(given); err != nil {
		return err
	}
	found, err := r.check(ctx, given, objects)
	if err != nil {
		return err
	}
	if err := r.write(found); err != nil {
		return err
	}
	return r.verdict(found)
}

// onlyPolicies makes sure that there are policies where they are said to be: a wrong path
// would otherwise allow everything.
func onlyPolicies(given []Object) error {
	if len(given) == 0 {
		return nil
	}
	for i := range given {
		if IsPolicy(given[i].Unstructured) {
			return nil
		}
	}
	return fmt.Errorf("--policies: there is no policy of Tollgate in them; the first object is a %s (%s)", given[0].GetKind(), given[0].Position)
}

// check does what the command line asks for.
func (r *runner) check(ctx context.Context, given, objects []Object) (*Report, error) {
	found := &Report{}
	policies, err := (Policies{}).With(slices.Concat(given, objects))
	if err != nil {
		return nil, fmt.Errorf("policies that are not valid:\n%w", err)
	}
	options := Options{Policies: policies, Objects: given, Config: r.config, Clock: r.clock, Namespace: "default"}
	if name, named, err := r.connection.Namespace(); named && err == nil {
		options.Namespace = name
	}
	if len(r.flags.tests) > 0 {
		if err := r.test(ctx, options, found); err != nil {
			return nil, err
		}
	}
	switch {
	case len(r.flags.manifests) > 0:
		options.Objects = slices.Concat(given, objects)
		return found, r.judge(ctx, options, objects, found)
	case r.flags.cluster:
		return found, r.scan(ctx, options.Policies, found)
	default:
		return found, nil
	}
}

// judge judges manifests.
func (r *runner) judge(ctx context.Context, options Options, objects []Object, found *Report) error {
	if r.flags.cluster {
		if err := r.lookup(ctx, &options, found); err != nil {
			return err
		}
	}
	checker, err := NewChecker(options)
	if err != nil {
		return err
	}
	found.By, found.Policies = r.flags.by.String(), options.Policies.Len()
	for _, object := range objects {
		if !checker.Judged(object.Unstructured) {
			found.Skipped++
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("judge %s: %w", object.Position, err)
		}
		result := checker.Judge(ctx, object, r.flags.by)
		found.Results = append(found.Results, result)
		if !r.flags.pods || result.Verdict == Denied || result.Verdict == Undecided {
			continue
		}
		if pod, ok := checker.JudgePod(ctx, object); ok {
			found.Results = append(found.Results, pod)
		}
	}
	found.Notes = append(found.Notes, checker.Notes()...)
	if r.flags.by.User == "" {
		found.Notes = append([]string{"objects are created by nobody in particular, in no group but system:authenticated: say by whom with --as and --as-group"}, found.Notes...)
	}
	return nil
}

// test runs tests.
func (r *runner) test(ctx context.Context, options Options, found *Report) error {
	tests, err := ReadCases(r.flags.tests)
	if err != nil {
		return err
	}
	for i := range tests {
		outcomes, _, err := tests[i].Run(ctx, options)
		if err != nil {
			return err
		}
		found.Cases = append(found.Cases, outcomes...)
	}
	return nil
}

// write writes the report and what else is to be said.
func (r *runner) write(found *Report) error {
	if r.flags.quiet {
		return nil
	}
	if err := found.WriteNotes(r.notes); err != nil {
		return fmt.Errorf("write notes: %w", err)
	}
	switch r.flags.output {
	case "json":
		return found.WriteJSON(r.out)
	case "yaml":
		return found.WriteYAML(r.out)
	case "junit":
		return found.WriteJUnit(r.out)
	case "sarif":
		return found.WriteSARIF(r.out)
	default:
		style := Style{All: r.flags.output == "wide", Colours: cli.Terminal(r.out)}
		return found.WriteText(r.out, style)
	}
}

// verdict returns what the command ends with.
func (r *runner) verdict(found *Report) error {
	denied, undecided, failed := found.Count(Denied), found.Count(Undecided), found.Failed()
	switch warned := found.Count(Warned); {
	case undecided > 0:
		return fmt.Errorf("%s undecided", are(undecided))
	case denied > 0:
		return &cli.VerdictError{Reason: are(denied) + " denied"}
	case failed > 0:
		return &cli.VerdictError{Reason: fmt.Sprintf("%d of %d cases did not come out as expected", failed, len(found.Cases))}
	case r.flags.strict && warned > 0:
		return &cli.VerdictError{Reason: are(warned) + " allowed with warnings"}
	}
	return nil
}

// are counts objects.
func are(n int) string {
	if n == 1 {
		return "1 object is"
	}
	return fmt.Sprintf("%d objects are", n)
}
