package protocol

// Which message is of which kind, in both directions. One function puts and one gets, so that neither the message nor the coder moves to
// the heap for being written.

// putAsked writes what a gateway sends to an owner. It reports whether msg was one of these.
func (c *coder) putAsked(msg any) bool {
	switch m := msg.(type) {
	case Attach:
		c.head(kindAttach)
		c.attach(&m)
	case Publish:
		c.head(kindPublish)
		c.publish(&m)
	case Subscribe:
		c.head(kindSubscribe)
		c.subscribe(&m)
	case Unsubscribe:
		c.head(kindUnsubscribe)
		c.unsubscribe(&m)
	case Credit:
		c.head(kindCredit)
		c.credit(&m)
	case Settle:
		c.head(kindSettle)
		c.settle(&m)
	case Cursor:
		c.head(kindCursor)
		c.cursor(&m)
	case Get:
		c.head(kindGet)
		c.get(&m)
	case Purge:
		c.head(kindPurge)
		c.purge(&m)
	case Stats:
		c.head(kindStats)
		c.stats(&m)
	case Close:
		c.head(kindClose)
		c.close(&m)
	case Reopen:
		c.head(kindReopen)
		c.reopen(&m)
	case Detach:
		c.head(kindDetach)
		c.detach(&m)
	case Unclaimed:
		c.head(kindUnclaimed)
		c.unclaimed(&m)
	default:
		return false
	}
	return true
}

// getAsked reads what a gateway sends to an owner; nil if k is none of these.
func (c *coder) getAsked(k kind) any {
	switch k {
	case kindAttach:
		var m Attach
		c.attach(&m)
		return m
	case kindPublish:
		var m Publish
		c.publish(&m)
		return m
	case kindSubscribe:
		var m Subscribe
		c.subscribe(&m)
		return m
	case kindUnsubscribe:
		var m Unsubscribe
		c.unsubscribe(&m)
		return m
	case kindCredit:
		var m Credit
		c.credit(&m)
		return m
	case kindSettle:
		var m Settle
		c.settle(&m)
		return m
	case kindCursor:
		var m Cursor
		c.cursor(&m)
		return m
	case kindGet:
		var m Get
		c.get(&m)
		return m
	case kindPurge:
		var m Purge
		c.purge(&m)
		return m
	case kindStats:
		var m Stats
		c.stats(&m)
		return m
	case kindClose:
		var m Close
		c.close(&m)
		return m
	case kindReopen:
		var m Reopen
		c.reopen(&m)
		return m
	case kindDetach:
		var m Detach
		c.detach(&m)
		return m
	case kindUnclaimed:
		var m Unclaimed
		c.unclaimed(&m)
		return m
	}
	return nil
}

// putAnswered writes what an owner sends to a gateway. It reports whether msg was one of these.
func (c *coder) putAnswered(msg any) bool {
	switch m := msg.(type) {
	case Attached:
		c.head(kindAttached)
		c.attached(&m)
	case NotServing:
		c.head(kindNotServing)
		c.notServing(&m)
	case Published:
		c.head(kindPublished)
		c.published(&m)
	case PublishRefused:
		c.head(kindPublishRefused)
		c.publishRefused(&m)
	case PublishExpected:
		c.head(kindPublishExpected)
		c.publishExpected(&m)
	case PublishUnknown:
		c.head(kindPublishUnknown)
		c.publishUnknown(&m)
	case Subscribed:
		c.head(kindSubscribed)
		c.subscribed(&m)
	case Unsubscribed:
		c.head(kindUnsubscribed)
		c.unsubscribed(&m)
	case ConsumerEnded:
		c.head(kindConsumerEnded)
		c.consumerEnded(&m)
	case Deliver:
		c.head(kindDeliver)
		c.deliver(&m)
	case StreamData:
		c.head(kindStreamData)
		c.streamData(&m)
	case Settled:
		c.head(kindSettled)
		c.settled(&m)
	case GetDone:
		c.head(kindGetDone)
		c.getDone(&m)
	case Counted:
		c.head(kindCounted)
		c.counted(&m)
	case Denied:
		c.head(kindDenied)
		c.denied(&m)
	default:
		return false
	}
	return true
}

