// Go's own client over TLS: client PORT CERTIFICATE. Sends concurrent requests by HTTP/2 and HTTP/1.1, publishes, and
// subscribes.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

const largeBytes = 1_000_003

func main() {
	site := "https://localhost:" + os.Args[1]
	authority, err := os.ReadFile(os.Args[2])
	must(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		panic("no certificate")
	}
	for _, protocol := range []string{"HTTP/2.0", "HTTP/1.1"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
		if protocol == "HTTP/1.1" {
			transport.ForceAttemptHTTP2 = false
			transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		client := &http.Client{Transport: transport}
		ask(client, site, protocol)
		listen(client, site)
		transport.CloseIdleConnections()
		fmt.Println(protocol)
	}
	fmt.Println("fine")
}

// Gets files and posts, eight requests at a time.
func ask(client *http.Client, site, protocol string) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				answer, err := client.Get(site + "/large.bin")
				must(err)
				content, err := io.ReadAll(answer.Body)
				must(err)
				if answer.StatusCode != 200 || answer.Proto != protocol || len(content) != largeBytes {
					panic(fmt.Sprint(answer.Status, answer.Proto, len(content)))
				}
				post(client, site, "many")
				// The body is too large for the server: the response arrives while the body is still being sent.
				answer, err = client.Post(site+"/large.bin", "text/plain", strings.NewReader(strings.Repeat("x", 50_000)))
				must(err)
				answer.Body.Close()
				if answer.StatusCode != 405 {
					panic(answer.Status)
				}
			}
		})
	}
	all.Wait()
}

// Receives the messages that it publishes itself.
func listen(client *http.Client, site string) {
	answer, err := client.Get(site + "/push/go?as=sse")
	must(err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for number := range 10 {
		said := fmt.Sprint("number ", number)
		answer, err := client.Post(site+"/push/go", "text/plain", strings.NewReader(said))
		must(err)
		answer.Body.Close()
		for lines.Scan() && lines.Text() != "data: "+said {
		}
		must(lines.Err())
	}
}

func post(client *http.Client, site, channel string) {
	answer, err := client.Post(site+"/push/"+channel, "text/plain", strings.NewReader("from Go"))
	must(err)
	answer.Body.Close()
	if answer.StatusCode != 201 {
		panic(answer.Status)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
