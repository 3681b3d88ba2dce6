package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tollgate-dev/tollgate/e2e/podnetwork"
)

// probe carries out a probe until ctx ends, and tells what comes of it each time that
// enough answers are alike.
func probe(ctx context.Context, spec *corev1.Probe, ask func(context.Context) bool, tell func(ok bool)) {
	counted := tally{success: spec.SuccessThreshold, failure: spec.FailureThreshold}
	if !pause(ctx, time.Duration(spec.InitialDelaySeconds)*time.Second) {
		return
	}
	ticker := time.NewTicker(time.Duration(spec.PeriodSeconds) * time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, time.Duration(spec.TimeoutSeconds)*time.Second)
		ok := ask(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if counted.add(ok) {
			tell(ok)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// pause waits, and says whether ctx goes on.
func pause(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// asker returns the question that a probe asks.
func asker(spec *corev1.Probe, container *corev1.Container, podIP string) (func(context.Context) bool, error) {
	local, err := podnetwork.Local(podIP)
	if err != nil {
		return nil, err
	}
	switch {
	case spec.HTTPGet != nil && (spec.HTTPGet.Host == "" || spec.HTTPGet.Host == podIP):
		port, err := portNumber(spec.HTTPGet.Port, container)
		if err != nil {
			return nil, err
		}
		url := strings.ToLower(string(spec.HTTPGet.Scheme)) + "://" + net.JoinHostPort(local, port) + spec.HTTPGet.Path
		return func(ctx context.Context) bool { return answers(ctx, url, spec.HTTPGet.HTTPHeaders) }, nil
	case spec.TCPSocket != nil && spec.TCPSocket.Host == "":
		port, err := portNumber(spec.TCPSocket.Port, container)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) bool { return connects(ctx, net.JoinHostPort(local, port)) }, nil
	default:
		return nil, fmt.Errorf("container %s: a probe is neither httpGet nor tcpSocket of the pod", container.Name)
	}
}

func portNumber(port intstr.IntOrString, container *corev1.Container) (string, error) {
	if port.Type == intstr.Int {
		return strconv.Itoa(port.IntValue()), nil
	}
	for _, named := range container.Ports {
		if named.Name == port.StrVal {
			return strconv.Itoa(int(named.ContainerPort)), nil
		}
	}
	return "", fmt.Errorf("container %s: no port is named %q", container.Name, port.StrVal)
}

// answers reports whether the URL answers with success, redirections counted, as for a
// kubelet: it verifies no certificate and keeps no connection.
func answers(ctx context.Context, url string, headers []corev1.HTTPHeader) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	for _, header := range headers {
		request.Header.Add(header.Name, header.Value)
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // As kubelets do.
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusBadRequest
}

func connects(ctx context.Context, address string) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
