// Package units reads and writes numbers of bytes as people do, for the configuration and the settings of the catalog alike.
package units

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

var sizes = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

var errSize = errors.New("want a number of bytes, such as 4096, 64KiB or 2GB")

// ParseSize reads a number of bytes such as 4096, 64KiB or 2GB: 0 or more. Its error says what is wanted.
func ParseSize(v string) (int64, error) {
	number, unit := strings.TrimSpace(v), int64(1)
	for _, u := range sizes {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, errSize
	}
	return n * unit, nil
}

// FormatSize writes a number of bytes in the largest binary unit that loses nothing.
func FormatSize(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := sizes[i]; n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
