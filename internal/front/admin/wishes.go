package admin

import (
	"context"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
)

// SettingAnswer is a setting of the whole cluster that changes while it runs.
type SettingAnswer struct {
	Name    string `json:"name"`
	Value   string `json:"value"` // that is in force
	Default string `json:"default"`
	Set     bool   `json:"set"`     // to Value; else that is the default
	Allowed string `json:"allowed"` // for people
	About   string `json:"about"`
	// Version rises with every change of the setting; 0: it was never set.
	Version uint64 `json:"version"`
}

// SettingUpdate sets a setting.
type SettingUpdate struct {
	Value string `json:"value"`
	// Version, if there is one, is the setting's that the change was decided on: it is refused if that has moved.
	Version *uint64 `json:"version,omitempty"`
}

// WishesUpdate changes what is wished of a queue or stream. What is not there stays.
type WishesUpdate struct {
	// Policy is local_durable, replica_durable(n), majority_durable or all_durable.
	Policy string `json:"policy,omitempty"`
	// Copies is how many copies there are to be of each partition, 1 to 64.
	Copies uint32 `json:"copies,omitempty"`
	// Incarnation, if there is one, is the resource's: another of the same name is left alone.
	Incarnation uint64 `json:"incarnation,omitempty"`
}

// Wishes is what is wished of a queue or stream. Its owners carry it out, one copy after the other, without stopping anything.
type Wishes struct {
	VHost       string `json:"vhost"`
	Resource    string `json:"resource"`
	Incarnation uint64 `json:"incarnation"`
	Policy      string `json:"policy"`
	Copies      int    `json:"copies"`
}

// Wisher is the part of a Backend that changes what the cluster is to keep to by itself.
type Wisher interface {
	// Settings are those of the whole cluster, in the order in which they are shown.
	Settings(ctx context.Context) ([]SettingAnswer, error)
	// PutSetting sets one and gives it as it is then. A *broker.Error with code NotFound: there is none of that name; Precondition: the value
	// is not allowed, as the text says, or the version has moved.
	PutSetting(ctx context.Context, name string, u SettingUpdate) (SettingAnswer, error)
	// ResetSetting lets a setting have its default again. Repeating it changes nothing. Errors as for PutSetting.
	ResetSetting(ctx context.Context, name string) (SettingAnswer, error)
	// SetWishes changes what is wished of a queue or stream and gives that as it is then; it does not wait until it is so. A *broker.Error with
	// code NotFound: there is none of that name; Precondition: it cannot be wished. Repeating it changes nothing.
	SetWishes(ctx context.Context, vhost, resource string, u WishesUpdate) (Wishes, error)
}

var wishRoutes = []route{
	{
		method: "GET", path: "/api/v1/settings", summary: "Settings of the whole cluster that change while it runs", response: []SettingAnswer{},
		do: func(ctx context.Context, b Backend, _ *request) (any, error) { return list(b.Settings(ctx)) },
	},
	{
		method: "PUT", path: "/api/v1/settings/{name}", summary: "Set one of them, at once and for all nodes", request: SettingUpdate{}, response: SettingAnswer{},
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			var u SettingUpdate
			if err := r.body(&u); err != nil {
				return nil, err
			}
			return one(b.PutSetting(ctx, r.path("name"), u))
		},
	},
	{
		method: "DELETE", path: "/api/v1/settings/{name}", summary: "Let one have its default again", response: SettingAnswer{},
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			return one(b.ResetSetting(ctx, r.path("name")))
		},
	},
	{
		method: "PUT", path: "/api/v1/policies/{resource}", request: WishesUpdate{}, response: Wishes{},
		summary: "Say with which policy a queue or stream confirms, and how many copies it has; its owners carry that out without stopping anything",
		query:   []parameter{{"vhost", "the virtual host; / if nothing is said"}},
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			var u WishesUpdate
			if err := r.body(&u); err != nil {
				return nil, err
			}
			return one(b.SetWishes(ctx, r.ofVHost(), r.path("resource"), u))
		},
	},
}

// one is a value, or the error instead of it.
func one[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// SettingOf is how one setting stands. have is nil where it was never set, or has its default again.
func SettingOf(t catalog.Tunable, have *catalog.Setting) SettingAnswer {
	out := SettingAnswer{Name: t.Name, Value: t.Default, Default: t.Default, Allowed: t.Allowed, About: t.About}
	if have != nil {
		out.Value, out.Set, out.Version = have.Value, true, have.Version
	}
	return out
}

// SettingNames are the names of all settings, sorted.
func SettingNames() (names []string) {
	for _, t := range catalog.AllTunables() {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names
}
