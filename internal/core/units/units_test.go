package units

import "testing"

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "17": 17, "4KiB": 4096, "2 MiB": 2 << 20, "3GB": 3e9, "5B": 5} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "-1", "9223372036854775807KiB", "1.5MiB"} {
		if _, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) took it", in)
		}
	}
	for n, want := range map[int64]string{0: "0", 1000: "1000", 4096: "4KiB", 3 << 20: "3MiB", 1 << 40: "1TiB"} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %s", n, got)
		}
	}
}
