package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/engine/consensus"
)

// Clients are told what they can do, in words that fit a reply, and nothing of the rooms inside.
func TestWordsForClientsOfWhatTheCatalogDidNotDecide(t *testing.T) {
	for _, err := range []error{consensus.ErrUncertain, consensus.ErrNotProposed} {
		err = fmt.Errorf("%w: no leader for 10s", err)
		if text := forOperators(err).Error(); strings.Contains(text, "consensus") || !strings.Contains(text, "tanist attention") {
			t.Errorf("%s", text)
		}
		text := forClients(err).Error()
		if strings.Contains(text, "consensus") || len(text) > 250 || !strings.Contains(text, "again") {
			t.Errorf("%d bytes: %s", len(text), text)
		}
	}
}

// An owner that has closed for a deletion opens again only when that is known to be refused: one that may come into force yet is asked for again.
func TestAProposalIsMadeAgainUntilItsOutcomeIsKnown(t *testing.T) {
	refused := &catalog.Refusal{Code: catalog.VersionMoved}
	doubtful := fmt.Errorf("%w: no leader", consensus.ErrUncertain)
	for _, outcomes := range [][]error{
		{doubtful, consensus.ErrUncertain, nil},
		{doubtful, consensus.ErrNotProposed, refused}, // the first may come into force yet
		{consensus.ErrNotProposed},
	} {
		all, last := len(outcomes), outcomes[len(outcomes)-1]
		var waiting, told []error
		var again []func()
		known(func(done func(error)) {
			waiting, outcomes = append(waiting, outcomes[0]), outcomes[1:]
			done(waiting[len(waiting)-1])
		}, func(f func()) { again = append(again, f) }, func(err error) { told = append(told, err) })
		for len(again) > 0 && len(told) == 0 {
			f := again[0]
			again = again[1:]
			f()
		}
		if len(waiting) != all || len(told) != 1 || !errors.Is(told[0], last) || len(again) > 0 {
			t.Errorf("%v: asked %d times, told %v", last, len(waiting), told)
		}
	}
}
