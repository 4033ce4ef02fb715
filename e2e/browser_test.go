package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browser is one headless Chromium, spoken to through a pair of pipes in its own protocol (DevTools): a JSON object a message, each ended
// by a zero byte.
type browser struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *os.File
	mu     sync.Mutex
	number int
	calls  map[int]chan reply
	tabs   map[string]*tab // by session
	err    error           // why nothing more can be asked
	log    *tail
}

var desktop = regexp.MustCompile(`(?m)^.*:ERROR:dbus/.*\n`)

type reply struct {
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct{ Message string }
}

// newBrowser starts a browser that ends with the test, or skips the test if there is none; where everything is required it fails.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("E2E_REQUIRE") != "" {
			t.Fatalf("no browser: %v; apt-get install chromium", err)
		}
		t.Skipf("no browser to look at the console with: %v; apt-get install chromium", err)
	}
	fromTest, toBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromBrowser, toTest, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, out: toBrowser, calls: map[int]chan reply{}, tabs: map[string]*tab{}, log: &tail{}}
	profile, err := os.MkdirTemp("", "tanist-browser-")
	if err != nil {
		t.Fatal(err)
	}
	b.cmd = exec.Command(program, "--headless", "--remote-debugging-pipe", "--user-data-dir="+profile, "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--no-default-browser-check", "--disable-extensions", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-breakpad", "--hide-scrollbars", "--force-color-profile=srgb", "about:blank")
	b.cmd.ExtraFiles = []*os.File{fromTest, toTest} // 3 and 4, as it wants them
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	b.cmd.Env = append(os.Environ(), "HOME="+profile, "TMPDIR="+profile, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = fromTest.Close(), toTest.Close()
	read := make(chan struct{})
	go func() { defer close(read); b.read(fromBrowser) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) // and its helpers
		_ = b.cmd.Wait()
		<-read
		_, _ = toBrowser.Close(), fromBrowser.Close()
		_ = os.RemoveAll(profile) // one of its helpers may write there until it has ended
		if t.Failed() {
			t.Logf("the browser, which asks for a desktop in vain, said:\n%s", desktop.ReplaceAllString(b.log.String(), ""))
		}
	})
	return b
}

func (b *browser) read(from io.Reader) {
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadBytes(0)
		var m reply
		if err == nil {
			err = json.Unmarshal(text[:len(text)-1], &m)
		}
		b.mu.Lock()
		if err != nil {
			b.err = fmt.Errorf("the browser ended: %w", err)
			for _, c := range b.calls {
				close(c)
			}
			b.calls = nil
			b.mu.Unlock()
			return
		}
		if c := b.calls[m.ID]; c != nil {
			delete(b.calls, m.ID)
			c <- m
		} else if t := b.tabs[m.Session]; t != nil {
			t.heard(m)
		}
		b.mu.Unlock()
	}
}

