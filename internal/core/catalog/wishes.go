package catalog

import (
	"strconv"

	"github.com/tanist/tanist/internal/core/quorum"
)

// SetWishes changes the policy and the number of copies that a durable resource is to have; policy "" and copies 0 leave theirs as they
// are. Both are wishes: the owners of its partitions carry them out by the joint rule, and W follows the policy of the assignment until
// then. incarnation guards against a name that was recreated in between; 0 takes any. Refused with NotFound or IncarnationMoved, with
// Invalid if the policy is none or the copies are too many, or if the resource lives in memory. What is wished already changes nothing.
func SetWishes(vhost, name string, incarnation uint64, policy string, copies uint32) Item {
	w := wish{vhost, name, incarnation, policy, copies}
	return item(opSetWishes, func(c *coder) { c.wishes(&w) })
}

type wish struct {
	vhost, name string
	incarnation uint64
	policy      string
	copies      uint32
}

func (c *coder) wishes(w *wish) {
	c.Name(&w.vhost)
	c.Text(&w.name)
	c.U64(&w.incarnation)
	c.Name(&w.policy)
	c.U32(&w.copies)
}

func (s *State) setWishes(w *wish) ItemResult {
	have := s.view.Resource(w.vhost, w.name)
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "queue", Name: w.name, VHost: w.vhost})
	}
	invalid := func(argument, why string) ItemResult {
		return refuse(Refusal{Code: Invalid, What: string(have.Kind), Name: w.name, VHost: w.vhost, Argument: argument, Want: why})
	}
	switch {
	case w.incarnation != 0 && w.incarnation != have.Incarnation:
		return refuse(Refusal{
			Code: IncarnationMoved, What: string(have.Kind), Name: w.name, VHost: w.vhost,
			Argument: "incarnation", Have: number(have.Incarnation), Want: number(w.incarnation),
		})
	case have.Home != nil:
		return invalid("copies", "it lives in memory and has one")
	case w.copies > quorum.MaxCopies:
		return invalid("copies", number(uint64(w.copies))+" is not 1 to "+strconv.Itoa(quorum.MaxCopies))
	}
	policy, err := quorum.Parse(w.policy)
	if err != nil {
		return invalid("policy", err.Error())
	}
	after := again(have)
	if w.policy != "" {
		after.Policy = policy.String()
	}
	if w.copies != 0 {
		after.Copies = w.copies
	}
	if after.Policy == have.Policy && after.Copies == have.Copies {
		return done(have)
	}
	s.change(have, after)
	return done(after)
}
