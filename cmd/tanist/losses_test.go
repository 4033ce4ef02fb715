package main

import (
	"slices"
	"testing"

	"github.com/tanist/tanist/internal/front/admin"
)

// An owner that goes on loses nothing: it must not look as if its log began anew at offset 0.
func TestAnOwnerThatGoesOnIsNotShownToLoseAnything(t *testing.T) {
	for _, x := range []struct {
		plan        admin.LossPlan
		from, known string
	}{
		{admin.LossPlan{Owner: "n1", Candidate: "n1"}, "-", "nothing"},
		{admin.LossPlan{Owner: "n1", Candidate: "n2", FromOffset: 7}, "7", "nothing known"},
		{admin.LossPlan{Owner: "n1", Candidate: "n2", FromOffset: 7, Entries: 2}, "7", "2 entries"},
	} {
		row := lossRows([]admin.LossPlan{x.plan})[0]
		if !slices.Equal(row[5:7], []string{x.from, x.known}) {
			t.Errorf("%+v: %q", x.plan, row)
		}
	}
}
