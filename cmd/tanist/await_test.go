package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tanist/tanist/cmd/tanist/dev"
)

// await waits until the node of the script, or the one at the admin address given, is ready, or with ! until nobody answers.
func await(ts *testscript.TestScript, neg bool, args []string) {
	at := ts.Getenv("ADMIN")
	if len(args) > 0 {
		at = args[0]
	}
	awaitReady(ts, at, neg)
}

// awaitDev waits until all nodes of a local cluster are ready, and sets URL1, ADMIN1 and so on to their addresses.
func awaitDev(ts *testscript.TestScript, _ bool, args []string) {
	var d *dev.Cluster
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for d == nil || len(d.Nodes) == 0 {
		d, _ = dev.Load(ts.MkAbs(args[0])) // it may not be there yet
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("waited a minute for a cluster in %s", args[0])
		}
	}
	for i, n := range d.Nodes {
		awaitReady(ts, n.Admin, false)
		ts.Setenv(fmt.Sprint("URL", i+1), "amqp://guest@"+n.AMQP+"/")
		ts.Setenv(fmt.Sprint("ADMIN", i+1), "http://"+n.Admin)
	}
}

func awaitReady(ts *testscript.TestScript, at string, neg bool) {
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.Get("http://" + at + "/readyz")
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

// until runs a command again and again until what it prints matches, whatever it ends with.
func until(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile("(?m)" + args[0])
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ts.Exec(args[1], args[2:]...)
		if want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("waited a minute for %s: %v", args[0], err)
		}
	}
}

// owner sets OWNER to the number of the node of a local cluster that owns a queue, and has the verbs ask another.
func owner(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec("tanist", "status", args[0], "--json"))
	var r report
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &r))
	number := strings.TrimPrefix(r.Partitions[0].Owner, "n")
	ts.Setenv("OWNER", number)
	other := "1"
	if number == other {
		other = "2"
	}
	ts.Setenv("TANIST_ADMIN_URL", ts.Getenv("ADMIN"+other))
}
