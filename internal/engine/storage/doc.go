// Package storage is a node's journal: the log files that hold the batches of all partitions, the consensus log, and
// every promise, role, cut, head drop, creation and deletion, each written once as a frame, with one sync for all of them.
//
// The log file is the log's home: there is no second copy per partition. One actor writes (writer.go), on a loop of its own: what
// gathers while a sync runs is the next group. Another actor reads what is no longer in memory, reclaims files and scrubs (reader.go).
// Callers come from any loop: what they may see at once (tail, newest batches) is kept under one small lock per copy.
//
// Anything that decides must be the same in every run of a simulation: no map is ranged over to decide, and no time is
// read but through the clock. Another engine's types, AMQP, and the meaning of a record may not come in. Source: design 3.
package storage
