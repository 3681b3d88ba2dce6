package kubelet_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"
)

// echo is the program that pods of the tests run: it says what it was given, and becomes
// unready or sick if asked to. It is told where its configuration is.
func echo(args []string) int {
	text, err := os.ReadFile(strings.TrimPrefix(args[0], "--config="))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var config struct {
		Webhook struct {
			BindAddress string `json:"bindAddress"`
		} `json:"webhook"`
		TokenFile string `json:"tokenFile"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var unready, sick atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/name", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, os.Getenv("POD_NAME")) })
	mux.HandleFunc("/node", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, os.Getenv("NODE_NAME")) })
	mux.HandleFunc("/args", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, args[1]) })
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, config.TokenFile) })
	mux.HandleFunc("/unready", func(http.ResponseWriter, *http.Request) { unready.Store(true) })
	mux.HandleFunc("/sick", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	for path, trouble := range map[string]*atomic.Bool{"/readyz": &unready, "/healthz": &sick} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if trouble.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: config.Webhook.BindAddress, Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	if ctx.Err() != nil {
		return 0
	}
	return 1
}