// call asks for something and waits for the answer. It may be called from the test's goroutine only.
func (b *browser) call(session, method string, params any, into any) error {
	b.mu.Lock()
	if b.err != nil {
		defer b.mu.Unlock()
		return b.err
	}
	b.number++
	c := make(chan reply, 1)
	b.calls[b.number] = c
	m := map[string]any{"id": b.number, "method": method, "params": params}
	b.mu.Unlock()
	if session != "" {
		m["sessionId"] = session
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := b.out.Write(append(text, 0)); err != nil {
		return err
	}
	var r reply
	ok := false
	select {
	case r, ok = <-c:
	case <-time.After(patience):
		return fmt.Errorf("%s: the browser does not answer", method)
	}
	switch {
	case !ok:
		return b.err
	case r.Error != nil:
		return fmt.Errorf("%s: %s", method, r.Error.Message)
	case into == nil:
		return nil
	}
	return json.Unmarshal(r.Result, into)
}

// must is call, for what cannot fail.
func (b *browser) must(session, method string, params any, into any) {
	b.t.Helper()
	if err := b.call(session, method, params, into); err != nil {
		b.t.Fatal(err)
	}
}

// object is a JSON object.
type object = map[string]any

// tab is one page. What a reader would find in its console is kept.
type tab struct {
	b        *browser
	target   string
	session  string
	width    int
	user     string
	password string
	problems []string // the browser's lock is held
}

// open makes a tab as wide as that, in light or dark, with or without JavaScript.
func (b *browser) open(width int, dark, script bool) *tab {
	b.t.Helper()
	var target struct{ TargetID string }
	b.must("", "Target.createTarget", object{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.must("", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached)
	t := &tab{b: b, target: target.TargetID, session: attached.SessionID, width: width, user: "guest", password: "guest"}
	b.mu.Lock()
	b.tabs[t.session] = t
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		t.must(domain+".enable", object{}, nil)
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	t.must("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	t.must("Emulation.setScriptExecutionDisabled", object{"value": !script}, nil)
	t.must("Emulation.setDeviceMetricsOverride", object{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	t.must("Fetch.enable", object{"handleAuthRequests": true}, nil)
	return t
}

// front lets the tab be seen: what follows in the background stops following.
func (t *tab) front() {
	t.b.t.Helper()
	t.must("Page.bringToFront", object{}, nil)
}

// close ends the tab.
func (t *tab) close() {
	t.b.t.Helper()
	t.b.must("", "Target.closeTarget", object{"targetId": t.target}, nil)
}

// heard takes an event. It is called by the reader, which holds the lock, so it only sends.
func (t *tab) heard(m reply) {
	switch m.Method {
	case "Runtime.exceptionThrown", "Log.entryAdded":
		t.problems = append(t.problems, string(m.Params))
	case "Runtime.consoleAPICalled":
		t.problems = append(t.problems, string(m.Params))
	case "Fetch.requestPaused":
		t.send(m, "Fetch.continueRequest", object{})
	case "Fetch.authRequired":
		t.send(m, "Fetch.continueWithAuth", object{"authChallengeResponse": object{
			"response": "ProvideCredentials", "username": t.user, "password": t.password,
		}})
	}
}

// send answers an event of Fetch, and waits for nothing.
func (t *tab) send(m reply, method string, params object) {
	var of struct {
		RequestID string `json:"requestId"`
	}
	if err := json.Unmarshal(m.Params, &of); err != nil {
		t.problems = append(t.problems, err.Error())
		return
	}
	t.b.number++
	params["requestId"] = of.RequestID
	text, err := json.Marshal(object{"id": t.b.number, "sessionId": t.session, "method": method, "params": params})
	if err == nil {
		_, err = t.b.out.Write(append(text, 0))
	}
	if err != nil {
		t.problems = append(t.problems, err.Error())
	}
}

func (t *tab) must(method string, params any, into any) {
	t.b.t.Helper()
	t.b.must(t.session, method, params, into)
}

// visit loads an address, and waits until the document is there.
func (t *tab) visit(address string) {
	t.b.t.Helper()
	var went struct{ ErrorText string }
	t.must("Page.navigate", object{"url": address}, &went)
	if went.ErrorText != "" {
		t.b.t.Fatalf("%s: %s", address, went.ErrorText)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.b.t.Fatal(err)
	}
	t.await("the page to load", fmt.Sprintf("location.host === %q && document.readyState === 'complete'", at.Host))
}

// eval is what an expression comes to, as JSON would have it. It works where the page itself may not run scripts.
func (t *tab) eval(expression string) (any, error) {
	var r struct {
		Result    struct{ Value any }
		Exception *struct{ Text string } `json:"exceptionDetails"`
	}
	if err := t.b.call(t.session, "Runtime.evaluate", object{"expression": expression, "returnByValue": true}, &r); err != nil {
		return nil, err
	}
	if r.Exception != nil {
		return nil, fmt.Errorf("%s: %s", expression, r.Exception.Text)
	}
	return r.Result.Value, nil
}

// text is what a reader sees.
func (t *tab) text() string {
	v, err := t.eval("document.body.innerText")
	if err != nil {
		t.b.t.Fatal(err)
	}
	s, _ := v.(string)
	return s
}

// await waits until an expression is true.
func (t *tab) await(what, expression string) {
	t.b.t.Helper()
	err := poll(nil, func() error {
		v, err := t.eval(expression)
		if err != nil {
			return err
		}
		if v != true {
			return errors.New("it is not so")
		}
		return nil
	})
	if err != nil {
		t.b.t.Fatalf("waiting for %s: %v; the page says:\n%s", what, err, t.text())
	}
}

// says waits until the page shows a text.
func (t *tab) says(text string) {
	t.b.t.Helper()
	t.await(fmt.Sprintf("%q to be seen", text), fmt.Sprintf("document.body.innerText.includes(%s)", quote(text)))
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string has a JSON form
	}
	return string(text)
}

// clean fails the test if the page had anything to complain about: an error, a file that is missing, something that its policy forbids.
func (t *tab) clean(but ...string) {
	t.b.t.Helper()
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
next:
	for _, p := range t.problems {
		for _, known := range but {
			if strings.Contains(p, known) {
				continue next
			}
		}
		t.b.t.Errorf("the browser's console says: %s", p)
	}
	t.problems = nil
}

// picture keeps how the page looks, if E2E_PICTURES names a directory.
func (t *tab) picture(name string) {
	t.b.t.Helper()
	dir := os.Getenv("E2E_PICTURES")
	if dir == "" {
		return
	}
	var layout struct{ CSSContentSize struct{ Height float64 } }
	t.must("Page.getLayoutMetrics", object{}, &layout)
	var shot struct{ Data string }
	t.must("Page.captureScreenshot", object{"format": "png", "captureBeyondViewport": true, "clip": object{
		"x": 0, "y": 0, "width": t.width, "height": min(layout.CSSContentSize.Height, 4000), "scale": 1,
	}}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		t.b.t.Fatal(err)
	}
}
