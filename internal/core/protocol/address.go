package protocol

// Address is what a message to an owner begins with; ok is false for every other message.
func Address(msg any) (to To, ok bool) {
	switch m := msg.(type) {
	case Attach:
		return m.To, true
	case Publish:
		return m.To, true
	case Subscribe:
		return m.To, true
	case Unsubscribe:
		return m.To, true
	case Credit:
		return m.To, true
	case Settle:
		return m.To, true
	case Cursor:
		return m.To, true
	case Get:
		return m.To, true
	case Purge:
		return m.To, true
	case Stats:
		return m.To, true
	case Close:
		return m.To, true
	case Reopen:
		return m.To, true
	case Detach:
		return m.To, true
	}
	return To{}, false
}
