// Package client speaks to the admin API of a running node, for the command line. It knows HTTP and the API's values, nothing of nodes.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/front/admin"
)

// Client asks a node: the first that answers, and then the same one for as long as it does. Where there are several, one that hangs costs a
// second: what only reads is then asked of the next one too, and a change is sent to none that has not just answered. Most changes are safe to
// repeat, since they say what shall be, not what to add; each method says where that is not so. A change that was sent is never sent to another
// node by itself: the error is then an *Unreachable that was Sent.
type Client struct {
	bases          []string
	at             atomic.Int32 // index of the one that answered last
	user, password string
	http           http.Client
	patience       time.Duration // after which another node is asked beside one that has not answered
}

const (
	timeout  = 30 * time.Second
	patience = time.Second
)

// New makes a client for the addresses of one node or several, separated by commas, each such as http://127.0.0.1:15672. ca is a PEM file
// with the authorities of https addresses; empty stands for the system's.
func New(addresses, user, password, ca string) (*Client, error) {
	c := &Client{user: user, password: password, http: http.Client{Timeout: timeout}, patience: patience}
	for _, base := range strings.Split(addresses, ",") {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("admin address %q: want http://HOST:PORT or https://HOST:PORT, or several with commas between", base)
		}
		c.bases = append(c.bases, strings.TrimSuffix(base, "/"))
	}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate in PEM form", ca)
		}
		c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	}
	return c, nil
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var out T
	err := c.do(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

// Overview is one screen about the cluster.
func (c *Client) Overview(ctx context.Context) (admin.Overview, error) {
	return get[admin.Overview](ctx, c, "/api/v1/overview")
}

// Nodes are the members of the cluster.
func (c *Client) Nodes(ctx context.Context) ([]admin.Node, error) {
	return get[[]admin.Node](ctx, c, "/api/v1/nodes")
}

// Resources are queues and streams; name and vhost choose some, empty chooses all.
func (c *Client) Resources(ctx context.Context, vhost, name string) ([]admin.Resource, error) {
	return get[[]admin.Resource](ctx, c, "/api/v1/resources?"+choose(vhost, name))
}

// Partitions are partitions with their copies; name and vhost choose some, empty chooses all.
func (c *Client) Partitions(ctx context.Context, vhost, name string) ([]admin.Partition, error) {
	return get[[]admin.Partition](ctx, c, "/api/v1/partitions?"+choose(vhost, name))
}

// Exchanges are those of a virtual host; empty chooses all.
func (c *Client) Exchanges(ctx context.Context, vhost string) ([]admin.Exchange, error) {
	return get[[]admin.Exchange](ctx, c, "/api/v1/exchanges?"+choose(vhost, ""))
}

// Bindings are those that lead to or from name; name and vhost choose some, empty chooses all.
func (c *Client) Bindings(ctx context.Context, vhost, name string) ([]admin.Binding, error) {
	return get[[]admin.Binding](ctx, c, "/api/v1/bindings?"+choose(vhost, name))
}

// Clients are the connected clients of a virtual host; empty chooses all.
func (c *Client) Clients(ctx context.Context, vhost string) (admin.Clients, error) {
	return get[admin.Clients](ctx, c, "/api/v1/connections?"+choose(vhost, ""))
}

// Consumers are the consumers of queues and streams; name and vhost choose some, empty chooses all.
func (c *Client) Consumers(ctx context.Context, vhost, name string) (admin.Consumers, error) {
	return get[admin.Consumers](ctx, c, "/api/v1/consumers?"+choose(vhost, name))
}

// Cursors are the named cursors of a stream.
func (c *Client) Cursors(ctx context.Context, vhost, stream string) ([]admin.Cursor, error) {
	return get[[]admin.Cursor](ctx, c, "/api/v1/cursors/"+url.PathEscape(stream)+"?"+choose(vhost, ""))
}

// ForgetCursor forgets a named cursor of a stream. Asked again it is refused if it was done.
func (c *Client) ForgetCursor(ctx context.Context, vhost, stream, cursor string) error {
	q := url.Values{"vhost": {vhost}, "cursor": {cursor}}
	return c.do(ctx, http.MethodDelete, "/api/v1/cursors/"+url.PathEscape(stream)+"?"+q.Encode(), nil, nil)
}

// Transitions are the last n changes of owner, the newest first; name and vhost choose some, empty chooses all; n 0 is the node's default.
func (c *Client) Transitions(ctx context.Context, vhost, name string, n int) ([]*evidence.Evidence, error) {
	path := "/api/v1/transitions?" + choose(vhost, name)
	if n > 0 {
		path += fmt.Sprintf("&n=%d", n)
	}
	return get[[]*evidence.Evidence](ctx, c, path)
}

// Transition is the evidence of one change of owner.
func (c *Client) Transition(ctx context.Context, id string) (*evidence.Evidence, error) {
	return get[*evidence.Evidence](ctx, c, "/api/v1/transitions/"+url.PathEscape(id))
}

// Attention is what needs a person.
func (c *Client) Attention(ctx context.Context) (admin.Attention, error) {
	return get[admin.Attention](ctx, c, "/api/v1/attention")
}

// Healthy says what keeps the cluster from being healthy.
func (c *Client) Healthy(ctx context.Context) (admin.Check, error) {
	return get[admin.Check](ctx, c, "/api/v1/checks/healthy")
}

// QuorumCritical says what would stop if a node was stopped now.
func (c *Client) QuorumCritical(ctx context.Context, node string) (admin.Check, error) {
	return get[admin.Check](ctx, c, "/api/v1/checks/quorum-critical/"+url.PathEscape(node))
}

func choose(vhost, name string) string {
	q := url.Values{}
	if vhost != "" {
		q.Set("vhost", vhost)
	}
	if name != "" {
		q.Set("resource", name)
	}
	return q.Encode()
}

// JoinToken makes a token for a node that is to join; node and ttl may be empty. Each call makes another.
func (c *Client) JoinToken(ctx context.Context, q admin.TokenRequest) (t admin.Token, err error) {
	err = c.do(ctx, http.MethodPost, "/api/v1/tokens", q, &t)
	return t, err
}

// ReplaceNode makes a token for a node that is to take the place of a lost one. Each call makes another.
func (c *Client) ReplaceNode(ctx context.Context, node, ttl string) (t admin.Token, err error) {
	err = c.do(ctx, http.MethodPost, "/api/v1/nodes/"+url.PathEscape(node)+"/replace", admin.TokenRequest{TTL: ttl}, &t)
	return t, err
}

// RemoveNode takes a node out of the cluster.
func (c *Client) RemoveNode(ctx context.Context, node string) error {
	return c.do(ctx, http.MethodDelete, "/api/v1/nodes/"+url.PathEscape(node), nil, nil)
}

// DrainNode says whether a node takes new copies.
func (c *Client) DrainNode(ctx context.Context, node string, draining bool) error {
	return c.do(ctx, http.MethodPut, "/api/v1/nodes/"+url.PathEscape(node)+"/drain", admin.Drain{Draining: draining}, nil)
}

// Settings are the settings of the whole cluster that change while it runs.
func (c *Client) Settings(ctx context.Context) ([]admin.SettingAnswer, error) {
	return get[[]admin.SettingAnswer](ctx, c, "/api/v1/settings")
}

// PutSetting sets one of them.
func (c *Client) PutSetting(ctx context.Context, name, value string) (s admin.SettingAnswer, err error) {
	err = c.do(ctx, http.MethodPut, "/api/v1/settings/"+url.PathEscape(name), admin.SettingUpdate{Value: value}, &s)
	return s, err
}

// ResetSetting lets one have its default again.
func (c *Client) ResetSetting(ctx context.Context, name string) (s admin.SettingAnswer, err error) {
	err = c.do(ctx, http.MethodDelete, "/api/v1/settings/"+url.PathEscape(name), nil, &s)
	return s, err
}

// SetWishes changes what is wished of a queue or stream.
func (c *Client) SetWishes(ctx context.Context, vhost, name string, u admin.WishesUpdate) (w admin.Wishes, err error) {
	path := "/api/v1/policies/" + url.PathEscape(name) + "?" + url.Values{"vhost": {vhost}}.Encode()
	err = c.do(ctx, http.MethodPut, path, u, &w)
	return w, err
}

// PlanLoss says what giving up on a partition's missing copies would do.
func (c *Client) PlanLoss(ctx context.Context, q admin.LossQuery) (p admin.LossPlan, err error) {
	err = c.do(ctx, http.MethodPost, "/api/v1/plans/accept-loss", q, &p)
	return p, err
}

// AcceptLoss gives up on a partition's missing copies. Asked again it is refused if it was done.
func (c *Client) AcceptLoss(ctx context.Context, q admin.LossRequest) (d admin.LossDone, err error) {
	err = c.do(ctx, http.MethodPost, "/api/v1/accept-loss", q, &d)
	return d, err
}

// PlanLosses says what giving up on the missing copies of all that waits would do.
func (c *Client) PlanLosses(ctx context.Context) (p admin.LossesPlan, err error) {
	err = c.do(ctx, http.MethodPost, "/api/v1/plans/accept-losses", nil, &p)
	return p, err
}

// AcceptLosses gives up on them. Asked again it is refused: the plan is another then.
func (c *Client) AcceptLosses(ctx context.Context, q admin.Consent) (d admin.LossesDone, err error) {
	err = c.do(ctx, http.MethodPost, "/api/v1/accept-losses", q, &d)
	return d, err
}

// PlanDeletion says what deleting a queue or stream that cannot be served would give up.
func (c *Client) PlanDeletion(ctx context.Context, q admin.DeletionQuery) (p admin.DeletionPlan, err error) {
	err = c.do(ctx, http.MethodPost, "/api/v1/plans/delete", q, &p)
	return p, err
}

// ForceDelete deletes it. Asked again it is refused if it was done.
func (c *Client) ForceDelete(ctx context.Context, q admin.DeletionRequest) (p admin.DeletionPlan, err error) {
	err = c.do(ctx, http.MethodPost, "/api/v1/deletions", q, &p)
	return p, err
}

// Deletions are the forced deletions that are remembered.
func (c *Client) Deletions(ctx context.Context) ([]admin.Deletion, error) {
	return get[[]admin.Deletion](ctx, c, "/api/v1/deletions")
}

// ForgetDeletion forgets one, and drops what was put aside for it.
func (c *Client) ForgetDeletion(ctx context.Context, incarnation uint64) error {
	return c.do(ctx, http.MethodDelete, "/api/v1/deletions/"+strconv.FormatUint(incarnation, 10), nil, nil)
}

// Users are the users.
func (c *Client) Users(ctx context.Context) ([]admin.UserAnswer, error) {
	return get[[]admin.UserAnswer](ctx, c, "/api/v1/users")
}

// PutUser creates or changes a user.
func (c *Client) PutUser(ctx context.Context, u admin.UserUpdate) error {
	return c.do(ctx, http.MethodPut, "/api/v1/users/"+url.PathEscape(u.Name), u, nil)
}

// DeleteUser deletes a user.
func (c *Client) DeleteUser(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/api/v1/users/"+url.PathEscape(name), nil, nil)
}

// VHosts are the virtual hosts.
func (c *Client) VHosts(ctx context.Context) ([]catalog.VHost, error) {
	return get[[]catalog.VHost](ctx, c, "/api/v1/vhosts")
}

// PutVHost creates a virtual host.
func (c *Client) PutVHost(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPut, "/api/v1/vhosts/"+url.PathEscape(name), nil, nil)
}

// DeleteVHost deletes a virtual host.
func (c *Client) DeleteVHost(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/api/v1/vhosts/"+url.PathEscape(name), nil, nil)
}

// Permissions are the permissions of all users.
func (c *Client) Permissions(ctx context.Context) ([]catalog.Permission, error) {
	return get[[]catalog.Permission](ctx, c, "/api/v1/permissions")
}

// PutPermission sets what a user may do.
func (c *Client) PutPermission(ctx context.Context, p catalog.Permission) error {
	return c.do(ctx, http.MethodPut, permissionPath(p.User, p.VHost), admin.Pattern{Configure: p.Configure, Write: p.Write, Read: p.Read}, nil)
}

// DeletePermission takes away what a user may do.
func (c *Client) DeletePermission(ctx context.Context, user, vhost string) error {
	return c.do(ctx, http.MethodDelete, permissionPath(user, vhost), nil, nil)
}

func permissionPath(user, vhost string) string {
	return "/api/v1/permissions/" + url.PathEscape(user) + "/" + url.PathEscape(vhost)
}
