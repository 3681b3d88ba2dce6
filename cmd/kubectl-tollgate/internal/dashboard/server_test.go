package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

const token = "SECRET"

// serve returns the address of a server with a frame, without a slash at the end.
func serve(t *testing.T, s *server) string {
	t.Helper()
	serving := httptest.NewUnstartedServer(nil)
	s.token, s.cluster, s.host = token, "prod", serving.Listener.Addr().String()
	if s.frames == nil {
		s.frames = newFrames()
		s.frames.publish(frameAt(t, manifests, noon))
	}
	serving.Config.Handler = s.handler()
	serving.Start()
	t.Cleanup(serving.Close)
	return serving.URL
}

// reply is an answer that was read.
type reply struct {
	code   int
	header http.Header
	body   string
}

// do sends a request and returns the answer.
func do(t *testing.T, method, address, body string, header map[string]string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range header {
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return reply{response.StatusCode, response.Header, string(text)}
}

func TestServesThePageToTheHolderOfTheToken(t *testing.T) {
	t.Parallel()
	address := serve(t, &server{})
	_, port, _ := strings.Cut(strings.TrimPrefix(address, "http://"), ":")
	for sentence, c := range map[string]struct {
		method, path string
		header       map[string]string
		code         int
	}{
		"the page":                          {path: "/SECRET/", code: http.StatusOK},
		"its style":                         {path: "/SECRET/style.css", code: http.StatusOK},
		"its script":                        {path: "/SECRET/script.js", code: http.StatusOK},
		"by the name localhost":             {path: "/SECRET/", header: map[string]string{"Host": "localhost:" + port}, code: http.StatusOK},
		"without the slash":                 {path: "/SECRET", code: http.StatusFound},
		"no token":                          {path: "/", code: http.StatusNotFound},
		"the style without the token":       {path: "/style.css", code: http.StatusNotFound},
		"another token":                     {path: "/SECRE7/", code: http.StatusNotFound},
		"a part of the token":               {path: "/SECRE/", code: http.StatusNotFound},
		"more than the token":               {path: "/SECRETS/", code: http.StatusNotFound},
		"no events without the token":       {path: "/events", code: http.StatusNotFound},
		"no way around the token":           {path: "/x/../events", code: http.StatusNotFound},
		"another name of this machine":      {path: "/SECRET/", header: map[string]string{"Host": "evil.example.com:" + port}, code: http.StatusMisdirectedRequest},
		"another port":                      {path: "/SECRET/", header: map[string]string{"Host": "127.0.0.1:1"}, code: http.StatusMisdirectedRequest},
		"a page of another origin":          {path: "/SECRET/", header: map[string]string{"Origin": "http://evil.example.com"}, code: http.StatusForbidden},
		"a page of another port":            {path: "/SECRET/", header: map[string]string{"Sec-Fetch-Site": "same-site"}, code: http.StatusForbidden},
		"a command of another origin":       {method: http.MethodPost, path: "/SECRET/run", header: map[string]string{"Origin": "http://evil.example.com"}, code: http.StatusForbidden},
		"a command of no origin":            {method: http.MethodPost, path: "/SECRET/run", code: http.StatusForbidden},
		"a command of an opaque origin":     {method: http.MethodPost, path: "/SECRET/run", header: map[string]string{"Origin": "null"}, code: http.StatusForbidden},
		"a command without the token":       {method: http.MethodPost, path: "/run", header: map[string]string{"Origin": address}, code: http.StatusNotFound},
		"a command by the wrong method":     {path: "/SECRET/run", code: http.StatusMethodNotAllowed},
		"a file that the page does not use": {path: "/SECRET/index.html", code: http.StatusNotFound},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if c.method == "" {
				c.method = http.MethodGet
			}
			got := do(t, c.method, address+c.path, "", c.header)
			require.Equal(t, c.code, got.code, got.body)
			require.Equal(t, contentPolicy, got.header.Get("Content-Security-Policy"))
			require.Equal(t, "no-referrer", got.header.Get("Referrer-Policy"))
			require.Equal(t, "no-store", got.header.Get("Cache-Control"))
			if c.code != http.StatusOK {
				require.NotContains(t, got.body, "prod")
				require.NotContains(t, got.body, "held")
			}
		})
	}
}

