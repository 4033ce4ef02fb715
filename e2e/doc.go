// Package e2e holds tests of the real program: the binary is built once, started as one process or as a cluster of three, spoken to over
// AMQP by real clients, and killed. It knows the broker from outside only, and its histories are judged by the same package check as the
// simulation's.
//
// Environment:
//
//	E2E_CYCLES   how many times TestKill kills the broker (default 50)
//	E2E_SEED     seed of the random moments (default: of the time, and printed)
//	E2E_REQUIRE  if set, a foreign client or browser that is not installed fails its test instead of skipping it
//	E2E_PICTURES a directory for pictures of the console's pages (default: none are taken)
package e2e
