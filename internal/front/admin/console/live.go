package console

import (
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
	for {
		text, err := c.update(ctx, r, p)
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

// update is the next event: the page, or why there is none. The error is that of ctx.
func (c *Console) update(ctx context.Context, r *http.Request, p *page) ([]byte, error) {
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	text, err := c.render(ask, r, p, "root")
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		c.explain(r, err)
		return event("fault", []byte(explained(err))), nil
	}
	return event("root", text), nil
}
