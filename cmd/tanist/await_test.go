package main

import (
	"net/http"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// await waits until the node of the script is ready, or with ! until nobody answers.
func await(ts *testscript.TestScript, neg bool, _ []string) {
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.Get("http://" + ts.Getenv("ADMIN") + "/readyz")
		ready := err == nil && resp.StatusCode == http.StatusOK
		if err == nil {
			ts.Check(resp.Body.Close())
		}
		if neg && err != nil || !neg && ready {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("waited a minute for the node: %v", err)
		}
	}
}
