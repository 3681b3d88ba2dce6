package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// taintRun is one run of taint device.
type taintRun struct {
	edge
	writing

	wants          state.Wants
	taints         []Taint
	overwrite, yes bool
	// unpublished allows devices that do not exist yet.
	unpublished bool
}

func (t *taintRun) parse(arguments []string) error {
	rest, err := t.target.Take(arguments, IsTaint)
	if err != nil {
		return err
	}
	changes, err := Parse(rest, OfDevices)
	switch {
	case err != nil:
		return err
	case len(changes.Remove) > 0:
		return fmt.Errorf("taint %q is to go: that is what untaint device is for", changes.Remove[0])
	case len(changes.Add) == 0:
		return errors.New("no taint is given, want KEY[=VALUE]:EFFECT")
	}
	t.taints = changes.Add
	return t.check()
}

// run previews the taints, asks for confirmation, and writes them.
func (t *taintRun) run(cmd *cobra.Command) error {
	ctx, notes := cmd.Context(), cmd.ErrOrStderr()
	clients, err := t.connect(notes)
	if err != nil {
		return err
	}
	defer clients.Progress.End()
	carriers, err := t.carriers(ctx, clients)
	if err != nil {
		return err
	}
	err = t.foretell(ctx, clients, carriers, notes)
	if nowhere, ok := errors.AsType[*UnpublishedError](err); ok {
		err = t.mayBeUnpublished(cmd.InOrStdin(), notes, nowhere)
	}
	if t.yes && unforetold(err) {
		clients.Progress.End()
		_, err = fmt.Fprintf(notes, "note: not foretold: %v\n", err)
	}
	if err != nil {
		return err
	}
	if t.dryRun == dryRuns[0] && !t.yes {
		if err := t.ask(ctx, cmd.InOrStdin(), notes); err != nil {
			return err
		}
	}
	return t.write(ctx, clients, carriers, cmd.OutOrStdout())
}

// mayBeUnpublished returns an error unless devices that no ResourceSlice publishes may be
// tainted: with the flag, or if a question with their names follows.
func (t *taintRun) mayBeUnpublished(in io.Reader, notes io.Writer, nowhere *UnpublishedError) error {
	asked := t.dryRun == dryRuns[0] && !t.yes && t.terminal(in)
	if !t.unpublished && !asked {
		return fmt.Errorf("nothing is written: %w; give --allow-unpublished to taint devices before they are published", nowhere)
	}
	if _, err := fmt.Fprintf(notes, "warning: %v\n", nowhere); err != nil {
		return fmt.Errorf("write notes: %w", err)
	}
	return nil
}

// unforetold reports whether err is an UnforetoldError: a write without confirmation needs no
// preview.
func unforetold(err error) bool {
	var unseen *UnforetoldError
	return apierrors.IsForbidden(err) || errors.As(err, &unseen)
}

// foretell writes the previews of the carriers.
func (t *taintRun) foretell(ctx context.Context, clients *cli.Clients, carriers []*carrier, notes io.Writer) error {
	var owners Owners
	wants := t.wants
	wants.Pod, wants.Selection, wants.Limits = owners.Pod, t.target.Conditional(), true
	c, err := state.Read(ctx, clients, t.clock.Now(), wants)
	if err != nil {
		return err
	}
	teller := NewTeller(c, &owners)
	all, err := t.previews(ctx, teller, carriers)
	if err != nil {
		return err
	}
	clients.Progress.End()
	if err := teller.Write(notes, false, all); err != nil {
		return err
	}
	if len(all) > 1 { // A pod may be in several previews.
		if _, err := fmt.Fprintf(notes, "pods that go because of any of them: %d\n", Going(all)); err != nil {
			return fmt.Errorf("write preview: %w", err)
		}
	}
	for _, lack := range c.Missing() {
		if _, err := fmt.Fprintln(notes, "note: "+lack); err != nil {
			return fmt.Errorf("write notes: %w", err)
		}
	}
	touches := func(p Preview) bool { return p.Touches() }
	existing := func(made *carrier) bool { return made.existing != nil }
	if slices.ContainsFunc(all, touches) || slices.ContainsFunc(carriers, existing) {
		return nil
	}
	return teller.Published(ctx, &t.target)
}

// served returns the served version of the kind that the target needs.
func (t *taintRun) served(ctx context.Context, clients *cli.Clients) (versions, error) {
	var v versions
	var err error
	if t.target.Conditional() {
		v.patch, err = clients.Version(ctx, patchResource, v1alpha1.GroupVersion.Version)
	} else {
		v.rule, err = clients.Version(ctx, informer.RuleResource, "v1", "v1beta2", "v1alpha3")
	}
	if errors.Is(err, cli.ErrNotServed) {
		return versions{}, nil
	}
	return v, err
}

