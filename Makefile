# Few targets; what they run, and what each step proves, is listed by
#   go run ./test/runner -list test     (or test-all, check, bench)

VERSION := $(shell git -c safe.directory='*' describe --tags --always --dirty 2>/dev/null || echo unknown)
RUN      = go build -buildvcs=false -o bin/runner ./test/runner && exec bin/runner
RESULTS := docs/results
GEN     := docs

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check build image gen bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## from nothing to two Kubernetes clusters and a web server in each (needs root)
	@bash test/demo.sh

test: ## what CI runs: unit, API-server and cluster tests (needs root; 45 minutes at most with cold caches)
	@$(RUN) $(FLAGS) test

test-all: ## everything there is, with a page of results for docs/results (needs root)
	@mkdir -p $(RESULTS)
	@$(RUN) -results $(RESULTS)/$(shell date -u +%Y%m%d)-test-all.md $(FLAGS) test-all

check: ## format, vet, lint, module files, generated files, the laws of the repository
	@$(RUN) $(FLAGS) check

build: ## compile the programs into bin/
	@mkdir -p bin
	CGO_ENABLED=0 go build -C sandbox -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)" -o ../bin/pelago-sandbox ./cmd/pelago-sandbox

image: build ## build every container image there is into the cache
	bin/pelago-sandbox build --images

gen: build ## make the generated files again
	@mkdir -p $(GEN)/cli
	bin/pelago-sandbox docs $(GEN)/cli

bench: ## measure the stated limits on this machine (needs root)
	@$(RUN) $(FLAGS) bench

clean: ## remove bin/ and out/; sandboxes are removed by bin/pelago-sandbox down, before this
	rm -rf bin out
