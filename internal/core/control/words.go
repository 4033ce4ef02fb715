package control

import "strings"

// The words for a cause of a transition: few, so that they can be counted by. The catalog and evidence keep a cause as text for people,
// and a controller that finishes what another began has nothing else.
const (
	WordRestarted = "owner restarted"
	WordReplaced  = "store replaced"
	WordPromise   = "promise ahead"
	WordDamaged   = "copy damaged"
	WordAccepted  = "accepted loss"
	WordOther     = "other"
)

// AcceptedCause is the cause of a change of owner that an operator has decided on, for a reason.
func AcceptedCause(reason string) string { return WordAccepted + ": " + reason }

// damagedCause is how the cause of a change of owner begins whose copy is damaged.
const damagedCause = "the copy of owner "

// CauseWord is the word for a cause that CauseOf or CauseOfDamage has written: one of those above, or the symptom of a suspicion (Symptom.String).
func CauseWord(text string) string {
	switch {
	case strings.HasPrefix(text, AcceptedCause("")):
		return WordAccepted
	case strings.HasPrefix(text, "owner ") && strings.Contains(text, " restarted: "):
		return WordRestarted
	case strings.HasPrefix(text, "owner ") && (strings.Contains(text, " another store now") || strings.Contains(text, " was replaced")):
		return WordReplaced
	case strings.HasPrefix(text, damagedCause):
		return WordDamaged
	case strings.Contains(text, " promised epoch "):
		return WordPromise
	}
	_, symptom, ok := strings.Cut(text, " is suspected: ")
	for s := Rebooted; ok && s <= Unheard; s++ {
		if strings.HasPrefix(symptom, s.String()) {
			return s.String()
		}
	}
	return WordOther
}
