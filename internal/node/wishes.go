package node

import (
	"context"
	"errors"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/front/admin"
)

// Settings implements admin.Backend.
func (b *backend) Settings(context.Context) (out []admin.SettingAnswer, _ error) {
	b.n.View(func(v *catalog.View) {
		for _, t := range catalog.AllTunables() {
			out = append(out, admin.SettingOf(t, v.Setting(t.Name)))
		}
	})
	return out, nil
}

// setting is how one stands.
func (b *backend) setting(name string) (out admin.SettingAnswer, ok bool) {
	b.n.View(func(v *catalog.View) {
		for _, t := range catalog.AllTunables() {
			if t.Name == name {
				out, ok = admin.SettingOf(t, v.Setting(name)), true
			}
		}
	})
	return out, ok
}

// PutSetting implements admin.Backend. Without a version it decides anew where somebody else changed the setting meanwhile.
func (b *backend) PutSetting(ctx context.Context, name string, u admin.SettingUpdate) (admin.SettingAnswer, error) {
	value, err := catalog.CheckTunable(name, u.Value)
	return b.changeSetting(ctx, name, err, func(have admin.SettingAnswer) (catalog.Item, bool) {
		if u.Version != nil {
			return catalog.PutSetting(name, value, *u.Version), false
		}
		return catalog.PutSetting(name, value, have.Version), true
	})
}

// ResetSetting implements admin.Backend.
func (b *backend) ResetSetting(ctx context.Context, name string) (admin.SettingAnswer, error) {
	return b.changeSetting(ctx, name, nil, func(have admin.SettingAnswer) (catalog.Item, bool) {
		return catalog.DeleteSetting(name, have.Version), true
	})
}

// changeSetting proposes a change of a setting, and says how that is afterwards. bad is what is wrong with the change; again says that it may be
// decided anew.
func (b *backend) changeSetting(ctx context.Context, name string, bad error, change func(have admin.SettingAnswer) (_ catalog.Item, again bool)) (out admin.SettingAnswer, _ error) {
	for {
		have, ok := b.setting(name)
		if !ok {
			_, err := catalog.CheckTunable(name, "")
			return out, broker.Errorf(broker.NotFound, "%s", err)
		}
		if bad != nil {
			return out, broker.Errorf(broker.Precondition, "%s", bad)
		}
		item, again := change(have)
		err := b.change(ctx, item)
		switch code := catalog.CodeOf(err); {
		case code == catalog.VersionMoved && again:
			continue
		case code == catalog.NotFound: // it has its default
		case err != nil:
			return out, refusal(err)
		}
		out, _ = b.setting(name)
		return out, nil
	}
}

// SetWishes implements admin.Backend.
func (b *backend) SetWishes(ctx context.Context, vhost, name string, u admin.WishesUpdate) (out admin.Wishes, _ error) {
	if u.Policy == "" && u.Copies == 0 {
		return out, broker.Errorf(broker.Precondition, "nothing is wished: say a policy, or how many copies")
	}
	if err := b.change(ctx, catalog.SetWishes(vhost, name, u.Incarnation, u.Policy, u.Copies)); err != nil {
		var refused *catalog.Refusal
		if errors.As(err, &refused) && refused.Code == catalog.Invalid {
			return out, broker.Errorf(broker.Precondition, "%s", refused.Want)
		}
		return out, refusal(err)
	}
	ok := false
	b.n.View(func(v *catalog.View) {
		var r *catalog.Resource
		if r = v.Resource(vhost, name); r == nil {
			return
		}
		ok = true
		out = admin.Wishes{VHost: vhost, Resource: name, Incarnation: r.Incarnation, Policy: policyOf(r), Copies: r.Target()}
	})
	if !ok {
		return out, broker.Errorf(broker.NotFound, "'%s' in vhost '%s' was deleted meanwhile", name, vhost)
	}
	return out, nil
}

// policyOf is the policy that is wished of a resource.
func policyOf(r *catalog.Resource) string {
	if r.Policy == "" {
		return quorum.Policy{}.String()
	}
	return r.Policy
}
