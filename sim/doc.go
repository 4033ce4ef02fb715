// Package sim runs the production node in virtual time, on one seeded thread, over a disk that crashes, fails and lies, under clients
// that publish, consume, settle, move cursors, declare and delete; and has what they see judged by package check.
//
// A seed replays exactly: the schedule of loops, the load and the faults are all drawn from it, and Result.Hash proves it. What is
// simulated is what the ports stand for (loops, clock, files, randomness); everything above is the product itself, assembled by the
// same constructor as in production, without its fronts: clients speak broker.Session directly.
package sim
