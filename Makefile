# What a fresh machine needs besides Go, git and make, `make deps` installs (as root, on
# Debian or Ubuntu).

STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: test race e2e soak lint deps deps-e2e bench failover

test: deps ## the whole suite, on miniredis and on a real redis-server
	go vet ./...
	go test -parallel 16 ./...

race: deps
	go test -race -parallel 16 ./...

e2e: deps deps-e2e ## what needs more than a redis-server: the program killed and starved, databases, a cluster, gateways, a browser
	cd e2e && go vet ./... && go test -count=1 ./...

OPS ?= 1000000
FOR ?= 0s
SEED ?= 0
soak: deps ## a checked history of OPS answered calls, and of at least FOR, while all that tokend stands on breaks; SEED=0 draws one
	cd e2e && go test -count=1 -timeout 0 -v -run 'TestHistory$$' ./history -args -ops $(OPS) -for $(FOR) -seed $(SEED)

lint:
	test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet ./...
	$(STATICCHECK) ./...

bench: deps ## server CPU and throughput as ratios to a bare Echo handler, in one run
	cd e2e && go run ./bench

failover: deps ## what a failover of Redis loses, and what redis.wait_replicas costs: ten minutes a round
	cd e2e && go run ./failover -rounds $(ROUNDS)

ROUNDS ?= 1

deps:
	@command -v redis-server >/dev/null && command -v curl >/dev/null || { apt-get update -qq && \
		apt-get install -y -qq redis-server redis-tools curl; }
	@redis-server --version

# RUNLEVEL keeps the packages' own services from starting: each test starts its own.
deps-e2e:
	@command -v mariadbd >/dev/null && command -v psql >/dev/null && command -v nginx >/dev/null && \
		command -v promtool >/dev/null && command -v prometheus-redis-exporter >/dev/null && command -v systemd-analyze >/dev/null && command -v chromium >/dev/null && fc-list 2>/dev/null | grep -q CJK || { apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends \
		mariadb-server postgresql nginx-light prometheus prometheus-redis-exporter systemd chromium fonts-noto-cjk fontconfig; }
