package gateway

import (
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
)

// A process that was stopped, or whose machine was, goes on with what lay in its mailboxes. An owner that was chosen meanwhile has waited for its
// claims in vain, and has given what was on its way here to others, who may have settled it. So a shard that stood still takes nothing from the
// streams that it had: it begins them anew, and says what its clients hold.

// stoodStill begins the streams to owners of queues anew that clients here were given something on, or may be.
func (s *Shard) stoodStill() {
	for _, a := range slices.Clone(s.attachments) {
		if a.gone || a.state != open || a.res.Kind != catalog.Queue || len(a.consumers)+len(a.requests) == 0 && !a.holding() {
			continue
		}
		a.away = s.env.Pulse.Since() // whoever was given the same since has the better right to it
		a.again()
	}
}
