// Package deploy holds what tokend is run and watched with: files for Docker Compose,
// Kubernetes and systemd, the least Redis user, Prometheus's rules and Grafana's dashboard.
// docs/operations.md says how to use them.
//
// There is no code in it but tests, which hold the files to the program: no unknown setting,
// path, port, metric or command stands in one. What needs the program running, with a real
// Prometheus beside it, is tested in e2e/program.
package deploy
