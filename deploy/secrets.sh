#!/bin/sh
# Makes the secrets that compose.yaml and redis.acl need, once: deploy/secrets.sh [DIRECTORY]
#
# The directory, deploy/secrets where none is named, is closed to others. The files in it are
# not: the containers that they are mounted into have users of their own. TOKEND is how to run
# tokend, by its image where not set.
set -eu
tokend=${TOKEND:-docker run --rm tokend}
here=$(cd "$(dirname "$0")" && pwd)
umask 022
mkdir -m 700 "${1:-$here/secrets}" # an error where it exists: new keys would make every token that is out invalid
cd "${1:-$here/secrets}"

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
sha256() { printf %s "$1" | sha256sum | cut -c 1-64; }

redis=$(random) monitor=$(random) operator=$(random)
sed -e "s/TOKEND_PASSWORD_SHA256/$(sha256 "$redis")/" -e "s/MONITOR_PASSWORD_SHA256/$(sha256 "$monitor")/" \
  -e "s/OPERATOR_PASSWORD_SHA256/$(sha256 "$operator")/" "$here/redis.acl" > redis.acl
printf %s "$redis" > redis.password
printf %s "$operator" > redis-operator.password
printf %s "$monitor" > redis-monitor.password
printf '{"redis://monitor@redis:6379": "%s"}\n' "$monitor" > redis-exporter.json
random > grafana.password

$tokend keygen signing > signing.keys
made=$($tokend keygen service --name form-service)
printf '%s\n' "$made" | sed -n 's/^for the service: *//p' > form-service.key
printf '%s\n' "$made" | sed -n 's/^for auth.service_keys: *//p' > service.keys
test -s form-service.key && test -s service.keys
