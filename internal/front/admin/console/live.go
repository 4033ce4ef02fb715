package console

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

const (
	period = time.Second
	// streamLife is how long one stream lasts; the page then asks for another. Who lost the right to read keeps it no longer than that.
	streamLife = 5 * time.Minute
	// sendTimeout bounds one event: who reads no more is let go.
	sendTimeout = 10 * time.Second
)

// follow sends the page anew whenever there is something new to see.
func (c *Console) follow(w http.ResponseWriter, r *http.Request, p *page) {
	if r.Method == http.MethodHead {
		return // there is nothing to say without a body
	}
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		c.refuse(w, http.StatusServiceUnavailable, "As many pages follow this node already as it allows; this one can be read and reloaded.")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamLife)
	defer cancel()
	defer context.AfterFunc(c.ending, cancel)()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of proxies that would wait for more
	out := http.NewResponseController(w)
	if out.SetReadDeadline(time.Time{}) != nil { // nothing more is read, and so nothing is late
		return
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	var shown []byte
	for {
		text, err := c.update(ctx, r, p, &shown)
		if err != nil || out.SetWriteDeadline(time.Now().Add(sendTimeout)) != nil {
			return
		}
		if _, err := w.Write(text); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// update is the next event: the page; its time alone, where nothing else in it differs from what is shown; or why there is neither. The
// error is that of ctx.
func (c *Console) update(ctx context.Context, r *http.Request, p *page, shown *[]byte) ([]byte, error) {
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	text, at, err := c.render(ask, r, p, "root")
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		c.explain(r, err)
		*shown = nil
		return event("fault", []byte(explained(err))), nil
	}
	timeless := bytes.Replace(text, []byte(clock(at)+"</time>"), nil, 1) // the first is the header's
	if bytes.Equal(timeless, *shown) {
		return event("at", []byte(clock(at))), nil
	}
	*shown = timeless
	return event("root", text), nil
}
