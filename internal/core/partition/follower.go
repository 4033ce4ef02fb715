package partition

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/batch"
)

// Follow takes a batch from a sender whose current epoch is from. The caller appends it to storage at once and then reports
// AppendDone or Fail, and tells the sender Durable after it.
//
// What counts is the sender's epoch, not the batch's: catch-up carries batches of older epochs. ErrStale is returned when it is
// not both the promise and the applied role's epoch, ErrGap when the batch does not continue the log.
func (c *Copy) Follow(from uint64, b batch.Batch, link batch.Link) error {
	if err := c.obeys(from); err != nil {
		return err
	}
	if b.Partition != c.id || !b.Follows(c.tail) {
		return fmt.Errorf("%w: at %d, the log ends at %d", ErrGap, b.Position, c.tail.Position)
	}
	c.tail = c.tail.After(b, link)
	c.flight = append(c.flight, c.tail)
	return nil
}

// Learn takes the confirmed position from the owner of the epoch that the copy obeys, as far as its own log goes (design 2 §1). It returns ErrStale where the
// sender is of another epoch than the copy's promise and role, and ErrDamaged where the copy counts for nothing; nothing has changed then.
func (c *Copy) Learn(from, confirmed uint64, out *Effects) error {
	if err := c.obeys(from); err != nil {
		return err
	}
	if at := min(confirmed, c.tail.Position); at > c.confirmed {
		c.confirmed = at
		*out = append(*out, Effect{Kind: Advanced, Epoch: c.epoch, Position: at})
	}
	return nil
}

func (c *Copy) obeys(from uint64) error {
	switch {
	case c.damaged != "":
		return fmt.Errorf("%w: %s", ErrDamaged, c.damaged)
	case c.importing:
		return fmt.Errorf("%w: %s", ErrDamaged, incomplete)
	}
	if c.role != Follower && c.role != Learner || from != c.epoch || from != c.vow {
		return fmt.Errorf("%w: sender of epoch %d, promise %d, %s of epoch %d", ErrStale, from, c.vow, c.role, c.epoch)
	}
	return nil
}
