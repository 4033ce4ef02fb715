package admin

import (
	"github.com/prometheus/client_golang/prometheus"
)

// collector turns a snapshot of the node's counters into Prometheus' metrics. Names carry the unit; counters end in _total.
type collector struct{ backend Backend }

type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(*Metrics) float64
}

func counter(name, help string, get func(*Metrics) uint64) metric {
	return metric{
		prometheus.NewDesc("tanist_"+name, help, nil, nil), prometheus.CounterValue, func(m *Metrics) float64 { return float64(get(m)) },
	}
}

func gauge(name, help string, get func(*Metrics) float64) metric {
	return metric{prometheus.NewDesc("tanist_"+name, help, nil, nil), prometheus.GaugeValue, get}
}

func number(v uint64) float64 { return float64(v) }

func flag(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

var metrics = []metric{
	counter("storage_syncs_total", "Times the journal was synced to disk.", func(m *Metrics) uint64 { return m.Storage.Syncs }),
	counter("storage_groups_total", "Groups written to the journal; one write and one sync each.", func(m *Metrics) uint64 { return m.Storage.Groups }),
	counter("storage_written_bytes_total", "Bytes written to log files, everything counted.", func(m *Metrics) uint64 { return m.Storage.BytesWritten }),
	counter("storage_payload_bytes_total", "Of the bytes written, those of batches of records and events.", func(m *Metrics) uint64 { return m.Storage.PayloadBytes }),
	counter("storage_moved_bytes_total", "Of the bytes written, those that reclaiming copied.", func(m *Metrics) uint64 { return m.Storage.MovedBytes }),
	counter("storage_failures_total", "Writes and syncs that failed.", func(m *Metrics) uint64 { return m.Storage.Failures }),
	counter("storage_reclaimed_files_total", "Log files that were reused.", func(m *Metrics) uint64 { return m.Storage.Reclaimed }),
	gauge("storage_files", "Log files.", func(m *Metrics) float64 { return number(m.Storage.Files) }),
	gauge("storage_live_bytes", "Bytes in log files that are still needed.", func(m *Metrics) float64 { return number(m.Storage.LiveBytes) }),
	gauge("storage_free_bytes", "Bytes that can still be written.", func(m *Metrics) float64 { return number(m.Storage.FreeBytes) }),
	gauge("storage_damaged_copies", "Copies that are quarantined because they failed a check.", func(m *Metrics) float64 { return number(m.Storage.Damaged) }),
	gauge("storage_healthy", "1 while the journal takes writes.", func(m *Metrics) float64 { return flag(m.Storage.Health == "ok") }),

	gauge("connections", "Clients connected.", func(m *Metrics) float64 { return number(m.Gateway.Connections) }),
	gauge("channels", "Channels that clients have open.", func(m *Metrics) float64 { return number(m.Gateway.Channels) }),
	counter("clients_received_bytes_total", "Bytes received from clients, everything counted.", func(m *Metrics) uint64 { return m.Gateway.BytesIn }),
	counter("clients_sent_bytes_total", "Bytes sent to clients, everything counted.", func(m *Metrics) uint64 { return m.Gateway.BytesOut }),
	gauge("consumers", "Consumers attached through this node.", func(m *Metrics) float64 { return number(m.Gateway.Consumers) }),
	gauge("publishers_blocked", "1 while publishers are blocked.", func(m *Metrics) float64 { return flag(m.Gateway.Blocked) }),
	gauge("publish_buffered_bytes", "Bytes of published messages without an outcome yet.", func(m *Metrics) float64 { return number(m.Gateway.BufferedBytes) }),
	counter("messages_published_total", "Messages taken from clients.", func(m *Metrics) uint64 { return m.Gateway.Published }),
	counter("messages_confirmed_total", "Published messages whose every target confirmed.", func(m *Metrics) uint64 { return m.Gateway.Confirmed }),
	counter("messages_refused_total", "Published messages that are definitely not stored.", func(m *Metrics) uint64 { return m.Gateway.Refused }),
	counter("messages_unknown_total", "Published messages that may or may not be stored.", func(m *Metrics) uint64 { return m.Gateway.Unknown }),
	counter("messages_returned_total", "Mandatory messages without a target.", func(m *Metrics) uint64 { return m.Gateway.Returned }),
	gauge("oldest_unconfirmed_seconds", "Age of the oldest publish without an outcome.", func(m *Metrics) float64 { return m.Gateway.OldestUnconfirmed }),
	counter("messages_delivered_total", "Messages handed to consumers.", func(m *Metrics) uint64 { return m.Gateway.Delivered }),

	counter("messages_redelivered_total", "Of the messages handed to consumers, those that may have been delivered before.", func(m *Metrics) uint64 { return m.Gateway.Redelivered }),
	counter("messages_settled_total", "Deliveries that clients acknowledged, rejected or requeued.", func(m *Metrics) uint64 { return m.Gateway.Settled }),
	counter("claims_denied_total", "Deliveries that others were given, since this node's word that its clients held them came too late to a new owner.", func(m *Metrics) uint64 { return m.Gateway.Denied }),
	counter("messages_released_total", "Deliveries given back because a consumer or its client went away.", func(m *Metrics) uint64 { return m.Gateway.Released }),
	counter("messages_dead_lettered_total", "Dead letters published elsewhere, or dropped because they went in a circle.", func(m *Metrics) uint64 { return m.Gateway.DeadLettered }),
	counter("dead_letters_failed_total", "Attempts to publish a dead letter that failed: the target is missing or refused it.", func(m *Metrics) uint64 { return m.Gateway.DeadLettersKept }),

	counter("catalog_applied_total", "Index of the last catalog command applied.", func(m *Metrics) uint64 { return m.Catalog.Applied }),
	gauge("certificate_expires_seconds", "Until the certificate for other nodes expires; 0: there is none.",
		func(m *Metrics) float64 { return m.Catalog.CertificateSeconds }),
	gauge("lease_seconds", "For how long this node may go on without word from the controller, where its lease fences; 0: it has none.",
		func(m *Metrics) float64 { return m.Catalog.LeaseSeconds }),
	gauge("catalog_term", "Term of the catalog's consensus.", func(m *Metrics) float64 { return number(m.Catalog.Term) }),
	gauge("catalog_leader", "1 if this node decides.", func(m *Metrics) float64 { return flag(m.Catalog.Leader) }),

	gauge("messages_ready", "Messages ready in the queues that this node owns.", func(m *Metrics) float64 { return number(m.Replicas.Ready) }),
	gauge("messages_unsettled", "Messages delivered and not settled in the queues that this node owns.", func(m *Metrics) float64 { return number(m.Replicas.Unsettled) }),
	gauge("stream_records", "Records kept in the streams that this node owns.", func(m *Metrics) float64 { return number(m.Replicas.Records) }),
	gauge("dead_letters_waiting", "Dead letters that wait to be published elsewhere.", func(m *Metrics) float64 { return number(m.Replicas.DeadLetters) }),
	gauge("staged_bytes", "Bytes admitted and not yet confirmed.", func(m *Metrics) float64 { return number(m.Replicas.StagedBytes) }),
	counter("messages_deduplicated_total", "Publishes that were stored already under their number, those that a gateway sent again included.", func(m *Metrics) uint64 { return m.Replicas.Deduplicated }),
	counter("messages_expired_total", "Messages whose time to live ended in a queue that this node owns.", func(m *Metrics) uint64 { return m.Replicas.Expired }),
	counter("former_copies_dropped_total", "Copies on this node without a place in their partition any more whose data was dropped.", func(m *Metrics) uint64 { return m.Replicas.FormersDropped }),
	gauge("learners", "Copies that catch up with the partitions that this node owns.", func(m *Metrics) float64 { return number(m.Replicas.Learners) }),
	counter("suspicions_cleared_total", "Suspicions of this node's controller that were wrong, or over before the node's run was.",
		func(m *Metrics) uint64 { return m.Changes.Cleared }),
	{
		prometheus.NewDesc("tanist_unavailable_seconds_total", "Seconds from when an old owner was missed until this node served in its place, of all partitions together.", nil, nil),
		prometheus.CounterValue, func(m *Metrics) float64 { return m.Changes.Unavailable },
	},
	counter("cut_entries_total", "Entries that copies of this node dropped to follow a new owner; none was ever confirmed, unless a loss was accepted.",
		func(m *Metrics) uint64 { return m.Changes.CutEntries }),
	counter("lost_entries_total", "Entries that were confirmed, as far as anyone had reported, and given up with an accepted loss that made a copy of this node the owner.",
		func(m *Metrics) uint64 { return m.Changes.LostEntries }),
	counter("transitions_total", "Changes of owner that this node has seen in the catalog, of all partitions, restarts included.", func(m *Metrics) uint64 { return m.Replicas.Transitions }),
}

var (
	statesDesc  = prometheus.NewDesc("tanist_partitions", "Partitions that this node owns, by state.", []string{"state"}, nil)
	groupDesc   = prometheus.NewDesc("tanist_storage_group_seconds", "How long writing and syncing a group took.", nil, nil)
	refusedDesc = prometheus.NewDesc("tanist_refusals_total",
		"Targets of published messages that were refused, by reason: full, copies (too few in reach), lease (the owner has none that is in force), unreached (no owner), other.", []string{"reason"}, nil)
	changesDesc = prometheus.NewDesc("tanist_owner_changes_total",
		"Partitions that this node took over, by workflow and cause.", []string{"workflow", "cause"}, nil)
	phaseDesc = prometheus.NewDesc("tanist_owner_change_phase_seconds",
		"How long each phase of a change of owner to this node took: record, seal, choose, commit, serve, confirm.", []string{"phase"}, nil)
	suspicionsDesc = prometheus.NewDesc("tanist_suspicions_total", "Nodes that this node's controller suspected, by symptom.", []string{"symptom"}, nil)
	lostDesc       = prometheus.NewDesc("tanist_followers_lost",
		"Followers of the partitions that this node owns which take nothing, by node.", []string{"node"}, nil)
	heldDesc = prometheus.NewDesc("tanist_followers_held",
		"Followers of the partitions that this node owns whose place is kept while their node is away, by node.", []string{"node"}, nil)
	replacedDesc = prometheus.NewDesc("tanist_followers_to_replace",
		"Followers of the partitions that this node owns in whose place another copy is to come, by node.", []string{"node"}, nil)
	lagDesc = prometheus.NewDesc("tanist_follower_lag_entries",
		"Entries that the copy of a node which is furthest behind is behind what this node owns.", []string{"node"}, nil)
	readyDesc = prometheus.NewDesc("tanist_ready", "1 when this node serves every partition it owns.", nil, nil)
)

// collectChanges tells what happened to owners and followers. Labels come and go with what there is to tell.
func collectChanges(out chan<- prometheus.Metric, snap *Metrics) {
	for c, n := range snap.Changes.Owners {
		out <- prometheus.MustNewConstMetric(changesDesc, prometheus.CounterValue, float64(n), c.Workflow, c.Cause)
	}
	for _, phase := range Phases {
		s := snap.Changes.Phases[phase]
		buckets := map[float64]uint64{}
		for i, bound := range PhaseBounds {
			buckets[bound] = s.Buckets[i]
		}
		out <- prometheus.MustNewConstHistogram(phaseDesc, s.Count, s.Sum, buckets, phase)
	}
	for symptom, n := range snap.Changes.Suspicions {
		out <- prometheus.MustNewConstMetric(suspicionsDesc, prometheus.CounterValue, float64(n), symptom)
	}
	for node, n := range snap.Replicas.LostFollowers {
		out <- prometheus.MustNewConstMetric(lostDesc, prometheus.GaugeValue, float64(n), node)
	}
	for node, n := range snap.Replicas.HeldFollowers {
		out <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(n), node)
	}
	for node, n := range snap.Replicas.Replaced {
		out <- prometheus.MustNewConstMetric(replacedDesc, prometheus.GaugeValue, float64(n), node)
	}
	for node, n := range snap.Replicas.Lag {
		out <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(n), node)
	}
}

// Describe describes every metric.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range metrics {
		out <- m.desc
	}
	out <- statesDesc
	out <- groupDesc
	out <- refusedDesc
	out <- changesDesc
	out <- phaseDesc
	out <- suspicionsDesc
	out <- lostDesc
	out <- heldDesc
	out <- replacedDesc
	out <- lagDesc
	out <- readyDesc
}

// Collect takes one snapshot, so that the metrics of one scrape belong together.
func (c collector) Collect(out chan<- prometheus.Metric) {
	snap := c.backend.Metrics()
	for _, m := range metrics {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.get(&snap))
	}
	for _, s := range States {
		out <- prometheus.MustNewConstMetric(statesDesc, prometheus.GaugeValue, float64(snap.Replicas.States[s]), string(s))
	}
	for _, reason := range RefusalReasons {
		out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(snap.Gateway.Refusals[reason]), reason)
	}
	collectChanges(out, &snap)
	out <- prometheus.MustNewConstSummary(groupDesc, snap.Storage.Groups, snap.Storage.SyncSeconds, nil)
	out <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, flag(c.backend.Ready() == nil))
}