func TestTheNameOfTheClusterIsText(t *testing.T) {
	t.Parallel()
	s := &server{}
	address := serve(t, s)
	s.cluster = `<script>alert(1)</script>`
	body := do(t, http.MethodGet, address+"/SECRET/", "", nil).body
	require.Contains(t, body, "<title>Tollgate: &lt;script&gt;")
	require.NotContains(t, body, s.cluster)
}

// event reads the next event of a stream.
func event(t *testing.T, stream *bufio.Reader) update {
	t.Helper()
	for {
		line, err := stream.ReadString('\n')
		require.NoError(t, err)
		if data, found := strings.CutPrefix(line, "data: "); found {
			var u update
			require.NoError(t, json.Unmarshal([]byte(data), &u))
			return u
		}
	}
}

func TestAStreamFollowsTheCluster(t *testing.T) {
	t.Parallel()
	s := &server{frames: newFrames()}
	address := serve(t, s)
	open := func() (int, *bufio.Reader) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/SECRET/events", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, response.Body.Close()) })
		return response.StatusCode, bufio.NewReader(response.Body)
	}
	_, stream := open()
	s.frames.publish(frameAt(t, manifests, noon))
	require.Len(t, event(t, stream).Pods, 3)
	s.frames.publish(frameAt(t, strings.Replace(manifests, "name: waits, uid: u2", "name: new, uid: u5", 1), noon.Add(time.Second)))
	changes := event(t, stream)
	require.Equal(t, []string{"web/waits/u2"}, changes.Gone)
	require.Len(t, changes.Pods, 1)
	require.Equal(t, noon.Add(time.Second).UnixMilli(), changes.Now)

	for range mostStreams - 1 {
		code, _ := open()
		require.Equal(t, http.StatusOK, code)
	}
	code, _ := open()
	require.Equal(t, http.StatusTooManyRequests, code)
}

func TestOffersOnlyCommandsOfThePage(t *testing.T) {
	t.Parallel()
	f := frameAt(t, manifests, noon)
	for args, want := range map[string]bool{
		"pause all": true, "resume all": true, "pause policy default": true, "resume policy gpus": true, "release default --pods=4": true,
		"approve node n1 --pods=1": true, "explain node n3": true, "explain device gpu.example.com/n3/gpu-1": true, "explain pod held --namespace web": true,
		"": false, "pause": false, "pause policy": false, "pause policy none": false, "pause all all": false, "pause policy default extra": false,
		"release": false, "release default": false, "release default --pods=0": false, "release default --pods=-1": false, "release default --pods=9999999999": false,
		"release default --pods=1 --yes": false, "release none --pods=1": false, "release --help": false, "approve node n1": false, "approve node n3 --pods=1": false,
		"approve slice n1 --pods=1": false, "approve policy default --pods=1": false, "approve node n1 --for=9h": false,
		"explain node none": false, "explain pod stays --namespace web": false, "explain pod held --namespace": false, "explain pod held --kubeconfig web": false,
		"explain pod held --namespace web extra": false, "explain claim c": false, "check --cluster": false, "export vap": false, "explain node n1 --as=root": false,
	} {
		require.Equal(t, want, f.offers(strings.Fields(args)), args)
	}
	require.False(t, (*frame)(nil).offers([]string{"pause", "all"}), "nothing is known yet")
}