// getAnswered reads what an owner sends to a gateway; nil if k is none of these.
func (c *coder) getAnswered(k kind) any {
	switch k {
	case kindAttached:
		var m Attached
		c.attached(&m)
		return m
	case kindNotServing:
		var m NotServing
		c.notServing(&m)
		return m
	case kindPublished:
		var m Published
		c.published(&m)
		return m
	case kindPublishRefused:
		var m PublishRefused
		c.publishRefused(&m)
		return m
	case kindPublishExpected:
		var m PublishExpected
		c.publishExpected(&m)
		return m
	case kindPublishUnknown:
		var m PublishUnknown
		c.publishUnknown(&m)
		return m
	case kindSubscribed:
		var m Subscribed
		c.subscribed(&m)
		return m
	case kindUnsubscribed:
		var m Unsubscribed
		c.unsubscribed(&m)
		return m
	case kindConsumerEnded:
		var m ConsumerEnded
		c.consumerEnded(&m)
		return m
	case kindDeliver:
		var m Deliver
		c.deliver(&m)
		return m
	case kindStreamData:
		var m StreamData
		c.streamData(&m)
		return m
	case kindSettled:
		var m Settled
		c.settled(&m)
		return m
	case kindGetDone:
		var m GetDone
		c.getDone(&m)
		return m
	case kindCounted:
		var m Counted
		c.counted(&m)
		return m
	case kindDenied:
		var m Denied
		c.denied(&m)
		return m
	}
	return nil
}

// putCopies writes what the copies of a partition send to each other. It reports whether msg was one of these.
func (c *coder) putCopies(msg any) bool {
	switch m := msg.(type) {
	case Probe:
		c.head(kindProbe)
		c.probe(&m)
	case Standing:
		c.head(kindStanding)
		c.standing(&m)
	case Extend:
		c.head(kindExtend)
		c.extend(&m)
	case Held:
		c.head(kindHeld)
		c.held(&m)
	case ImageChunk:
		c.head(kindImageChunk)
		c.imageChunk(&m)
	case MakeAnew:
		c.head(kindMakeAnew)
		c.makeAnew(&m)
	case ImageTaken:
		c.head(kindImageTaken)
		c.imageTaken(&m)
	default:
		return false
	}
	return true
}

// getCopies reads what the copies of a partition send to each other; nil if k is none of these.
func (c *coder) getCopies(k kind) any {
	switch k {
	case kindProbe:
		var m Probe
		c.probe(&m)
		return m
	case kindStanding:
		var m Standing
		c.standing(&m)
		return m
	case kindExtend:
		var m Extend
		c.extend(&m)
		return m
	case kindHeld:
		var m Held
		c.held(&m)
		return m
	case kindImageChunk:
		var m ImageChunk
		c.imageChunk(&m)
		return m
	case kindMakeAnew:
		var m MakeAnew
		c.makeAnew(&m)
		return m
	case kindImageTaken:
		var m ImageTaken
		c.imageTaken(&m)
		return m
	}
	return nil
}

