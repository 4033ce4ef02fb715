package messages

import (
	"net"
	"strings"
	"testing"
)

// What hangs up on an AMQP client is there: most often it wants TLS.
func TestWhatHangsUpIsNotCalledAbsent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if nc, err := ln.Accept(); err == nil {
			_ = nc.Close() // that it hangs up is all that it does
		}
	}()
	f := amqpFlags{url: "amqp://u:secret@" + ln.Addr().String()}
	_, _, err = f.dial("test")
	if err == nil || !strings.Contains(err.Error(), "does it want TLS (amqps://…)") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}
