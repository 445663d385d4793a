// Package gateway holds the files of deploy/nginx, deploy/traefik and deploy/envoy to what they
// promise, in front of a real tokend and a little service: nginx runs; of Traefik and Envoy the
// requests are made as each of them makes them from its file.
package gateway
