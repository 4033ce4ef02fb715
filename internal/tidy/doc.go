// Package tidy holds the house rules as a test: which folder may import which, what the pure rooms may not use, and how large
// functions, files and packages may grow. It has no code of its own; exceptions are listed in the test, each with its reason.
package tidy
