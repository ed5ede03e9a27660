// An application on Go's own server: records each request. It listens on descriptor 3.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	record, err := os.OpenFile(os.Getenv("RECORD"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		panic(err)
	}
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		panic(err)
	}
	panic(http.Serve(listener, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		sum := sha256.New()
		length, err := io.Copy(sum, request.Body)
		if err != nil {
			response.WriteHeader(400)
			return
		}
		digest := hex.EncodeToString(sum.Sum(nil))
		line, _ := json.Marshal(map[string]any{
			"method": request.Method, "target": request.RequestURI, "length": length, "digest": digest,
			"fields": []string{}, "client": request.Header.Get("X-Forwarded-For"),
		})
		record.Write(append(line, '\n'))
		response.Header().Set("X-Seen", "1")
		io.WriteString(response, digest)
	})))
}
