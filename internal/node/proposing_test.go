package node

import (
	"fmt"
	"strings"
	"testing"

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
