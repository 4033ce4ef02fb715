// Package sim runs the production node, or a cluster of them, in virtual time, on one seeded thread, over disks that crash, fail and lie
// and a network that cuts, breaks and delays, under clients that publish, consume, settle, move cursors, declare and delete; and has what
// they see judged by package check. In a cluster, what owners confirm is held against what the storage of every copy has reported.
//
// A seed replays exactly: the schedule of loops, the load and the faults are all drawn from it, and Result.Hash proves it. What is
// simulated is what the ports stand for (loops, clock, files, randomness); everything above is the product itself, assembled by the
// same constructor as in production, without its fronts: clients speak broker.Session directly.
package sim
