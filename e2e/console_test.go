package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// awkward is a queue's name as clients may make it: any bytes.
const awkward = "<img src=x onerror=alert(1)> \"'&\xff\u202eend"

// TestConsole looks at a cluster in a browser while owners are killed under load: the page follows by itself, over one stream, and the
// browser has nothing to complain about.
func TestConsole(t *testing.T) {
	b := newBrowser(t)
	c := newCluster(t, 3)
	ch := c.nodes[0].channel()
	c.own(ch, "n2", "orders", nil)
	c.own(ch, "n2", "events", amqp.Table{"x-queue-type": "stream"})
	if _, err := ch.QueueDeclare(awkward, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	by, err := c.up().partitions()
	if err != nil {
		t.Fatal(err)
	}
	owner := c.named(by["orders"].Owner) // another than n2 if that was so slow that it was suspected
	at := c.nodes[0]
	if at == owner {
		at = c.nodes[2]
	}
	stop := publishing(t, at, "orders", "events")
	defer stop()

	page := b.open(1280, false, true)
	page.visit("http://" + at.admin + "/")
	page.says("Everything is served")
	page.says("Nothing needs a person.")
	page.await("the page to be live", "document.body.classList.contains('live')")
	page.await("a rate to be seen", `Number(document.querySelector('.figures dd').innerText.replace(/\D/g, '')) > 0`)
	if name, err := page.eval(`[...document.querySelectorAll('th a')].some((a) => a.innerText === ` + quote(`<img src=x onerror=alert(1)> "'&\xff\u202eend`) + `)`); err != nil || name != true {
		t.Errorf("the awkward name is not as it should be (%v):\n%s", err, page.text())
	}
	page.picture("overview")

	// The owner is killed. No page is loaded anew: what the test has left on it stays.
	if _, err := page.eval("window.stays = true"); err != nil {
		t.Fatal(err)
	}
	owner.kill()
	page.says("away")
	page.says("quorum-critical")
	page.await("the failover to be seen", `[...document.querySelectorAll('section[aria-labelledby=h-transitions] tr')].some((r) => /orders\s+`+owner.name+` → n\d\s.*committed/s.test(r.innerText))`)
	page.await("everything to be served again", `document.querySelector('.verdict').innerText === 'Everything is served'`)
	page.await("the page to say what is new", `document.getElementById('said').innerText.includes('attention')`)
	page.await("the same page", "window.stays === true")
	page.picture("overview-killed")

	looks(t, b, at)

	page.front()
	owner.start()
	page.says("Nothing needs a person.")
	page.await("the same page", "window.stays === true")
	page.clean()

	// The node that the page comes from is killed: the page says that what it shows is old, and goes on by itself.
	at.kill()
	page.says("No answer from this node.")
	page.picture("overview-lost")
	at.start()
	page.await("the page to go on", "document.getElementById('lost').hidden && document.body.classList.contains('live')")
	page.await("the same page", "window.stays === true")
	page.clean("net::ERR_", "503")
}

// publishing sends messages through a node until it is told to stop.
func publishing(t *testing.T, b *broker, queues ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := b.channel()
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			for _, q := range queues {
				if err := ch.PublishWithContext(ctx, "", q, false, false, amqp.Publishing{Body: make([]byte, 100), DeliveryMode: amqp.Persistent}); err != nil && ctx.Err() == nil {
					return // the node is killed in the end
				}
			}
			pause(10 * time.Millisecond)
		}
	})
	return func() { cancel(); all.Wait() }
}

// looks visits every page while a node is away: wide and narrow, light and dark, with JavaScript and without.
func looks(t *testing.T, b *browser, at *broker) {
	base := "http://" + at.admin + "/console/"
	var transition string
	for _, look := range []struct {
		name         string
		width        int
		dark, script bool
	}{{"wide", 1280, false, true}, {"wide-dark", 1280, true, true}, {"narrow", 390, false, true}, {"narrow-dark", 390, true, false}, {"plain", 1280, false, false}} {
		tab := b.open(look.width, look.dark, look.script)
		if transition == "" {
			tab.visit(base + "transitions?name=orders")
			v, err := tab.eval("[...document.querySelectorAll('tr')].find((r) => r.innerText.includes('committed')).querySelector('a').href")
			if err != nil {
				t.Fatalf("%v:\n%s", err, tab.text())
			}
			transition, _ = v.(string)
		}
		for _, p := range []struct{ name, address, says string }{
			{"overview", base, "Messages a second"},
			{"cluster", base + "cluster", "What each node holds"},
			{"resources", base + "resources?find=e", "events"},
			{"resource", base + "resource?vhost=%2F&name=orders", "in epoch"},
			{"awkward", base + "resource?vhost=%2F&name=" + escaped(awkward), `end`},
			{"transitions", base + "transitions", "orders"},
			{"transition", transition, "First confirm"},
			{"clients", base + "clients", "guest"},
			{"attention", base + "attention", "quorum-critical"},
			{"deletions", base + "deletions", "Nothing was deleted by force"},
			{"deletion", base + "deletion?vhost=%2F&name=orders", "it is served"},
		} {
			tab.visit(p.address)
			if look.script {
				tab.await("the page to be live", "document.body.classList.contains('live')")
			} else if v, err := tab.eval("document.body.classList.contains('live')"); err != nil || v == true {
				t.Errorf("%s, %s: a script ran (%v)", look.name, p.name, err)
			}
			if text := tab.text(); !strings.Contains(text, p.says) {
				t.Errorf("%s, %s: no %q in:\n%s", look.name, p.name, p.says, text)
			}
			tab.picture(p.name + "-" + look.name)
			readable(t, tab, look.name+", "+p.name)
		}
		drawn(t, tab, transition)
		if look.script {
			kept(tab, base+"resource?vhost=%2F&name=orders")
		}
		tab.clean()
		tab.close()
	}
}

