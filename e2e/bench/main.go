// Command bench compares tokend with a bare Echo handler that answers a constant JSON
// body: the CPU that a server spends on a request, and what it answers a second. Both run
// on this machine, in turns, in one run; the figures are medians and ratios, as absolute
// times say more of the machine than of the program.
//
//	go run ./bench -rounds 5 -callers 1,64
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 5, "rounds; in each, every server has its turn")
	span := flag.Duration("span", 2*time.Second, "how long a turn lasts")
	callers := flag.String("callers", "1,64", "how many callers at once, comma-separated")
	hello := flag.String("hello", "", "serve the bare handler at this address, and nothing else")
	flag.Parse()
	if *hello != "" {
		fatal(serveHello(*hello))
		return
	}
	var counts []int
	for text := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(text)
		fatal(err)
		counts = append(counts, n)
	}
	fatal(compare(*rounds, *span, counts))
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
