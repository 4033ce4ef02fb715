package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
)

func (f *fake) Settings(context.Context) (out []SettingAnswer, _ error) {
	for _, t := range catalog.AllTunables() {
		out = append(out, SettingOf(t, f.settings[t.Name]))
	}
	return out, nil
}

func (f *fake) PutSetting(ctx context.Context, name string, u SettingUpdate) (SettingAnswer, error) {
	value, err := catalog.CheckTunable(name, u.Value)
	if err != nil {
		return SettingAnswer{}, broker.Errorf(broker.Precondition, "%s", err)
	}
	f.settings = map[string]*catalog.Setting{name: {Name: name, Value: value, Version: 4}}
	return f.ResetSetting(ctx, name)
}

func (f *fake) ResetSetting(_ context.Context, name string) (SettingAnswer, error) {
	for _, t := range catalog.AllTunables() {
		if t.Name == name {
			return SettingOf(t, f.settings[name]), nil
		}
	}
	return SettingAnswer{}, broker.Errorf(broker.NotFound, "no setting %q", name)
}

func (f *fake) SetWishes(_ context.Context, vhost, resource string, u WishesUpdate) (Wishes, error) {
	if resource == "none" {
		return Wishes{}, broker.Errorf(broker.NotFound, "no queue %q", resource)
	}
	return Wishes{VHost: vhost, Resource: resource, Incarnation: 7, Policy: u.Policy, Copies: int(u.Copies)}, nil
}

// TestSettingsAndWishes: what is answered is how it stands then, and what is refused says why.
func TestSettingsAndWishes(t *testing.T) {
	h := handlerOf(newFake())
	setting := func(value, rest string) string {
		return `{"name":"rebalance","value":"` + value + `","default":"on",` + rest + `}`
	}
	about := `"allowed":"on or off","about":"Whether followers' copies move from nodes that have many to nodes that have few.",`
	for _, x := range []struct {
		user, method, path, body string
		status                   int
		want                     string
	}{
		{"root", "DELETE", "/api/v1/settings/rebalance", "", 200, setting("on", `"set":false,`+about+`"version":0`)},
		{"root", "PUT", "/api/v1/settings/rebalance", `{"value":"off"}`, 200, setting("off", `"set":true,`+about+`"version":4`)},
		{"root", "PUT", "/api/v1/settings/rebalance", `{"value":"x"}`, 422, `{"error":{"code":"invalid","message":"setting rebalance: \"x\" is not allowed: want on or off","retry":false}}`},
		{"watch", "PUT", "/api/v1/settings/rebalance", `{"value":"off"}`, 403, ""},
		{"root", "PUT", "/api/v1/policies/a%2Fb?vhost=v", `{"copies":3}`, 200, `{"vhost":"v","resource":"a/b","incarnation":7,"policy":"","copies":3}`},
		{"root", "PUT", "/api/v1/policies/q", `{"policy":"all_durable"}`, 200, `{"vhost":"/","resource":"q","incarnation":7,"policy":"all_durable","copies":0}`},
		{"root", "PUT", "/api/v1/policies/none", `{"copies":3}`, 404, ""},
		{"watch", "PUT", "/api/v1/policies/q", `{"copies":3}`, 403, ""},
	} {
		w := ask(h, x.user, x.method, x.path, x.body)
		var got bytes.Buffer
		if err := json.Compact(&got, w.Body.Bytes()); err != nil || w.Code != x.status || x.want != "" && got.String() != x.want {
			t.Errorf("%s %s: %v, status %d\n%s\nwant %d\n%s", x.method, x.path, err, w.Code, got.String(), x.status, x.want)
		}
	}
	if w := ask(h, "watch", "GET", "/api/v1/settings", ""); w.Code != 200 || strings.Count(w.Body.String(), `"default"`) != len(SettingNames()) {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}