// kept: what a reader has opened, and where the reader is, stay while the page changes around it.
func kept(tab *tab, address string) {
	tab.visit(address)
	tab.await("a detail to open", `(() => { const d = document.querySelector('details'); d.open = true; d.querySelector('summary').focus(); return d.open; })()`)
	tab.await("the time to be taken down", "(window.before = document.getElementById('at').innerText) !== '' && (window.position = document.querySelector('.bar-text').innerText) !== ''")
	tab.await("the page to change", "document.getElementById('at').innerText !== window.before && document.querySelector('.bar-text').innerText !== window.position")
	tab.await("what was opened to stay", "document.querySelector('details').open && document.activeElement === document.querySelector('summary')")
}

func escaped(s string) string {
	var out strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&out, "%%%02X", s[i])
	}
	return out.String()
}

// drawn holds a transition's timeline: a bar for each moment that is known, in order, one after the other.
func drawn(t *testing.T, tab *tab, address string) {
	tab.visit(address)
	v, err := tab.eval(`(() => {
		const bars = [...document.querySelectorAll('.timeline rect.phase')].map((r) => r.getBoundingClientRect());
		if (bars.length < 7) return 'only ' + bars.length + ' moments are drawn';
		if (bars.some((b) => b.width <= 0 || b.height < 10)) return 'a bar cannot be seen';
		for (let i = 1; i < bars.length; i++) if (bars[i].left < bars[i - 1].left - 1) return 'bar ' + i + ' begins before the one above';
		return '';
	})()`)
	if err != nil || v != "" {
		t.Errorf("the timeline: %v, %v:\n%s", v, err, tab.text())
	}
}

// unreadable finds what a reader would stumble over: a page wider than its window, a picture or field without a name, text that stands out
// too little from its ground (WCAG 2, contrast 4.5, of large text 3), no landmarks, more or fewer than one heading at the top.
const unreadable = `(() => {
	const found = [];
	if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than its window: ' + document.documentElement.scrollWidth);
	for (const [what, n] of [['main', 1], ['header', 1], ['footer', 1], ['h1', 1]]) {
		if (document.querySelectorAll(what).length !== n) found.push(document.querySelectorAll(what).length + ' of ' + what);
	}
	for (const e of document.querySelectorAll('svg')) {
		if (e.getAttribute('aria-hidden') !== 'true' && !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby')) found.push('a picture without a name');
	}
	for (const e of document.querySelectorAll('input, select')) if (!e.labels.length) found.push('a field without a name');
	for (const e of document.querySelectorAll('a, button')) if (!e.textContent.trim()) found.push('a link without a text');
	const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
	if (new Set(ids).size !== ids.length) found.push('two of one id: ' + ids);
	const rgba = (s) => { const v = s.match(/[\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v; };
	const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3]));
	const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const ground = (e) => { if (!e) return [255, 255, 255]; const c = rgba(getComputedStyle(e).backgroundColor); return c[3] === 1 ? c.slice(0, 3) : over(c, ground(e.parentElement)); };
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.nodeValue.trim() || e.closest('svg, .unseen, .skip, option, script') || !e.checkVisibility()) continue;
		const s = getComputedStyle(e), size = parseFloat(s.fontSize), behind = ground(e);
		const [a, b] = [light(over(rgba(s.color), behind)), light(behind)].sort((x, y) => y - x);
		const need = size >= 24 || size >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5;
		if ((a + 0.05) / (b + 0.05) < need) found.push('contrast ' + ((a + 0.05) / (b + 0.05)).toFixed(2) + ' of ' + walker.currentNode.nodeValue.trim().slice(0, 30));
	}
	return found.join('; ');
})()`

func readable(t *testing.T, tab *tab, where string) {
	t.Helper()
	if v, err := tab.eval(unreadable); err != nil || v != "" {
		t.Errorf("%s: %v, %v", where, v, err)
	}
}
