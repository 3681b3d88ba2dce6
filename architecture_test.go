package tollgate_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/tollgate-dev/tollgate"

// room is a folder at the root of the repository.
type room struct {
	folder string
	// imports are the folders of the repository whose packages, and those below, code of the
	// room may import. Tests may import any.
	imports []string
}

// rooms are all folders with Go code, and the arrows between them. The rules of depguard in
// .golangci.yml say the same.
var rooms = []room{
	{"api", nil},
	{"policy", []string{"policy", "api"}},
	{"tracker", []string{"tracker", "policy", "api"}},
	{"evictor", []string{"evictor", "tracker", "policy", "api"}},
	{"webhook", []string{"webhook", "evictor/preview", "tracker", "policy", "api"}},
	{"controllers", []string{"controllers", "evictor", "tracker", "policy", "api"}},
	{"certs", nil},
	{"cmd", []string{"cmd", "certs", "controllers", "webhook", "evictor", "tracker", "policy", "api"}},
	{"deploy", nil},
	{"scheduler", []string{"scheduler", "tracker", "policy", "api"}},
}

// free are the folders whose code may import anything.
var free = []string{"e2e"} // It tests all others.

// exception is what holds for one folder or file against the rule of its room, with the reason.
type exception struct{ path, imports, reason string }

// arrowExceptions are imports beyond the arrows.
var arrowExceptions = []exception{
	{"controllers/registration", "deploy/webhooks", "derives webhooks from the manifests"},
	{"controllers/registration", "certs", "reads the URLs and annotations that certs writes into webhook configurations"},
}

// narrower are imports that a folder does without, although the rule of its room allows them.
var narrower = []exception{
	{"webhook/handlers", "net/http", "takes requests and returns results"},
	{"webhook/review", module, "reads reviews by libraries alone"},
	{"evictor/act", module + "/evictor", "makes the requests that it is given"},
	{"evictor/decide", module + "/evictor", "decides from values of tracker and policy"},
	{"evictor/checks", module + "/evictor/act", "decides before a request is made"},
}

// pure are the folders that stay free of clients, logs, metrics and traces, with all below.
var pure = []string{"api", "policy", "tracker", "evictor"}

// edges are the folders and files below pure where clients, logs, metrics and traces are.
var edges = []exception{
	{path: "tracker/informer", reason: "watches the API server"},
	{path: "tracker/sliceview/feed.go", reason: "takes an informer"},
	{path: "tracker/sliceview/handlers.go", reason: "takes event handlers of client-go"},
	{path: "tracker/sliceview/lister.go", reason: "is a lister of client-go"},
	{path: "tracker/sliceview/run.go", reason: "runs and logs"},
	{path: "tracker/sliceview/subscriber.go", reason: "calls event handlers of client-go"},
	{path: "tracker/sliceview/view.go", reason: "is an informer of client-go"},
	{path: "evictor/act.go", reason: "deletes pods and logs"},
	{path: "evictor/evictor.go", reason: "holds the clients"},
	{path: "evictor/fit.go", reason: "logs"},
	{path: "evictor/decide/match.go", reason: "gives ToleratesTaint of Kubernetes an empty logger"},
	{path: "evictor/metrics.go", reason: "counts"},
	{path: "evictor/run.go", reason: "runs and logs"},
	{path: "evictor/stamp.go", reason: "writes to nodes"},
	{path: "evictor/step.go", reason: "logs"},
	{path: "evictor/trace.go", reason: "traces"},
	{path: "evictor/act", reason: "writes to the API server"},
	{path: "evictor/breaker", reason: "keeps its state in the status of EvictionPolicies"},
	{path: "evictor/controller", reason: "is a work queue with watches"},
	{path: "evictor/preview/approvals.go", reason: "lists policies through a reader of controller-runtime"},
	{path: "evictor/rulestatus", reason: "writes the status of rules"},
}

// impureImports are imports of packages with edges by pure packages.
var impureImports = []exception{
	{"evictor/checks", "evictor/decide", "asks about the reasons of a decision"},
	{"evictor/preview", "evictor/decide", "foretells with the decision of the evictor"},
	{"evictor/preview", "evictor/breaker", "reads approvals as breakers do, which are values"},
}

// impure are the packages, with all below, that pure code does not import.
var impure = []string{
	"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/prometheus", "go.opentelemetry.io", "github.com/go-logr/logr", "log",
}