// carriers returns the objects to write, one for each taint.
func (t *taintRun) carriers(ctx context.Context, clients *cli.Clients) ([]*carrier, error) {
	served, err := t.served(ctx, clients)
	if err != nil {
		return nil, err
	}
	author := ""
	review, err := clients.Kubernetes.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil { // Without a name the write goes on.
		author = review.Status.UserInfo.Username
	}
	carriers := make([]*carrier, 0, len(t.taints))
	for _, taint := range t.taints {
		made, err := served.of(&t.target, taint, author)
		if err != nil {
			return nil, err
		}
		existing, err := clients.Dynamic.Resource(made.resource).Get(ctx, made.object.GetName(), metav1.GetOptions{})
		switch {
		case err == nil:
			err = made.merge(existing, taint, t.overwrite)
		case apierrors.IsNotFound(err), t.yes && !t.overwrite && apierrors.IsForbidden(err):
			err = nil // If it exists but may not be read, the create fails.
		default:
			err = cli.Failed(err, "read "+made.String(), "get", made.resource.GroupResource())
		}
		if err != nil {
			return nil, err
		}
		carriers = append(carriers, made)
	}
	return carriers, nil
}

// previews returns the preview of each carrier by itself.
func (t *taintRun) previews(ctx context.Context, teller *Teller, carriers []*carrier) ([]Preview, error) {
	all := make([]Preview, 0, len(carriers))
	for i, made := range carriers {
		p, err := t.preview(ctx, teller, made)
		if err != nil {
			return nil, err
		}
		p.Of = "device/" + t.target.String()
		if len(carriers) > 1 {
			p.Of += " " + t.taints[i].String()
		}
		all = append(all, p)
	}
	return all, nil
}

// preview previews a carrier, which replaces the object with its name.
func (t *taintRun) preview(ctx context.Context, teller *Teller, made *carrier) (Preview, error) {
	if !t.target.Conditional() {
		return teller.Rule(ctx, made.object)
	}
	patch := &v1alpha1.ResourceSlicePatch{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(made.object.Object, patch); err != nil {
		return Preview{}, fmt.Errorf("read %s: %w", made, err)
	}
	return teller.Patch(ctx, patch)
}

// ask asks for confirmation. It returns an error if the answer is no.
func (t *taintRun) ask(ctx context.Context, in io.Reader, notes io.Writer) error {
	if !t.terminal(in) {
		return errors.New("nothing is written: there is no terminal to ask on, give --yes to taint without being asked")
	}
	agreed, err := cli.Ask(ctx, in, notes, fmt.Sprintf("Taint %s?", &t.target))
	if err == nil && !agreed {
		err = errors.New("nothing is written: the answer was no")
	}
	return err
}

// write writes the carriers and prints the result. It stops at the first error.
func (t *taintRun) write(ctx context.Context, clients *cli.Clients, carriers []*carrier, out io.Writer) error {
	var written []*unstructured.Unstructured
	for _, made := range carriers {
		done, err := t.one(ctx, clients, made)
		if err != nil {
			return errors.Join(err, t.show(out, carriers, written))
		}
		written = append(written, done)
	}
	return t.show(out, carriers, written)
}

// one writes a carrier and returns the stored object.
func (t *taintRun) one(ctx context.Context, clients *cli.Clients, made *carrier) (*unstructured.Unstructured, error) {
	if t.dryRun == dryRuns[1] {
		return made.object, nil
	}
	client := clients.Dynamic.Resource(made.resource)
	if made.existing != nil {
		done, err := client.Update(ctx, made.object, metav1.UpdateOptions{DryRun: t.dry()})
		if err != nil {
			return nil, cli.Failed(err, "update "+made.String(), "update", made.resource.GroupResource())
		}
		return done, nil
	}
	done, err := client.Create(ctx, made.object, metav1.CreateOptions{DryRun: t.dry()})
	if err != nil {
		return nil, cli.Failed(err, "create "+made.String(), "create", made.resource.GroupResource())
	}
	return done, nil
}

// show prints the written objects.
func (t *taintRun) show(out io.Writer, carriers []*carrier, written []*unstructured.Unstructured) error {
	if t.output == "yaml" || t.output == "json" {
		return printObjects(out, t.output, written)
	}
	for i := range written {
		text := carriers[i].String()
		if t.output == "" {
			done := " created"
			if carriers[i].existing != nil {
				done = " configured"
			}
			text += done + t.suffix()
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}
