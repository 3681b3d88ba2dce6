package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
)

// serve starts the command, and returns the address that it prints. It ends with the test.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), programs.Plugin(), append([]string{"dashboard"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig())
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait(), "an interrupt is no error")
	})
	lines := bufio.NewReader(out)
	address, err := lines.ReadString('\n')
	require.NoError(t, err)
	address = strings.TrimSpace(address)
	_, err = url.Parse(address)
	require.NoError(t, err, address)
	return address
}

// page is a page in a browser.
type page struct {
	ctx context.Context //nolint:containedctx // chromedp identifies a page by its context.
}

// open opens the page at an address, in a browser of its own.
func open(t *testing.T, address string) *page {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium), chromedp.WindowSize(1280, 900),
		chromedp.Flag("no-sandbox", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()))
	allocated, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(end)
	ctx, closePage := chromedp.NewContext(allocated)
	t.Cleanup(closePage)
	p := &page{ctx}
	p.do(t, chromedp.Navigate(address))
	return p
}

func (p *page) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(p.ctx, actions...))
}

// evaluate returns the value of an expression in a page.
func evaluate[T any](t *testing.T, p *page, expression string) T {
	t.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(t, err, expression)
	return value
}

// roles returns the role and the accessible name of each element, as "role name".
func (p *page) roles(t *testing.T) []string {
	t.Helper()
	tree, err := chromedp.Run(p.ctx, func(ctx context.Context, target *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	require.NoError(t, err)
	text := func(value *accessibility.Value) string {
		var s string
		if value != nil {
			require.NoError(t, json.Unmarshal([]byte(value.Value), &s))
		}
		return s
	}
	var all []string
	for _, node := range tree.Nodes {
		if !node.Ignored {
			all = append(all, strings.TrimSpace(text(node.Role)+" "+text(node.Name)))
		}
	}
	return all
}

// waitRole waits until the page has an element with a role and a name that begins so.
func (p *page) waitRole(t *testing.T, role string) {
	t.Helper()
	var last []string
	eventually(t, role, func(context.Context) error {
		last = p.roles(t)
		if slices.ContainsFunc(last, func(s string) bool { return strings.HasPrefix(s, role) }) {
			return nil
		}
		return fmt.Errorf("the page has %s", strings.Join(last, "\n"))
	})
}

// press presses keys.
func (p *page) press(t *testing.T, keys string) {
	t.Helper()
	p.do(t, chromedp.KeyEvent(keys))
}

// focused is the name of the element that has the focus.
const focused = `(() => {
	const at = document.activeElement, by = at.getAttribute("aria-labelledby");
	return (at.getAttribute("aria-label") ?? (by ? document.getElementById(by) : at).textContent).trim();
})()`

// tab presses the tab key until the element of a name has the focus.
func (p *page) tab(t *testing.T, name string) {
	t.Helper()
	const most = 300
	var passed []string
	for range most {
		p.press(t, kb.Tab)
		at := evaluate[string](t, p, focused)
		if at == name {
			return
		}
		passed = append(passed, at)
	}
	require.Fail(t, "the tab key does not reach "+name, strings.Join(passed, "\n"))
}

// text returns the text of the first element of a selector.
func (p *page) text(t *testing.T, selector string) string {
	t.Helper()
	return evaluate[string](t, p, fmt.Sprintf(`document.querySelector(%q).textContent`, selector))
}

// waitText waits until an element contains a text.
func (p *page) waitText(t *testing.T, selector, text string) {
	t.Helper()
	eventually(t, text, func(context.Context) error {
		if got := p.text(t, selector); !strings.Contains(got, text) {
			return fmt.Errorf("%s is %q", selector, got)
		}
		return nil
	})
}

// colours sets the colour scheme that the user prefers.
func (p *page) colours(t *testing.T, scheme string) {
	t.Helper()
	_, err := chromedp.Run(p.ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
	})
	require.NoError(t, err)
}

// eventually returns when check does without an error, and fails the test with the last one
// if that takes too long.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}
