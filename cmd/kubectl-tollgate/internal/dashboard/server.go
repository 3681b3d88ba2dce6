package dashboard

import (
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
)

//go:embed page
var files embed.FS

var index = template.Must(template.ParseFS(files, "page/index.html"))

// server serves the page. Its fields are set before the first request.
type server struct {
	// host is the address that the server listens on, and token the first part of every path.
	host, token string
	// cluster is the name of the cluster on the page.
	cluster string
	execute Execute
	// flags are those of the connection, for commands. Same returns an error if they lead to another
	// cluster by now.
	flags  []string
	same   func() error
	frames *frames
	// looks and writes limit the commands that run at once: a slow look keeps no pause waiting.
	looks, writes *semaphore.Weighted
}

const (
	// mostStreams is the maximum number of pages that follow the cluster.
	mostStreams = 16
	// mostBody is the maximum size of a request, and mostOutput that of the output of a command.
	mostBody, mostOutput = 4 << 10, 256 << 10
	// mostLooks is the maximum number of explanations and dry runs at once.
	mostLooks = 8
	// longest is the maximum duration of a command.
	longest = 2 * time.Minute
	// heartbeat is the interval at which a stream shows that it is alive.
	heartbeat = 10 * time.Second
	// slowest is the time that a page has to take in an update.
	slowest = 30 * time.Second
)

// handler returns the handler of all requests.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.index)
	for _, name := range []string{"style.css", "script.js"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "page/"+name) })
	}
	streams := semaphore.NewWeighted(mostStreams)
	s.looks, s.writes = semaphore.NewWeighted(mostLooks), semaphore.NewWeighted(1)
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		if !streams.TryAcquire(1) {
			http.Error(w, "too many pages follow the cluster", http.StatusTooManyRequests)
			return
		}
		defer streams.Release(1)
		s.stream(w, r)
	})
	mux.HandleFunc("POST /run", s.run)
	return s.guard(mux)
}

// contentPolicy has the page load and run only what this server serves. No text becomes HTML.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard answers only requests for this host with the token, and none from pages of other origins. The
// name of the host is checked because other names can resolve to the loopback address too.
func (s *server) guard(next http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(s.host)
	hosts := []string{s.host, "localhost:" + port}
	if port == "80" { // Browsers leave it out.
		hosts = append(hosts, "127.0.0.1", "localhost")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for name, value := range map[string]string{
			"Content-Security-Policy": contentPolicy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			header.Set(name, value)
		}
		if r.ContentLength != 0 { // A body that does not come keeps no connection.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(slowest)) // A writer without deadlines is one of a test.
		}
		if !slices.Contains(hosts, r.Host) {
			http.Error(w, "not this host", http.StatusMisdirectedRequest)
			return
		}
		origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
		if origin != "" && origin != "http://"+r.Host || site != "" && site != "same-origin" && site != "none" || r.Method != http.MethodGet && origin == "" {
			http.Error(w, "not from this page", http.StatusForbidden)
			return
		}
		token, rest, complete := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
			http.Error(w, "no such page: the command prints the address", http.StatusNotFound)
			return
		}
		if !complete { // Relative addresses of the page need the slash.
			http.Redirect(w, r, "/"+s.token+"/", http.StatusFound)
			return
		}
		within := r.Clone(r.Context())
		within.URL.Path, within.URL.RawPath = "/"+rest, ""
		next.ServeHTTP(w, within)
	})
}

func (s *server) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = index.Execute(w, s.cluster) // The page may be gone.
}

// stream sends an event with what changed for each frame, until the page is closed.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(w)
	send := func(text string) bool {
		_ = controller.SetWriteDeadline(time.Now().Add(slowest)) // A writer without deadlines is one of a test.
		_, err := io.WriteString(w, text)
		return err == nil && controller.Flush() == nil
	}
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	var sent *frame
	for text := ": reading the cluster\n\n"; send(text); {
		current, changed := s.frames.get()
		if current != sent {
			changes, err := json.Marshal(current.since(sent))
			if err != nil {
				return
			}
			sent, text = current, "data: "+string(changes)+"\n\n"
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
			text = ": changed\n\n"
		case <-ticker.C:
			text = ": alive\n\n"
		}
	}
}

// request is a command that the page runs.
type request struct {
	Args []string `json:"args"`
	// Confirmed is false to see the effect of a command that writes.
	Confirmed bool `json:"confirmed"`
}

// answer is what a command wrote.
type answer struct {
	// Command is the command line that a confirmed request runs.
	Command string `json:"command"`
	Output  string `json:"output"`
	// Code is the exit code.
	Code int `json:"code"`
}

// run runs a command of the page.
func (s *server) run(w http.ResponseWriter, r *http.Request) {
	var asked request
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&asked); err != nil {
		http.Error(w, "read the command: "+err.Error(), http.StatusBadRequest)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // See guard.
	current, _ := s.frames.get()
	if !current.offers(asked.Args) {
		http.Error(w, fmt.Sprintf("the page offers no command %q now", asked.Args), http.StatusForbidden)
		return
	}
	confirmed := slices.Clip(asked.Args)
	if slices.Contains([]string{"resume", "release", "approve"}, asked.Args[0]) { // These would ask, and have no input.
		confirmed = append(confirmed, "--yes")
	}
	confirmed = append(confirmed, s.flags...)
	args, running := confirmed, s.writes
	switch {
	case asked.Args[0] == "explain":
		running = s.looks
	case !asked.Confirmed:
		args, running = append(append(slices.Clip(asked.Args), "--dry-run=server"), s.flags...), s.looks
	}
	if !running.TryAcquire(1) {
		http.Error(w, "another command runs", http.StatusTooManyRequests)
		return
	}
	defer running.Release(1)
	if err := s.same(); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	ctx := r.Context()
	if asked.Confirmed { // It ends as the user was told, also if the page is gone.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, stop := context.WithTimeout(ctx, longest)
	defer stop()
	out := &limited{left: mostOutput}
	code, err := s.execute(ctx, args, out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer{ // The page may be gone.
		Command: "kubectl tollgate " + strings.Join(shown(confirmed), " "), Output: out.String(), Code: code,
	})
}

// plainArg matches an argument that a shell takes as it is.
var plainArg = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shown returns arguments to copy into a shell, without the values of flags that are secret.
func shown(args []string) []string {
	texts := make([]string, 0, len(args))
	for _, arg := range args {
		if name, _, found := strings.Cut(arg, "="); found && (name == "--token" || name == "--password") {
			arg = name + "=..."
		}
		if !plainArg.MatchString(arg) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		texts = append(texts, arg)
	}
	return texts
}

// limited is a buffer that drops what exceeds a size, and says so. It is not safe for concurrent use.
type limited struct {
	text strings.Builder
	// left is the size that is left, negative after it is exceeded.
	left int
}

// Write implements io.Writer.
func (l *limited) Write(text []byte) (int, error) {
	l.text.Write(text[:max(min(len(text), l.left), 0)])
	l.left -= len(text)
	return len(text), nil
}

// String returns the text.
func (l *limited) String() string {
	if l.left < 0 {
		return l.text.String() + "\n... the output is longer\n"
	}
	return l.text.String()
}

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
		return f.evicts(args[1], objects)
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

// evicts reports whether the arguments are the name of an object of a kind with taints, and a number of
// pods.
func (f *frame) evicts(kind string, args []string) bool {
	return len(args) == 2 && isNumber(args[1]) &&
		slices.ContainsFunc(f.shown.Taints, func(p progress) bool { return p.Kind == kind && p.Name == args[0] })
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
