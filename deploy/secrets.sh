#!/bin/sh
# Makes the secrets that compose.yaml and redis.acl need, once: deploy/secrets.sh [DIRECTORY]
#
# The directory, deploy/secrets where none is named, is closed to others. The files in it are
# not: the containers that they are mounted into have users of their own. It is there when all of
# them are, or not at all. TOKEND is how to run tokend, by its image where not set.
set -eu
tokend=${TOKEND:-docker run --rm tokend}
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/secrets}
dir=${dir%/}

fail() { echo "secrets.sh: $*" >&2; exit 1; }
absent() {
  test ! -e "$dir" || fail "$dir is there already. Keep it while tokend uses it: new keys would make every token" \
    "that is out invalid. To make all secrets anew, move it away first."
}
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
sha256() { printf %s "$1" | sha256sum | cut -c 1-64; }

absent
signing=$($tokend keygen signing) && service=$($tokend keygen service --name form-service) ||
  fail "tokend cannot be run as '$tokend'. Build its image (docker build -t tokend .), or name the program: TOKEND=/path/to/tokend"

umask 022
made=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$made"' EXIT
trap 'exit 1' HUP INT TERM
(
  cd "$made"

  redis=$(random) monitor=$(random) operator=$(random)
  sed -e "s/TOKEND_PASSWORD_SHA256/$(sha256 "$redis")/" -e "s/MONITOR_PASSWORD_SHA256/$(sha256 "$monitor")/" \
    -e "s/OPERATOR_PASSWORD_SHA256/$(sha256 "$operator")/" "$here/redis.acl" > redis.acl
  printf %s "$redis" > redis.password
  printf %s "$operator" > redis-operator.password
  printf %s "$monitor" > redis-monitor.password
  printf '{"redis://monitor@redis:6379": "%s"}\n' "$monitor" > redis-exporter.json
  random > grafana.password

  printf '%s\n' "$signing" > signing.keys
  printf '%s\n' "$service" | sed -n 's/^for the service: *//p' > form-service.key
  printf '%s\n' "$service" | sed -n 's/^for auth.service_keys: *//p' > service.keys
  for file in *; do
    test -s "$file" || fail "$file came out empty"
  done
)
absent
mv "$made" "$dir"