// putControl writes what nodes and the controller send to each other. It reports whether msg was one of these.
func (c *coder) putControl(msg any) bool {
	switch m := msg.(type) {
	case Heartbeat:
		c.head(kindHeartbeat)
		c.heartbeat(&m)
	case SealRequests:
		c.head(kindSealRequests)
		c.sealRequests(&m)
	case SealAnswers:
		c.head(kindSealAnswers)
		c.sealAnswers(&m)
	case LinksAsk:
		c.head(kindLinksAsk)
		c.linksAsk(&m)
	case LinksAnswer:
		c.head(kindLinksAnswer)
		c.linksAnswer(&m)
	case LossAsk:
		c.head(kindLossAsk)
		c.lossAsk(&m)
	case LossAnswer:
		c.head(kindLossAnswer)
		c.lossAnswer(&m)
	case DeletionAsk:
		c.head(kindDeletionAsk)
		c.deletionAsk(&m)
	case DeletionAnswer:
		c.head(kindDeletionAnswer)
		c.deletionAnswer(&m)
	case ClientsAsk:
		c.head(kindClientsAsk)
		c.clientsAsk(&m)
	case ClientsAnswer:
		c.head(kindClientsAnswer)
		c.clientsAnswer(&m)
	case CursorsAsk:
		c.head(kindCursorsAsk)
		c.cursorsAsk(&m)
	case CursorsAnswer:
		c.head(kindCursorsAnswer)
		c.cursorsAnswer(&m)
	case StatusAsk:
		c.head(kindStatusAsk)
		c.statusAsk(&m)
	case StatusAnswer:
		c.head(kindStatusAnswer)
		c.statusAnswer(&m)
	case RunReport:
		c.head(kindRunReport)
		c.runReport(&m)
	case Evidence:
		c.head(kindEvidence)
		c.evidence(&m)
	case EvidenceHeld:
		c.head(kindEvidenceHeld)
		c.evidenceHeld(&m)
	case Lease:
		c.head(kindLease)
		c.lease(&m)
	default:
		return c.putCopiesWord(msg)
	}
	return true
}

// putCopiesWord writes what a node says to the controller of its copies. It reports whether msg was one of these.
func (c *coder) putCopiesWord(msg any) bool {
	switch m := msg.(type) {
	case Promises:
		c.head(kindPromises)
		c.promises(&m)
	case Damages:
		c.head(kindDamages)
		c.damages(&m)
	case Confirms:
		c.head(kindConfirms)
		c.confirms(&m)
	default:
		return false
	}
	return true
}

// getControl reads what nodes and the controller send to each other; nil if k is none of these.
func (c *coder) getControl(k kind) any {
	switch k {
	case kindHeartbeat:
		var m Heartbeat
		c.heartbeat(&m)
		return m
	case kindSealRequests:
		var m SealRequests
		c.sealRequests(&m)
		return m
	case kindSealAnswers:
		var m SealAnswers
		c.sealAnswers(&m)
		return m
	case kindLinksAsk:
		var m LinksAsk
		c.linksAsk(&m)
		return m
	case kindLinksAnswer:
		var m LinksAnswer
		c.linksAnswer(&m)
		return m
	case kindStatusAsk:
		var m StatusAsk
		c.statusAsk(&m)
		return m
	case kindStatusAnswer:
		var m StatusAnswer
		c.statusAnswer(&m)
		return m
	case kindRunReport:
		var m RunReport
		c.runReport(&m)
		return m
	case kindPromises:
		var m Promises
		c.promises(&m)
		return m
	case kindDamages:
		var m Damages
		c.damages(&m)
		return m
	case kindConfirms:
		var m Confirms
		c.confirms(&m)
		return m
	case kindEvidence:
		var m Evidence
		c.evidence(&m)
		return m
	case kindEvidenceHeld:
		var m EvidenceHeld
		c.evidenceHeld(&m)
		return m
	case kindLease:
		var m Lease
		c.lease(&m)
		return m
	}
	return c.getOperators(k)
}

// getOperators reads what nodes pass on of an operator's decisions; nil if k is none of these.
func (c *coder) getOperators(k kind) any {
	switch k {
	case kindLossAsk:
		var m LossAsk
		c.lossAsk(&m)
		return m
	case kindLossAnswer:
		var m LossAnswer
		c.lossAnswer(&m)
		return m
	case kindDeletionAsk:
		var m DeletionAsk
		c.deletionAsk(&m)
		return m
	case kindDeletionAnswer:
		var m DeletionAnswer
		c.deletionAnswer(&m)
		return m
	case kindClientsAsk:
		var m ClientsAsk
		c.clientsAsk(&m)
		return m
	case kindClientsAnswer:
		var m ClientsAnswer
		c.clientsAnswer(&m)
		return m
	case kindCursorsAsk:
		var m CursorsAsk
		c.cursorsAsk(&m)
		return m
	case kindCursorsAnswer:
		var m CursorsAnswer
		c.cursorsAnswer(&m)
		return m
	}
	return nil
}
