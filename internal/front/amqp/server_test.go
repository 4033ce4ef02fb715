package amqp_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	client "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/internal/front/amqp"
	"github.com/tanist/tanist/internal/front/amqp/amqptest"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

func TestConnectionLimitSaysSo(t *testing.T) {
	_, url := serve(t, amqptest.New(), func(e *amqp.Env) { e.Limits.Connections = 1 })
	dial(t, url)
	_, err := client.Dial(url)
	if err == nil || !strings.Contains(err.Error(), "limit") {
		t.Fatalf("got %v", err)
	}
}

func TestChannelLimitIsTuned(t *testing.T) {
	_, url := serve(t, amqptest.New(), func(e *amqp.Env) { e.Limits.Channels = 2 })
	conn, _ := dial(t, url)
	if _, err := conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Channel(); err != client.ErrChannelMax {
		t.Fatalf("got %v", err)
	}
}

func TestTooLargeAMessageClosesItsChannelOnly(t *testing.T) {
	_, url := serve(t, amqptest.New(), func(e *amqp.Env) { e.Limits.MessageMax = 1000 })
	conn, ch := dial(t, url)
	closed := ch.NotifyClose(make(chan *client.Error, 1))
	if err := ch.PublishWithContext(t.Context(), "", "q", false, false, client.Publishing{Body: make([]byte, 1001)}); err != nil {
		t.Fatal(err)
	}
	if e := <-closed; e == nil || e.Code != client.PreconditionFailed || !strings.Contains(e.Reason, "1000") {
		t.Fatalf("closed with %v", e)
	}
	if _, err := conn.Channel(); err != nil {
		t.Fatal(err)
	}
}

func TestOneBadFrameEndsOneConnection(t *testing.T) {
	_, url := serve(t, amqptest.New(), nil)
	_, good := dial(t, url)
	nc := raw(t, url)
	if _, err := nc.Write([]byte(wire.ProtocolHeader + "\x09garbage")); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(nc) // the server hangs up
	if err != nil || !strings.Contains(string(answer), "FRAME_ERROR") {
		t.Fatalf("answer %q, %v", answer, err)
	}
	if _, err := good.QueueDeclare("q", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

func raw(t *testing.T, url string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimSuffix(url[strings.Index(url, "@")+1:], "/"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return nc
}

func TestAnotherProtocolIsToldWhatIsSpoken(t *testing.T) {
	_, url := serve(t, amqptest.New(), nil)
	nc := raw(t, url)
	if _, err := nc.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(nc)
	if string(answer) != wire.ProtocolHeader || err != nil {
		t.Fatalf("answer %q, %v", answer, err)
	}
}

func TestSilentHandshakeIsCutOff(t *testing.T) {
	s, url := serve(t, amqptest.New(), func(e *amqp.Env) { e.Limits.Handshake = 50 * time.Millisecond })
	nc := raw(t, url)
	if n, err := nc.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("read %d, %v", n, err)
	}
	if n := s.Connections(); n > 1 {
		t.Fatalf("%d connections", n)
	}
}

func TestHeartbeatsGoBothWays(t *testing.T) {
	_, url := serve(t, amqptest.New(), nil)
	// The client asks for a heartbeat each second, and closes when it misses them.
	conn, err := client.DialConfig(url, client.Config{Heartbeat: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// Who sends none is cut off after a little more than two intervals.
	nc := raw(t, url)
	in := []byte(wire.ProtocolHeader)
	for _, m := range []wire.Method{
		&wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest"}, &wire.ConnectionTuneOk{Heartbeat: 1},
		&wire.ConnectionOpen{VirtualHost: "/"},
	} {
		in = wire.AppendMethod(in, 0, m)
	}
	if _, err := nc.Write(in); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	beats := 0
	all, err := io.ReadAll(bufio.NewReader(nc))
	if err != nil {
		t.Fatal(err)
	}
	for len(all) > 0 {
		f, n, err := wire.ParseFrame(all, 1<<20)
		if err != nil || n == 0 {
			t.Fatalf("broken frame: %v", err)
		}
		if f.Type == wire.FrameHeartbeat {
			beats++
		}
		all = all[n:]
	}
	if d := time.Since(begin); d < 2*time.Second || beats < 2 {
		t.Fatalf("cut off after %s and %d heartbeats", d, beats)
	}
	if conn.IsClosed() {
		t.Fatal("the client that sends heartbeats was cut off")
	}
}

// TestSlowConsumerPaysBackWhatItTook checks that credit is paid back as bytes are written, and not before.
func TestSlowConsumerPaysBackWhatItTook(t *testing.T) {
	b := amqptest.New()
	_, url := serve(t, b, nil)
	_, ch := dial(t, url)
	if _, err := ch.QueueDeclare("q", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	ds, err := ch.Consume("q", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n, size = 200, 10_000
	for range n {
		if err := ch.PublishWithContext(t.Context(), "", "q", false, false, client.Publishing{Body: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		<-ds
	}
	// The answer to the first comes after the deliveries were written, and the second is handled after that was reported.
	for range 2 {
		if _, err := ch.QueuePurge("q", false); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.PaidBack(1); got < (n-1)*size || got > n*(size+100) {
		t.Fatalf("%d bytes were paid back", got)
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tanist"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	s, _ := serve(t, amqptest.New(), nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Listen(ln, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	conn, err := client.DialTLS("amqps://guest:guest@"+ln.Addr().String()+"/", &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Channel(); err != nil {
		t.Fatal(err)
	}
	st := s.Status(t.Context())
	if len(st) != 1 || !st[0].TLS || st[0].Status.User != "guest" || len(st[0].Status.Channels) != 1 || st[0].In == 0 {
		t.Fatalf("status %+v", st)
	}
}

func TestDisconnect(t *testing.T) {
	s, url := serve(t, amqptest.New(), nil)
	conn, _ := dial(t, url)
	closed := conn.NotifyClose(make(chan *client.Error, 1))
	if !s.Disconnect(1, "on request") || s.Disconnect(9, "") {
		t.Fatal("wrong answer")
	}
	if e := <-closed; e == nil || e.Code != client.ConnectionForced || !strings.Contains(e.Reason, "on request") {
		t.Fatalf("closed with %v", e)
	}
}

// TestShutdownCutsOffWhoDoesNotAnswer checks that a client cannot keep a node from stopping.
func TestShutdownCutsOffWhoDoesNotAnswer(t *testing.T) {
	s, url := serve(t, amqptest.New(), nil)
	nc := raw(t, url)
	if _, err := nc.Write([]byte(wire.ProtocolHeader)); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Read(make([]byte, 1)); err != nil { // connection.start has come
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Fatal("the client has answered")
	}
	if n := s.Connections(); n != 0 {
		t.Fatalf("%d connections are left", n)
	}
}

func TestTrafficIsCounted(t *testing.T) {
	s, url := serve(t, amqptest.New(), nil)
	conn, _ := dial(t, url)
	if _, err := conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if n := s.Traffic(); n.Channels != 2 || n.In < 200 || n.Out < 200 {
		t.Errorf("with two channels: %+v", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if n := s.Traffic(); n.Channels != 0 || n.In < 200 {
		t.Errorf("after the end: %+v", n)
	}
}
