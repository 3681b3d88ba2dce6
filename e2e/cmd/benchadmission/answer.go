package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Servers that this program runs, as processes of their own, to compare Tollgate with.
const (
	// constant reads the review and writes a fixed answer, with net/http alone.
	constant = "constant"
	// bare is a webhook of controller-runtime that decodes the pod and allows it.
	bare = "bare"
)

// Paths of both.
const (
	pathReview = "/review"
	// pathCounts tells how many reviews there were and how many bytes were allocated.
	pathCounts = "/counts"
)

// Files of their certificate, in the directory that the command names.
const (
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
)

// newAnswerCommand returns the command by which this program runs itself as one of the servers.
func newAnswerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "answer SERVER PORT CERTIFICATES",
		Short:  "Answer reviews, for the program itself",
		Hidden: true,
		Args:   cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.Atoi(args[1])
			if err != nil {
				return fmt.Errorf("read port: %w", err)
			}
			if args[0] == bare {
				return answerBare(cmd.Context(), port, args[2])
			}
			return answerConstant(cmd.Context(), port, args[2])
		},
	}
}

// answerBare serves a webhook as projects with controller-runtime do.
func answerBare(ctx context.Context, port int, certificates string) error {
	server := webhook.NewServer(webhook.Options{
		Host: loopback, Port: port, CertDir: certificates, CertName: certificateFile, KeyName: keyFile,
	})
	decoder := admission.NewDecoder(scheme.Scheme)
	var count atomic.Int64
	server.Register(pathReview, &admission.Webhook{Handler: admission.HandlerFunc(
		func(_ context.Context, request admission.Request) admission.Response {
			count.Add(1)
			var pod corev1.Pod
			if err := decoder.Decode(request, &pod); err != nil {
				return admission.Errored(http.StatusBadRequest, err)
			}
			return admission.Allowed("")
		})})
	server.Register(pathCounts, counts(&count))
	return server.Start(ctx)
}

// answerConstant serves the least that a webhook can do.
func answerConstant(ctx context.Context, port int, certificates string) error {
	const answer = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"0","allowed":true}}`
	var count atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc(pathReview, func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer) // The client sees it.
	})
	mux.Handle(pathCounts, counts(&count))
	server := &http.Server{
		Addr: net.JoinHostPort(loopback, strconv.Itoa(port)), Handler: mux, ReadHeaderTimeout: time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.ListenAndServeTLS(filepath.Join(certificates, certificateFile), filepath.Join(certificates, keyFile))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// counts writes the two figures of pathCounts.
func counts(reviews *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(allocated)
		_, _ = fmt.Fprintf(w, "%d %d\n", reviews.Load(), allocated[0].Value.Uint64()) // The client sees it.
	})
}