// refusal says why a file may not import a package, and is empty where it may.
func refusal(file, imported string) string {
	if strings.HasSuffix(file, "_test.go") || isUnderAny(file, free) {
		return ""
	}
	for _, e := range narrower {
		if isUnder(file, e.path) && isUnder(imported, e.imports) {
			return e.reason
		}
	}
	if below, ours := strings.CutPrefix(imported+"/", module+"/"); ours {
		return arrowRefusal(file, strings.TrimSuffix(below, "/"))
	}
	if isPure(file) && isUnderAny(imported, impure) {
		return "is pure"
	}
	return ""
}

// arrowRefusal says why a file may not import a package of ours.
func arrowRefusal(file, imported string) string {
	for _, e := range arrowExceptions {
		if isUnder(file, e.path) && isUnder(imported, e.imports) {
			return ""
		}
	}
	for _, r := range rooms {
		if isUnder(file, r.folder) {
			if isUnderAny(imported, r.imports) {
				return ""
			}
			return fmt.Sprintf("is in %s, which imports only %q of ours", r.folder, r.imports)
		}
	}
	return "is in no room"
}

// isPure tells whether clients, logs and metrics have no place in a file.
func isPure(file string) bool {
	return isUnderAny(file, pure) && !slices.ContainsFunc(edges, func(e exception) bool { return isUnder(file, e.path) })
}

// isPurePackage tells whether no file of a folder is an edge.
func isPurePackage(folder string) bool {
	return isPure(folder) && !slices.ContainsFunc(edges, func(e exception) bool { return path.Dir(e.path) == folder && path.Ext(e.path) == ".go" })
}

func isUnder(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

func isUnderAny(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return isUnder(name, folder) })
}

// readImports reads them once for all tests.
var readImports = sync.OnceValues(importsOfFiles)

// imports returns what each Go file of the repository imports, also files that are for other
// platforms and those of other modules. Files are named from the root, with slashes.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	all, err := readImports()
	require.NoError(t, err)
	require.Contains(t, all, "cmd/tollgate/main.go", "the test runs at the root of the repository")
	return all
}

func importsOfFiles() (map[string][]string, error) {
	all := map[string][]string{}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (entry.Name() == "testdata" || strings.ContainsAny(entry.Name()[:1], "._")):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		imported := make([]string, 0, len(file.Imports))
		for _, spec := range file.Imports {
			imported = append(imported, strings.Trim(spec.Path.Value, "\"`"))
		}
		all[filepath.ToSlash(name)] = imported
		return nil
	})
	return all, err
}

func TestImportsFollowTheArrows(t *testing.T) {
	t.Parallel()
	for file, imported := range imports(t) {
		for _, pkg := range imported {
			if why := refusal(file, pkg); why != "" {
				t.Errorf("%s imports %s, but %s", file, pkg, why)
			}
		}
	}
}

// Otherwise clients come into a pure package through another of ours.
func TestPurePackagesImportPurePackages(t *testing.T) {
	t.Parallel()
	for file, imported := range imports(t) {
		if strings.HasSuffix(file, "_test.go") || !isPurePackage(path.Dir(file)) {
			continue
		}
		for _, pkg := range imported {
			below, ours := strings.CutPrefix(pkg, module+"/")
			isExcepted := slices.ContainsFunc(impureImports, func(e exception) bool { return path.Dir(file) == e.path && below == e.imports })
			if ours && !isPurePackage(below) && !isExcepted {
				t.Errorf("%s is of a pure package, but imports %s, which is not", file, pkg)
			}
		}
	}
}

func TestEveryFolderWithCodeIsARoom(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for file := range imports(t) {
		folder, _, below := strings.Cut(file, "/")
		if !below {
			require.Contains(t, file, "_test.go", "only tests are at the root")
			continue
		}
		found[folder] = true
	}
	want := slices.Clone(free)
	for _, r := range rooms {
		want = append(want, r.folder)
	}
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(found)))
}

func TestEveryExceptionIsNeeded(t *testing.T) {
	t.Parallel()
	all := imports(t)
	isNeeded := func(at string, by func(imported string) bool) bool {
		for file, imported := range all {
			if isUnder(file, at) && !strings.HasSuffix(file, "_test.go") && slices.ContainsFunc(imported, by) {
				return true
			}
		}
		return false
	}
	for _, e := range edges {
		require.True(t, isNeeded(e.path, func(imported string) bool { return isUnderAny(imported, impure) }),
			"%s is free of clients, logs, metrics and traces: take it out here and in .golangci.yml", e.path)
		require.NotEmpty(t, e.reason)
	}
	for _, e := range impureImports {
		require.True(t, isNeeded(e.path, func(imported string) bool { return imported == path.Join(module, e.imports) }) && !isPurePackage(e.imports),
			"%s does not import %s, or that is pure: take it out", e.path, e.imports)
		require.NotEmpty(t, e.reason)
	}
	for _, e := range arrowExceptions {
		require.True(t, isNeeded(e.path, func(imported string) bool { return isUnder(imported, path.Join(module, e.imports)) }),
			"%s does not import %s: take it out here and in .golangci.yml", e.path, e.imports)
		require.NotEmpty(t, e.reason)
	}
}

