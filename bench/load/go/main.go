// load-go: one request at a time through nats.go, and how long each took. What bench/tails.py asks of a Go client.
//
//	load-go core|publish|put PORT COUNT WARM
//
// core is a request that a second connection answers, publish a publish to stream S, put a put into bucket B. One line of
// JSON, as the C generator's.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load-go:", err)
		os.Exit(1)
	}
}

func number(n int) int {
	value, err := strconv.Atoi(os.Args[n])
	check(err)
	return value
}

// operation connects and gives what is timed, once a call.
func operation(kind string, url string) func() error {
	client, err := nats.Connect(url)
	check(err)
	payload := make([]byte, 128)
	if kind == "core" {
		server, err := nats.Connect(url)
		check(err)
		_, err = server.Subscribe("tails.echo", func(m *nats.Msg) { check(m.Respond(m.Data)) })
		check(err)
		check(server.Flush())
		return func() error {
			_, err := client.Request("tails.echo", payload, 20*time.Second)
			return err
		}
	}
	js, err := client.JetStream(nats.MaxWait(20 * time.Second))
	check(err)
	if kind == "publish" {
		return func() error {
			_, err := js.Publish("bench.x", payload)
			return err
		}
	}
	bucket, err := js.KeyValue("B")
	if err != nil {
		bucket, err = js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "B"})
	}
	check(err)
	n := 0
	return func() error {
		n++
		_, err := bucket.Put("k"+strconv.Itoa(n%1000), payload)
		return err
	}
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "load-go core|publish|put PORT COUNT WARM")
		os.Exit(2)
	}
	do := operation(os.Args[1], "nats://127.0.0.1:"+os.Args[2])
	count, warm := number(3), number(4)
	for range warm {
		check(do())
	}
	took := make([]float64, count)
	for n := range took {
		start := time.Now()
		check(do())
		took[n] = float64(time.Since(start).Nanoseconds()) / 1e3
	}
	slices.Sort(took)
	at := func(part float64) float64 { return took[int(part*float64(count-1))] }
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"mode": os.Args[1], "messages": count, "p50_us": at(.5), "p90_us": at(.9), "p99_us": at(.99), "p999_us": at(.999), "max_us": at(1),
	}))
}