func TestRunsCommandsOfThePage(t *testing.T) {
	t.Parallel()
	var ran [][]string
	s := &server{
		flags: []string{"--context=prod", "--token=hidden", "--kubeconfig=/my files/it's"}, same: func() error { return nil },
		execute: func(_ context.Context, args []string, out io.Writer) (int, error) {
			ran = append(ran, args)
			_, _ = io.WriteString(out, "one pod\n")
			switch args[0] {
			case "approve":
				return cli.ExitVerdict, nil
			case "release":
				_, err := io.WriteString(out, strings.Repeat("x", mostOutput))
				return 0, err
			}
			return 0, nil
		},
	}
	address := serve(t, s)
	run := func(body string) (int, answer, string) {
		got := do(t, http.MethodPost, address+"/SECRET/run", body, map[string]string{"Origin": address})
		var a answer
		if got.code == http.StatusOK {
			require.NoError(t, json.Unmarshal([]byte(got.body), &a))
		}
		return got.code, a, got.body
	}
	const flags, shown = ` --context=prod --token=hidden --kubeconfig=/my files/it's`, ` --context=prod --token=... '--kubeconfig=/my files/it'\''s'`
	for _, c := range []struct {
		body   string
		ran    string
		answer answer
	}{
		{`{"args": ["pause", "all"]}`, "pause all --dry-run=server", answer{"pause all", "one pod\n", 0}},
		{`{"args": ["resume", "policy", "gpus"], "confirmed": true}`, "resume policy gpus --yes", answer{"resume policy gpus --yes", "one pod\n", 0}},
		{`{"args": ["explain", "node", "n1"]}`, "explain node n1", answer{"explain node n1", "one pod\n", 0}},
		{
			`{"args": ["approve", "node", "n1", "--pods=1"], "confirmed": true}`, "approve node n1 --pods=1 --yes",
			answer{"approve node n1 --pods=1 --yes", "one pod\n", cli.ExitVerdict},
		},
		{
			`{"args": ["release", "default", "--pods=1"], "confirmed": true}`, "release default --pods=1 --yes",
			answer{"release default --pods=1 --yes", "one pod\n" + strings.Repeat("x", mostOutput-len("one pod\n")) + "\n... the output is longer\n", 0},
		},
	} {
		code, got, text := run(c.body)
		require.Equal(t, http.StatusOK, code, text)
		c.answer.Command = "kubectl tollgate " + c.answer.Command + shown
		require.Equal(t, c.answer, got)
		require.Equal(t, c.ran+flags, strings.Join(ran[len(ran)-1], " "))
	}
	before := len(ran)
	for body, want := range map[string]int{
		`{"args": ["check", "--cluster"]}`: http.StatusForbidden, `{"args": []}`: http.StatusForbidden, `{"args": ["pause", "all"], "more": 1}`: http.StatusBadRequest,
		`no`: http.StatusBadRequest, `{"args": ["` + strings.Repeat("x", mostBody) + `"]}`: http.StatusBadRequest,
	} {
		code, _, text := run(body)
		require.Equal(t, want, code, text)
	}
	s.same = func() error { return errors.New("another cluster") }
	code, _, text := run(`{"args": ["pause", "all"], "confirmed": true}`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "another cluster\n", text)
	require.Len(t, ran, before, "nothing ran")
}

// A look that hangs does not keep a pause waiting.
func TestOneConfirmedCommandAtATime(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	s := &server{same: func() error { return nil }, execute: func(ctx context.Context, _ []string, _ io.Writer) (int, error) {
		begun <- struct{}{}
		select {
		case <-end:
			return 0, nil
		case <-ctx.Done():
			return 0, errors.New("too late")
		}
	}}
	address := serve(t, s)
	codes := make(chan int)
	post := func(body string) int {
		return do(t, http.MethodPost, address+"/SECRET/run", body, map[string]string{"Origin": address}).code
	}
	const explain, pause = `{"args": ["explain", "node", "n1"]}`, `{"args": ["pause", "all"], "confirmed": true}`
	for range mostLooks {
		go func() { codes <- post(explain) }()
		<-begun
	}
	require.Equal(t, http.StatusTooManyRequests, post(explain))
	go func() { codes <- post(pause) }()
	<-begun
	require.Equal(t, http.StatusTooManyRequests, post(pause))
	close(end)
	for range mostLooks + 1 {
		require.Equal(t, http.StatusOK, <-codes)
	}
}

// What has no token holds no connection for long.
func TestABodyThatDoesNotComeEndsTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, connection := net.Pipe()
		s := &server{host: "127.0.0.1:1", token: token, frames: newFrames()}
		serving := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Second}
		go func() { _ = serving.Serve(&oneListener{connection: connection}) }()
		_, err := io.WriteString(client, "POST /run HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 10\r\n\r\n")
		require.NoError(t, err)
		answer, err := io.ReadAll(client)
		require.NoError(t, err, "the server closes the connection")
		require.Contains(t, string(answer), "403 Forbidden")
		require.NoError(t, serving.Close())
	})
}

// oneListener accepts one connection.
type oneListener struct{ connection net.Conn }

func (l *oneListener) Accept() (net.Conn, error) {
	connection := l.connection
	if l.connection = nil; connection == nil {
		return nil, net.ErrClosed
	}
	return connection, nil
}

func (l *oneListener) Close() error { return nil }

func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }
