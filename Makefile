# Few targets; what they run, and what each step proves, is listed by
#   go run ./test/runner -list test     (or test-all, check, bench, torture)

# A release has a tag; what lies between is the next one in the making.
VERSION := $(shell git -c safe.directory='*' describe --tags --dirty 2>/dev/null || echo v0.1.0-dev.$$(git -c safe.directory='*' describe --always --dirty 2>/dev/null || echo unknown))
RUN      = go build -buildvcs=false -o bin/runner ./test/runner && exec bin/runner
RESULTS := docs/results
GEN     := .
FLAGS_GO = -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)"
PROGRAMS = pelago pelago-manager pelago-agent
ARCHES   = amd64 arm64
IMAGE   := pelago.dev/pelago:$(VERSION)
ROOTS   := /etc/ssl/certs/ca-certificates.crt

.DEFAULT_GOAL := help
.PHONY: help demo test test-all torture check build image images gen bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## from nothing to two Kubernetes clusters that have peered (needs root)
	@$(MAKE) --no-print-directory image ARCHES="$$(go env GOARCH)"
	@bash test/demo.sh

test: ## what CI runs: unit, API-server and cluster tests (needs root; 45 minutes at most with cold caches)
	@$(RUN) $(FLAGS) test

test-all: ## everything there is, with results in docs/results/test-all.md; FLAGS="-run 'build|image|fuzz'" for some steps (needs root)
	@mkdir -p $(RESULTS)
	@$(RUN) -results $(RESULTS)/test-all.md $(FLAGS) test-all

torture: ## random life against random faults on real clusters: SEED=7 TIME=6m, or HISTORY=FILE to do the same again, with SHRINK=8 to look for less of it (needs root)
	@$(RUN) $(FLAGS) torture

check: ## format, vet, lint, module files, generated files, the laws of the repository
	@$(RUN) $(FLAGS) check

build: ## compile the programs into bin/
	@mkdir -p bin
	CGO_ENABLED=0 go build $(FLAGS_GO) -o bin/ $(addprefix ./cmd/,$(PROGRAMS))
	CGO_ENABLED=0 go build -C sandbox $(FLAGS_GO) -o ../bin/pelago-sandbox ./cmd/pelago-sandbox

image: build ## build the image of Pelago for all architectures, into bin/pelago-image.tar
	@rm -rf out/image
	@for arch in $(ARCHES); do \
		echo "compiling for linux/$$arch"; \
		mkdir -p out/image/$$arch/etc/ssl/certs && \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build $(FLAGS_GO) -o out/image/$$arch/ $(addprefix ./cmd/,$(PROGRAMS)) && \
		if [ -f $(ROOTS) ]; then cp $(ROOTS) out/image/$$arch/$(ROOTS); fi || exit 1; \
	done
	@chmod -R a+rX out/image
	bin/pelago-sandbox image pack $(IMAGE) --out bin/pelago-image.tar --entrypoint /pelago --user 65532:65532 $(foreach arch,$(ARCHES),--root $(arch)=out/image/$(arch))
	@rm -rf out/image

images: build ## build the images of the sandbox's add-ons into the cache
	bin/pelago-sandbox build --images

gen: build ## make the generated files again
	@mkdir -p $(GEN)/docs/cli
	bash deploy/generate.sh $(GEN)
	bin/pelago-sandbox docs $(GEN)/docs/cli
	bin/pelago docs $(GEN)/docs/cli

bench: ## measure the stated limits on this machine (needs root)
	@$(RUN) $(FLAGS) bench

clean: ## remove bin/ and out/; sandboxes are removed by bin/pelago-sandbox down, before this
	rm -rf bin out