func TestForbiddenImportsAreRefused(t *testing.T) {
	t.Parallel()
	const ours = module + "/"
	for name, tt := range map[string]struct {
		file, imported string
		allowed        bool
	}{
		"api imports no room":                              {file: "api/v1alpha1/new.go", imported: ours + "policy"},
		"api imports no other API":                         {file: "api/config/v1alpha1/new.go", imported: ours + "api/v1alpha1"},
		"api imports no client":                            {file: "api/v2/new/new.go", imported: "k8s.io/client-go/rest"},
		"api imports the types of Kubernetes":              {file: "api/v1alpha1/new.go", imported: "k8s.io/api/core/v1", allowed: true},
		"policy imports api":                               {file: "policy/new.go", imported: ours + "api/v1alpha1", allowed: true},
		"policy imports policy":                            {file: "policy/new.go", imported: ours + "policy/eviction", allowed: true},
		"policy does not import tracker":                   {file: "policy/new.go", imported: ours + "tracker"},
		"a folder of policy does not import tracker":       {file: "policy/eviction/new.go", imported: ours + "tracker"},
		"a new folder of policy does not import tracker":   {file: "policy/new/deep/new.go", imported: ours + "tracker/device"},
		"a folder of policy imports no client":             {file: "policy/eviction/new.go", imported: "k8s.io/client-go/kubernetes"},
		"a new folder of policy imports no client":         {file: "policy/new/deep/new.go", imported: "sigs.k8s.io/controller-runtime/pkg/client"},
		"a folder of policy counts nothing":                {file: "policy/eviction/new.go", imported: "github.com/prometheus/client_golang/prometheus"},
		"a folder of policy does not log":                  {file: "policy/eviction/new.go", imported: "github.com/go-logr/logr"},
		"a folder of policy does not log by itself":        {file: "policy/eviction/new.go", imported: "log/slog"},
		"a folder of policy does not trace":                {file: "policy/eviction/new.go", imported: "go.opentelemetry.io/otel/trace"},
		"the decision of evictor does not trace":           {file: "evictor/decide/new.go", imported: "go.opentelemetry.io/otel/trace"},
		"the checks of evictor do not trace":               {file: "evictor/checks/new.go", imported: "go.opentelemetry.io/otel/trace"},
		"a package whose name begins like log is another":  {file: "policy/eviction/new.go", imported: "login", allowed: true},
		"a test of policy may import a client":             {file: "policy/eviction/new_test.go", imported: "k8s.io/client-go/kubernetes/fake", allowed: true},
		"tracker imports policy":                           {file: "tracker/new.go", imported: ours + "policy/slicepatch", allowed: true},
		"tracker does not import evictor":                  {file: "tracker/new.go", imported: ours + "evictor"},
		"a folder of tracker does not import evictor":      {file: "tracker/informer/new.go", imported: ours + "evictor/controller"},
		"a folder of tracker imports no client":            {file: "tracker/device/new.go", imported: "k8s.io/client-go/tools/cache"},
		"a new folder of tracker imports no client":        {file: "tracker/new/new.go", imported: "k8s.io/client-go/tools/cache"},
		"a new file of sliceview imports no client":        {file: "tracker/sliceview/new.go", imported: "k8s.io/client-go/tools/cache"},
		"informer watches":                                 {file: "tracker/informer/deep/new.go", imported: "k8s.io/client-go/tools/cache", allowed: true},
		"evictor imports tracker":                          {file: "evictor/new.go", imported: ours + "tracker/device", allowed: true},
		"evictor does not import webhook":                  {file: "evictor/new.go", imported: ours + "webhook"},
		"a folder of evictor does not import controllers":  {file: "evictor/ratelimit/new.go", imported: ours + "controllers"},
		"a decision of evictor imports no client":          {file: "evictor/decide_new.go", imported: "k8s.io/client-go/kubernetes"},
		"a folder of evictor imports no client":            {file: "evictor/preview/new.go", imported: "sigs.k8s.io/controller-runtime/pkg/client"},
		"a new folder of evictor imports no client":        {file: "evictor/new/deep/new.go", imported: "sigs.k8s.io/controller-runtime/pkg/client"},
		"the approvals of previews are listed":             {file: "evictor/preview/approvals.go", imported: "sigs.k8s.io/controller-runtime/pkg/client", allowed: true},
		"webhook imports previews":                         {file: "webhook/new.go", imported: ours + "evictor/preview", allowed: true},
		"webhook does not import evictor":                  {file: "webhook/new.go", imported: ours + "evictor"},
		"a folder of webhook does not import evictor":      {file: "webhook/policies/new.go", imported: ours + "evictor/breaker"},
		"a new folder of webhook does not import certs":    {file: "webhook/new/deep/new.go", imported: ours + "certs"},
		"handlers do not import HTTP":                      {file: "webhook/handlers/new.go", imported: "net/http"},
		"a test of handlers may import HTTP":               {file: "webhook/handlers/new_test.go", imported: "net/http", allowed: true},
		"webhook imports HTTP":                             {file: "webhook/new.go", imported: "net/http", allowed: true},
		"handlers import reviews":                          {file: "webhook/handlers/new.go", imported: ours + "webhook/review", allowed: true},
		"reviews import nothing of ours":                   {file: "webhook/review/new.go", imported: ours + "policy"},
		"controllers import evictor":                       {file: "controllers/nodetaints/new.go", imported: ours + "evictor/controller", allowed: true},
		"controllers do not import webhook":                {file: "controllers/nodetaints/new.go", imported: ours + "webhook/policies"},
		"new controllers do not import certs":              {file: "controllers/new/deep/new.go", imported: ours + "certs"},
		"registration imports certs":                       {file: "controllers/registration/new.go", imported: ours + "certs", allowed: true},
		"registration imports the manifests":               {file: "controllers/registration/new.go", imported: ours + "deploy/webhooks", allowed: true},
		"registration does not import webhook":             {file: "controllers/registration/new.go", imported: ours + "webhook"},
		"certs does not import the API":                    {file: "certs/new.go", imported: ours + "api/v1alpha1"},
		"a new folder of certs does not import policy":     {file: "certs/new/new.go", imported: ours + "policy"},
		"certs imports clients":                            {file: "certs/new.go", imported: "k8s.io/client-go/kubernetes", allowed: true},
		"cmd imports webhook":                              {file: "cmd/tollgate/internal/app/new.go", imported: ours + "webhook", allowed: true},
		"cmd imports cmd":                                  {file: "cmd/tollgate/internal/new/new.go", imported: ours + "cmd/kubectl-tollgate/internal/cli", allowed: true},
		"cmd does not import scheduler":                    {file: "cmd/tollgate/internal/new/new.go", imported: ours + "scheduler/plugins"},
		"cmd does not import e2e":                          {file: "cmd/tollgate/internal/app/new.go", imported: ours + "e2e/suite"},
		"only cmd imports cmd":                             {file: "controllers/nodetaints/new.go", imported: ours + "cmd/kubectl-tollgate/internal/cli"},
		"scheduler imports policy":                         {file: "scheduler/plugins/new.go", imported: ours + "policy/slicepatch", allowed: true},
		"scheduler does not import evictor":                {file: "scheduler/plugins/new.go", imported: ours + "evictor"},
		"a new folder of scheduler does not import cmd":    {file: "scheduler/new/deep/new.go", imported: ours + "cmd/tollgate/internal/app"},
		"deploy imports nothing of ours":                   {file: "deploy/image/new.go", imported: ours + "api/v1alpha1"},
		"e2e imports anything":                             {file: "e2e/cmd/new.go", imported: ours + "evictor", allowed: true},
		"a new room imports nothing of ours":               {file: "new/new.go", imported: ours + "api/v1alpha1"},
		"code at the root imports nothing of ours":         {file: "new.go", imported: ours + "api/v1alpha1"},
		"no room imports the root":                         {file: "cmd/tollgate/internal/app/new.go", imported: module},
		"a module whose name begins like ours is another":  {file: "api/v1alpha1/new.go", imported: module + "-client/policy", allowed: true},
		"a room whose name begins like another is another": {file: "policymaker/new.go", imported: ours + "api/v1alpha1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.allowed, refusal(tt.file, tt.imported) == "")
		})
	}
}
