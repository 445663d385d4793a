#!/bin/sh
# Runs a command once, on however many hosts cron starts it, and prints what it printed:
#
#   TOKEND_URL=http://127.0.0.1:8080 TOKEND_TOKEN=… ./once.sh report:2026-11-29 make-report
#
# The key is claimed. Who gets it commits, runs the command, and completes the claim with what
# came of it, which every repeat prints and exits with, for as long as keys.retention says.
#
# Exit status: the command's, or 75 where the command was not run and may be tried later, or 70
# where somebody has to look first: a run began, and nobody knows how it ended. It is 64 where the
# arguments are wrong, and 78 where the set-up is: trying later is of no help.
set -u
[ $# -ge 2 ] || { echo "usage: TOKEND_URL=… TOKEND_TOKEN=… once.sh KEY COMMAND [ARGUMENT …]" >&2; exit 64; }
key=$1; shift
case $key in '' | *[!A-Za-z0-9._:/-]*) echo "once: the key is of A-Z a-z 0-9 . _ : / -" >&2; exit 64 ;; esac
command -v "$1" >/dev/null || { echo "once: there is no command $1" >&2; exit 64; }
[ -n "${TOKEND_URL:-}" ] || { echo "once: TOKEND_URL must be set, to http://127.0.0.1:8080 say" >&2; exit 78; }
[ -n "${TOKEND_TOKEN:-}" ] || { echo "once: TOKEND_TOKEN must be set, to a service's key" >&2; exit 78; }

# One name for this execution, the same in each try of each call.
attempt=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

# call METHOD PATH: asks tokend, with the body on standard input. curl sends the same again on a
# broken connection, a 502, 503 or 504, and waits as Retry-After says. The bearer stands in
# no process list.
call() {
	curl -sS --retry 4 --retry-all-errors --max-time 45 -X "$1" "$TOKEND_URL$2" --data-binary @- \
		-H 'Content-Type: application/json' -H @/dev/fd/3 3<<-HEADER
		Authorization: Bearer $TOKEND_TOKEN
	HEADER
}

# member NAME: what that member of the answer on standard input is: of the last one, as curl
# prints what it got before as well. tokend escapes nothing in those that are read here.
member() { grep -o "\"$1\":[^,}]*" | tail -n 1 | cut -d: -f2- | tr -d '"'; }

# not_run ANSWER: says why, and ends with what may be done about it.
not_run() {
	echo "once: $key was not run: ${1:-tokend gave no answer}" >&2
	[ "$(printf %s "$1" | member code)" = claim_unfinished ] && exit 70
	[ "$(printf %s "$1" | member next)" = fix ] && exit 78
	exit 75
}

got=$(printf '{"key":"%s","user":"cron","purpose":"job.run","attempt":"%s","wait":30}' "$key" "$attempt" | call POST /v1/claims)
case $(printf %s "$got" | member state) in
completed) # a repeat
	printf %s "$got" | member body | base64 -d
	exit "$(printf %s "$got" | member Exit-Status)" ;;
claimed) ;;
*) not_run "$got" ;;
esac

claim=/v1/claims/$(printf %s "$got" | member claim)
held=$(echo '{}' | call POST "$claim/commit")
[ "$(printf %s "$held" | member committed)" = true ] || not_run "$held"

# From here on nobody else runs it, whatever happens to this host.
out=$(mktemp) && trap 'rm -f "$out"' EXIT
"$@" >"$out"
status=$?
kept=$(printf '{"result":{"status":200,"headers":{"Exit-Status":"%d"},"body":"%s"}}' "$status" "$(base64 <"$out" | tr -d '\n')" | call PUT "$claim/result")
if [ "$(printf %s "$kept" | member state)" != completed ]; then
	echo "once: $key was run, and its result was not kept: ${kept:-tokend gave no answer}" >&2
fi
cat "$out"
exit "$status"
