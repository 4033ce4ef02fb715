package admin

import (
	"context"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/broker"
)

func (f *fake) PlanLoss(_ context.Context, q LossQuery) (LossPlan, error) {
	if q.Resource == "none" {
		return LossPlan{}, broker.Errorf(broker.NotFound, "no queue or stream 'none'")
	}
	return LossPlan{Plan: "abc", VHost: q.VHost, Resource: q.Resource, Missing: []string{"n1"}}, nil
}

func (f *fake) AcceptLoss(_ context.Context, q LossRequest) (LossDone, error) {
	return LossDone{Transition: "t1", Done: LossPlan{Resource: q.Resource, Plan: q.Plan}}, nil
}

func (f *fake) PlanLosses(context.Context) (LossesPlan, error) {
	return LossesPlan{Plan: "abc", Plans: []LossPlan{{Resource: "q"}}}, nil
}

func (f *fake) AcceptLosses(_ context.Context, q Consent) (LossesDone, error) {
	return LossesDone{Refused: []LossPlan{{Resource: "q", Against: strings.Join(q.Stopped, ", ") + " may run"}}}, nil
}

// What was not planned, or has no reason, is not given up; a plan needs an administrator, as everything does that is not read.
func TestALossIsAcceptedAsPlannedAndForAReason(t *testing.T) {
	h := handlerOf(newFake())
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/api/v1/plans/accept-loss", `{"vhost":"/","resource":"q"}`, 200, `"plan": "abc"`},
		{"/api/v1/plans/accept-loss", `{"vhost":"/","resource":"none"}`, 404, "no queue or stream"},
		{"/api/v1/accept-loss", `{"vhost":"/","resource":"q","reason":"r"}`, 422, "no plan is named"},
		{"/api/v1/accept-loss", `{"vhost":"/","resource":"q","plan":"abc","reason":" "}`, 422, "a reason of 1 to 1024 bytes"},
		{"/api/v1/accept-loss", `{"vhost":"/","resource":"q","plan":"abc","reason":"r","stopped":["n1"]}`, 200, `"transition": "t1"`},
		{"/api/v1/plans/accept-losses", ``, 200, `"left": []`},
		{"/api/v1/accept-losses", `{"reason":"r"}`, 422, "POST /api/v1/plans/accept-losses gives one"},
		{"/api/v1/accept-losses", `{"plan":"abc"}`, 422, "a reason of 1 to 1024 bytes"},
		{"/api/v1/accept-losses", `{"plan":"abc","reason":"r","stopped":["n1"]}`, 200, `"against": "n1 may run"`},
	} {
		w := ask(h, "root", "POST", c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: %d %s", c.path, c.body, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/api/v1/plans/accept-loss", "/api/v1/accept-loss", "/api/v1/plans/accept-losses", "/api/v1/accept-losses"} {
		if w := ask(h, "watch", "POST", path, `{"vhost":"/","resource":"q"}`); w.Code != 403 {
			t.Errorf("%s by who may only read: %d %s", path, w.Code, w.Body)
		}
	}
}

func (f *fake) PlanDeletion(_ context.Context, q DeletionQuery) (DeletionPlan, error) {
	return DeletionPlan{Plan: "abc", VHost: q.VHost, Resource: q.Resource}, nil
}

func (f *fake) ForceDelete(_ context.Context, q DeletionRequest) (DeletionPlan, error) {
	return DeletionPlan{Plan: q.Plan, Resource: q.Resource, Incarnation: 7, MustBeStopped: q.Stopped}, nil
}

func (f *fake) Deletions(context.Context) ([]Deletion, error) {
	return []Deletion{{Incarnation: 7, Resource: "q"}}, nil
}

func (f *fake) ForgetDeletion(_ context.Context, incarnation uint64) error {
	if incarnation != 7 {
		return broker.Errorf(broker.NotFound, "no deletion '%d'", incarnation)
	}
	return nil
}

// As a loss: nothing is deleted by force without a plan and a reason, nor by who may only read.
func TestADeletionIsForcedAsPlannedAndForAReason(t *testing.T) {
	h := handlerOf(newFake())
	for _, c := range []struct {
		user, method, path, body string
		status                   int
		want                     string
	}{
		{"root", "POST", "/api/v1/plans/delete", `{"vhost":"/","resource":"q"}`, 200, `"partitions": []`},
		{"root", "POST", "/api/v1/deletions", `{"vhost":"/","resource":"q","reason":"r"}`, 422, "no plan is named"},
		{"root", "POST", "/api/v1/deletions", `{"vhost":"/","resource":"q","plan":"abc"}`, 422, "a reason of"},
		{"root", "POST", "/api/v1/deletions", `{"vhost":"/","resource":"q","plan":"abc","reason":"` + strings.Repeat("r", 1025) + `"}`, 422, "a reason of"},
		{"root", "POST", "/api/v1/deletions", `{"vhost":"/","resource":"q","plan":"abc","reason":"r","stopped":["n1"]}`, 200, `"incarnation": 7`},
		{"watch", "POST", "/api/v1/deletions", `{"vhost":"/","resource":"q","plan":"abc","reason":"r"}`, 403, ""},
		{"watch", "GET", "/api/v1/deletions", "", 200, `"aside": []`},
		{"root", "DELETE", "/api/v1/deletions/8", "", 404, "no deletion '8'"},
		{"root", "DELETE", "/api/v1/deletions/x", "", 422, "not the number"},
		{"root", "DELETE", "/api/v1/deletions/7", "", 204, ""},
		{"watch", "DELETE", "/api/v1/deletions/7", "", 403, ""},
	} {
		w := ask(h, c.user, c.method, c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s %s %s: %d %s", c.user, c.method, c.path, c.body, w.Code, w.Body)
		}
	}
}
