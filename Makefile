# Tollgate needs Go, git, make and a C compiler (for the race detector). All else
# is built from Go modules, at the versions pinned here and in the go.mod files. The site of the
# documentation alone needs Node.js 20 and npm (make site).

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CONTROLLER_GEN := sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
GOLANGCI_LINT_VERSION := v2.15.0
PROMETHEUS_VERSION := v0.316.0
KUBE_API_LINTER_VERSION := v0.0.0-20260716143926-092fe0c72997
GOTESTSUM := gotest.tools/gotestsum@v1.13.0
# As in kubectl 1.37.
KUSTOMIZE := sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
HELM_VERSION := v4.3.1
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
COSIGN_VERSION := v3.1.3
# As in deploy/release/go.mod.
CRANE_VERSION := v0.21.7
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
CRD_REF_DOCS_VERSION := v0.3.0
D2_VERSION := v0.7.2
AXE_VERSION := 4.14.1

GO ?= go
BIN := $(CURDIR)/bin
LINT := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
KUBE_API_LINTER := $(BIN)/kube-api-linter-$(KUBE_API_LINTER_VERSION)
HELM := $(BIN)/helm-$(HELM_VERSION)
COSIGN := $(BIN)/cosign-$(COSIGN_VERSION)
CRANE := $(BIN)/crane-$(CRANE_VERSION)
CRD_REF_DOCS := $(BIN)/crd-ref-docs-$(CRD_REF_DOCS_VERSION)
D2 := $(BIN)/d2-$(D2_VERSION)
AXE := $(BIN)/axe-$(AXE_VERSION).js
SITE := $(BIN)/site
# v0.316.0 is Prometheus 3.16.0.
PROMETHEUS := $(BIN)/prometheus-$(PROMETHEUS_VERSION)
PROMTOOL := $(BIN)/promtool-$(PROMETHEUS_VERSION)
# -w: to link a test with what debuggers read takes longer than most tests take.
PLAIN := -shuffle=on -count=1 -ldflags=-w
TEST := -race $(PLAIN)

# RACE= leaves out the race detector, as make test does: it doubles the time.
RACE ?= -race

# RETRY=1 tries an end-to-end test that fails once more, as CI does. Both outcomes are told
# in a last section.
RETRY ?=
FLAKY := $(BIN)/flaky.txt

# Every folder with a go.mod of its own.
MODULES := . e2e scheduler deploy/image deploy/release

# What make generate writes beside api and deploy.
GENERATED := docs/api.md docs/cli.md docs/metrics.md docs/diagrams

# What make soak does.
OPERATIONS ?= 1000000
SEED ?=

# How long make chaos goes on, and on how many control planes at once.
DURATION ?= 10m
PARALLEL ?= 1

# The packages of e2e that make test-e2e tries, which is what Tollgate is for; all is every one.
E2E ?= install pages envtest admission tightening eviction devices cli

# The browser of make test-dashboard, and the folder in which it writes its pictures, if it does.
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
PICTURES ?=

# How long make test-attack attacks.
ATTACK ?= 2m

# The versions of Kubernetes that make test-versions tries.
VERSIONS ?= 1.37.1 1.36.3 1.35.4 1.34.4

# What make release builds, where it publishes with PUBLISH=1, and cosign's private key. Without a
# key cosign signs as the identity that GitHub vouches for.
VERSION ?=
REGISTRY ?= ghcr.io/tollgate-dev
PUBLISH ?=
KEY ?=

# The specs of Kubernetes that make conformance runs: a part of the name of a group in
# e2e/cmd/conformance/specs.yaml; empty is all. UPDATE=1 writes the table into docs/parity.md.
SPECS ?=
UPDATE ?=

# What make cluster-up starts. K8S is one of VERSIONS; empty is the newest.
K8S ?=
NODES ?= 5
EVICTION ?= tollgate
TOLLGATE ?= 1
SCHEDULER ?=

comma := ,

# say tells what a step does before it falls silent for a while.
say = printf '==> %s\n' "$(1)"

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/tollgate, the server, and bin/kubectl-tollgate, the plugin of kubectl.
	@$(call say,building bin/tollgate and bin/kubectl-tollgate)
	@$(GO) build -o $(BIN)/ ./cmd/...

.PHONY: fetch
fetch: ## Download all Go modules at once. Builds that download as they go wait for the network most of the time.
	@$(call say,downloading Go modules (two minutes the first time))
	@for module in $(MODULES); do (cd $$module && $(GO) list -deps -test ./... >/dev/null); done

.PHONY: test
test: ## Run unit tests, then on a real control plane what Tollgate is for, without the race detector.
	@$(MAKE) --no-print-directory RACE= test-unit test-e2e

.PHONY: test-all
test-all: ## Run unit tests, then everything end to end, as CI does. Apart from that: test-attack, test-dashboard, test-image, test-monitoring, test-release, test-versions.
	@$(MAKE) --no-print-directory test-unit test-e2e E2E=all RETRY=1

.PHONY: test-unit
test-unit: ## Run the unit tests, with the race detector unless RACE= is empty.
	@$(call say,unit tests (the first build takes a few minutes))
	@$(GO) run $(GOTESTSUM) --format pkgname-and-test-fails -- $(RACE) $(PLAIN) ./...
	@$(call say,tests of the scheduler (the first build takes a few minutes))
	@cd scheduler && $(GO) run $(GOTESTSUM) --format pkgname-and-test-fails -- $(RACE) $(PLAIN) ./...
	@$(call say,tests of the release)
	@cd deploy/release && $(GO) run $(GOTESTSUM) --format pkgname-and-test-fails -- $(RACE) $(PLAIN) ./...
	@$(call say,the list of make mutations fits the source)
	@cd e2e && $(GO) test -count=1 ./cmd/mutations

.PHONY: test-image
test-image: ## Build the image for this platform in two folders, compare, and run what is in it.
	@$(call say,tests of the image (the first build takes a few minutes))
	@cd deploy/image && $(GO) run $(GOTESTSUM) --format pkgname-and-test-fails -- -shuffle=on -count=1 -timeout 1h ./...

.PHONY: test-e2e
test-e2e: helm ## Run tests on a real etcd, API server, controller manager and scheduler. E2E="safety patches", or E2E=all
	@$(call say,building Kubernetes and etcd from their Go modules (about 6 minutes the first time))
	@cd e2e && $(GO) run ./cmd/cluster build --programs
	@$(call say,tests on a real control plane: $(E2E))
	@# All are those with tests: the others are Kubernetes itself, which would be compiled
	@# once more for the race detector. Two at a time: each has a control plane of its own,
	@# and waits for it more than it works.
	@# The same schedules of faults each time; make chaos plays others.
	@cd e2e && packages="$(addprefix ./,$(E2E))" && if test "$(E2E)" = all; then \
		packages="$$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | xargs)"; fi && \
		rm -f $(FLAKY); TOLLGATE_BUILT=1 TOLLGATE_CHAOS_SEED=7000 $(GO) run $(GOTESTSUM) --format standard-verbose --packages="$$packages" \
			$(if $(RETRY),--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-report=$(FLAKY)) -- $(RACE) $(PLAIN) -p 2 -timeout 30m || failed=1; \
		if test -n "$(RETRY)"; then $(call say,flaky: end-to-end tests that failed and were tried once more); \
			if test -s $(FLAKY); then cat $(FLAKY); else echo none; fi; fi; \
		exit $${failed:-0}

.PHONY: test-monitoring
test-monitoring: $(PROMETHEUS) $(PROMTOOL) ## Test rules and dashboard with promtool, and with a Prometheus that has two real control planes.
	@$(call say,checking and testing the rules)
	@cd deploy/monitoring/rules && $(PROMTOOL) check rules --lint=all --lint-fatal tollgate.yaml && $(PROMTOOL) test rules *.test.yaml
	@$(call say,building Kubernetes and etcd from their Go modules (about 6 minutes the first time))
	@cd e2e && $(GO) run ./cmd/cluster build
	@$(call say,Prometheus scrapes two real control planes (two minutes))
	@cd e2e && TOLLGATE_PROMETHEUS=$(PROMETHEUS) TOLLGATE_PROMTOOL=$(PROMTOOL) $(GO) test $(TEST) -timeout 20m ./monitoring

.PHONY: test-dashboard
test-dashboard: $(AXE) ## Test the page of kubectl tollgate dashboard in Chromium, by keyboard and with axe. Needs npm and Chromium. PICTURES=docs/images
	@test -n "$(CHROMIUM)" || { echo "no chromium is on the PATH: install Debian's package chromium, or set CHROMIUM" >&2; exit 1; }
	@$(call say,building Kubernetes and etcd from their Go modules (about 6 minutes the first time))
	@cd e2e && $(GO) run ./cmd/cluster build --programs
	@$(call say,the dashboard in Chromium (a minute))
	@cd e2e && TOLLGATE_BUILT=1 TOLLGATE_CHROMIUM=$(CHROMIUM) TOLLGATE_AXE=$(AXE) TOLLGATE_PICTURES=$(abspath $(PICTURES)) $(GO) test -v $(TEST) -timeout 20m $(if $(PICTURES),-run TestThePage) ./dashboard

.PHONY: test-release
test-release: $(HELM) $(COSIGN) $(CRANE) ## Release a clone to a registry on this machine, and install Tollgate from what was published alone.
	@$(call say,building Kubernetes and etcd from their Go modules (about 6 minutes the first time))
	@cd e2e && $(GO) run ./cmd/cluster build --programs
	@$(call say,releasing a clone$(comma) and installing from what was published (some minutes))
	@cd e2e && TOLLGATE_BUILT=1 TOLLGATE_HELM=$(HELM) TOLLGATE_COSIGN=$(COSIGN) TOLLGATE_CRANE=$(CRANE) TOLLGATE_KUSTOMIZE="$(GO) run $(KUSTOMIZE)" \
		$(GO) test -v $(PLAIN) -timeout 1h ./release

.PHONY: test-attack
test-attack: ## Attack the port of Tollgate on a real control plane, and compare how long reviews take without that and with it; as root. ATTACK=2m
	@$(call say,building Kubernetes and etcd from their Go modules (about 6 minutes the first time))
	@cd e2e && $(GO) run ./cmd/cluster build
	@$(call say,ordinary reviews for $(ATTACK)$(comma) and then as long beside an attacker)
	@# Without the race detector: the attacker shares processors with what is measured.
	@cd e2e && TOLLGATE_ATTACK=$(ATTACK) $(GO) test -count=1 -ldflags=-w -v -timeout 2h ./attack

.PHONY: test-versions
test-versions: ## Run the tests that show what works on each version of Kubernetes. VERSIONS="1.37.1 1.36.3 1.35.4 1.34.4"
	@for version in $(VERSIONS); do \
		$(call say,building Kubernetes $$version from its Go modules (about 6 minutes the first time)); \
		(cd e2e && $(GO) run ./cmd/cluster build --kubernetes=$$version); \
		$(call say,what works on Kubernetes $$version); \
		(cd e2e && TOLLGATE_K8S=$$version $(GO) run $(GOTESTSUM) --format standard-verbose -- $(TEST) -p 1 -timeout 30m ./install ./compatibility); \
	done

.PHONY: conformance
conformance: ## Run Kubernetes' own end-to-end specs with Tollgate and without, and compare. SPECS=quota UPDATE=1
	@$(call say,Kubernetes' own specs on two control planes at once (some 40 minutes$(comma) and more to build the first time))
	@cd e2e && $(GO) run ./cmd/conformance $(if $(SPECS),--specs='$(SPECS)') $(if $(UPDATE),--update)

.PHONY: soak
soak: ## Run what takes longer: a million operations on the tracker, 10,000 policies, crashes, both evictors. OPERATIONS=1000000 SEED=
	@$(call say,$(OPERATIONS) random operations on the tracker and on its model (a few minutes))
	@TOLLGATE_MODEL_OPERATIONS=$(OPERATIONS) TOLLGATE_MODEL_SEED=$(SEED) $(GO) test -race -count=1 -v -timeout 2h -run TestModel ./tracker
	@$(call say,$(OPERATIONS) random operations on patched slices and on their model)
	@TOLLGATE_MODEL_OPERATIONS=$(OPERATIONS) TOLLGATE_MODEL_SEED=$(SEED) $(GO) test -race -count=1 -v -timeout 2h -run 'TestModelPatches$$' ./tracker/sliceview
	@$(call say,1$(comma)000 histories of a breaker and of its approvals (a few minutes))
	@TOLLGATE_BREAKER_ROUNDS=1000 TOLLGATE_BREAKER_SEED=$(SEED) $(GO) test -race -count=1 -v -timeout 2h -run 'TestJ05J06|TestJ06AnApproval' ./evictor/breaker
	@$(call say,10$(comma)000 policies on a real control plane (a few minutes))
	@cd e2e && TOLLGATE_POLICIES=10000 $(GO) test -race -count=1 -v -timeout 30m -run TestD02 ./policies
	@$(call say,a driver that publishes every second$(comma) for a minute)
	@cd e2e && TOLLGATE_REPUBLISH=60s $(GO) test -race -count=1 -v -timeout 30m -run TestTheViewDoesNotFlicker ./patches
	@$(call say,a leader that crashes again and again$(comma) under load)
	@cd e2e && TOLLGATE_REPLICAS_ROUNDS=20 $(GO) test -race -count=1 -v -timeout 30m -run TestJ09 ./replicas
	@$(call say,both evictors beside each other$(comma) until that is said)
	@cd e2e && TOLLGATE_MISFIT=1 $(GO) test -race -count=1 -v -timeout 30m ./eviction/sidebyside
	@$(call say,budgets$(comma) pace and an outage with thousands of pods)
	@cd e2e && TOLLGATE_SAFETY_PODS=5000 TOLLGATE_SAFETY_GUARDED=500 TOLLGATE_SAFETY_PENDING=2000 TOLLGATE_SAFETY_OUTAGE=60s $(GO) test -race -count=1 -v -timeout 30m ./safety

.PHONY: chaos
chaos: ## Run Tollgate under random faults for a while, and check that it does no harm. DURATION=10m SEED= PARALLEL=1
	@$(call say,building Kubernetes and etcd from their Go modules (about 6 minutes the first time))
	@cd e2e && $(GO) run ./cmd/cluster build
	@$(call say,random faults for $(DURATION) on $(PARALLEL) control planes: a violation prints its seed)
	@cd e2e && $(GO) test -race -c -o $(BIN)/chaos.test ./chaos
	@cd e2e/chaos && pids=(); for n in $$(seq $(PARALLEL)); do \
		TOLLGATE_CHAOS_PLANE=-$$n TOLLGATE_CHAOS_DURATION=$(DURATION) TOLLGATE_CHAOS_SEED=$(if $(SEED),$$(($(SEED) + (n - 1) * 100000))) \
			$(BIN)/chaos.test -test.v -test.timeout 48h -test.run TestChaos & pids+=($$!); done; \
		failed=0; for pid in $${pids[@]}; do wait $$pid || failed=1; done; exit $$failed

.PHONY: mutations
mutations: ## Play 85 seeded faults and require that a test catches each. (13 minutes)
	@$(call say,seeded faults: none of them is written to the source)
	@cd e2e && $(GO) run ./cmd/mutations

.PHONY: bench
bench: ## Run the benchmarks: admission, decisions, eviction and scheduling beside Kubernetes' own.
	@$(call say,benchmarks of admission and of decisions)
	@$(GO) test -run '^$$' -bench . -benchmem ./policy/... ./webhook/... ./evictor/... ./tracker/...
	@$(call say,admission straight over HTTPS and through the API server$(comma) beside other ways to judge pods)
	@cd e2e && $(GO) run ./cmd/benchadmission
	@$(call say,eviction beside the built-in controller on the same control plane)
	@cd e2e && $(GO) run ./cmd/bench
	@$(call say,pods with devices: the scheduler that applies patches beside Kubernetes' own$(comma) without patches)
	@cd scheduler && $(GO) test -run '^$$' -bench . -benchmem ./...
	@cd e2e && $(GO) run ./cmd/benchschedule
	@$(call say,what Tollgate uses for a pod beside 12$(comma)000)
	@cd e2e && $(GO) run ./cmd/benchpods

.PHONY: size
size: ## Print how much Go code there is, by room. cd e2e && go run ./cmd/size -h explains it
	@cd e2e && $(GO) run ./cmd/size

.PHONY: image
image: ## Build the container image into bin/image, and lists of what is in it into bin/sbom.
	@$(call say,building the image for linux/amd64 and linux/arm64 (the first time takes a few minutes))
	@cd deploy/image && $(GO) run . --root=$(CURDIR) --output=$(BIN)/image --sbom=$(BIN)/sbom

.PHONY: image-verify
image-verify: ## Build the image for all platforms again elsewhere, from nothing, and look into it.
	@$(call say,building the image twice$(comma) the second time from nothing (some minutes))
	@cd deploy/image && TOLLGATE_IMAGE_COLD=1 TOLLGATE_IMAGE_PLATFORMS=linux/amd64$(comma)linux/arm64 $(GO) test -count=1 -v -timeout 2h ./...

.PHONY: release
release: $(HELM) $(if $(PUBLISH),$(COSIGN)) ## Build a release from its tag into dist. VERSION=v0.1.0 REGISTRY=ghcr.io/tollgate-dev PUBLISH=1 KEY=cosign.key
	@cd deploy/release && $(GO) run . --root=$(CURDIR) --output=$(CURDIR)/dist --version=$(VERSION) --registry=$(REGISTRY) \
		--helm=$(HELM) --kustomize="$(GO) run $(KUSTOMIZE)" --cosign=$(COSIGN) $(if $(PUBLISH),--publish) $(if $(KEY),--key=$(abspath $(KEY)))

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in what Tollgate calls. Asks https://vuln.go.dev.
	@$(GO) run $(GOVULNCHECK) ./...

.PHONY: demo
demo: ## Watch Tollgate refuse, stamp and evict in a real Kubernetes. KEEP=1 leaves it up.
	@cd e2e && $(GO) run ./cmd/demo $(if $(filter 1,$(KEEP)),--keep)

.PHONY: cluster-up
cluster-up: ## Start a control plane with Tollgate and leave it running. NODES=5 EVICTION=tollgate|builtin|both TOLLGATE=1 SCHEDULER=tollgate|stock K8S=1.37.1|1.36.3|1.35.4|1.34.4
	@cd e2e && $(GO) run ./cmd/cluster up $(if $(K8S),--kubernetes=$(K8S)) --nodes=$(NODES) --eviction=$(EVICTION) --tollgate=$(TOLLGATE) $(if $(SCHEDULER),--scheduler=$(SCHEDULER))

.PHONY: cluster-down
cluster-down: ## End what make cluster-up started.
	@cd e2e && $(GO) run ./cmd/cluster down

.PHONY: lint
lint: lint-api lint-workflows $(LINT) ## Check the code with golangci-lint, the API with kube-api-linter, and the workflows with actionlint.
	@for module in $(MODULES); do $(call say,linting $$module); (cd $$module && $(LINT) run ./...); done

.PHONY: lint-api
lint-api: $(KUBE_API_LINTER) ## Check the API against Kubernetes' conventions.
	@$(call say,checking the API against Kubernetes' conventions)
	@$(KUBE_API_LINTER) run --config=api/kube-api-linter.yml ./api/v1alpha1/...

.PHONY: lint-workflows
lint-workflows: ## Check the workflows of GitHub with actionlint.
	@$(call say,checking the workflows)
	@$(GO) run $(ACTIONLINT) -color

.PHONY: fmt
fmt: $(LINT) ## Format the code.
	@for module in $(MODULES); do (cd $$module && $(LINT) fmt ./...); done

.PHONY: generate
generate: diagrams $(CRD_REF_DOCS) ## Generate deepcopy functions, CRDs, the chart, the reference of the API, the manuals of commands and metrics, and diagrams.
	@$(call say,generating deepcopy functions$(comma) CRDs$(comma) the chart$(comma) its table of values$(comma) docs/api.md$(comma) docs/cli.md and docs/metrics.md)
	@$(GO) run $(CONTROLLER_GEN) object paths=./api/...
	@$(GO) run $(CONTROLLER_GEN) crd paths=./api/v1alpha1/... output:crd:dir=deploy/crd
	@$(CRD_REF_DOCS) --source-path=api/v1alpha1 --config=api/crd-ref-docs.yml --renderer=markdown --output-path=docs/api.md --log-level=error
	@$(GO) test -count=1 -run TestTheManualIsAsTheCommandsAre ./cmd/kubectl-tollgate -update >/dev/null
	@$(GO) test -count=1 -run TestTheRulesForTheOperatorAreThePlainOnes ./deploy/monitoring -update >/dev/null
	@$(GO) test -count=1 -run TestTheMetricsAreDocumentedAsTheyAre ./cmd/tollgate/internal/app -update >/dev/null
	@# Last, because the chart is made of what the others write.
	@KUSTOMIZE="$(GO) run $(KUSTOMIZE)" deploy/chart/generate.sh
	@$(GO) test -count=1 -run TestTheReadMeListsTheValuesOfTheSchema ./deploy/chart -update >/dev/null

.PHONY: diagrams
diagrams: $(D2) ## Draw the diagrams of docs/diagrams from their texts.
	@$(call say,drawing docs/diagrams)
	@for text in docs/diagrams/*.d2; do $(D2) --layout=dagre --theme=0 --dark-theme=200 --pad=16 $$text $${text%.d2}.svg 2>$(BIN)/d2.log || { cat $(BIN)/d2.log; exit 1; }; done
	@chmod 644 docs/diagrams/*.svg

.PHONY: site
site: ## Build the documentation as a site with search into bin/site/dist. Needs Node.js and npm.
	@$(call say,building the site)
	@mkdir -p $(SITE) && cp -R site/. $(SITE)/
	@cd $(SITE) && npm ci --ignore-scripts --no-audit --no-fund && npm run build

.PHONY: test-site
test-site: site ## Build the site, and test its links and its search.
	@$(call say,testing the site)
	@cd $(SITE) && npm test

.PHONY: versions
versions: ## Write the go.mod files from which older versions of Kubernetes are built.
	@$(call say,writing e2e/versions)
	@cd e2e && $(GO) run ./cmd/versions

.PHONY: verify
verify: generate ## Fail if generated files or go.mod are not as they should be.
	@for module in $(MODULES); do $(call say,checking go.mod of $$module); (cd $$module && $(GO) mod tidy -diff && $(GO) mod verify >/dev/null); done
	@$(call say,checking that nothing was left to generate)
	@git diff --exit-code -- api deploy $(GENERATED) || { echo 'generated files are out of date: run make generate and commit'; exit 1; }
	@untracked=$$(git ls-files --others --exclude-standard -- api deploy $(GENERATED)); test -z "$$untracked" || { echo "not committed: $$untracked"; exit 1; }

.PHONY: helm
helm: $(HELM) ## Build bin/helm.
	@ln -sf $(notdir $<) $(BIN)/helm

.PHONY: clean
clean: cluster-down ## End the cluster and remove what was built.
	@rm -rf $(BIN) dist .cluster

$(PROMETHEUS) $(PROMTOOL): $(BIN)/%-$(PROMETHEUS_VERSION):
	@$(call say,building $* $(PROMETHEUS_VERSION) (some minutes))
	@# Service discovery of all clouds would be most of the program.
	@GOBIN=$(BIN) $(GO) install -tags remove_all_sd github.com/prometheus/prometheus/cmd/$*@$(PROMETHEUS_VERSION)
	@mv $(BIN)/$* $@

$(LINT):
	@$(call say,building golangci-lint $(GOLANGCI_LINT_VERSION) (a minute or two))
	@GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(BIN)/golangci-lint $@

$(KUBE_API_LINTER):
	@$(call say,building kube-api-linter (a minute or two))
	@GOBIN=$(BIN) $(GO) install sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter@$(KUBE_API_LINTER_VERSION)
	@mv $(BIN)/golangci-lint-kube-api-linter $@

$(HELM):
	@$(call say,building helm $(HELM_VERSION) (a few minutes))
	@rm -f $(BIN)/helm # the link to another version, through which nothing is to be written
	@GOBIN=$(BIN) $(GO) install helm.sh/helm/v4/cmd/helm@$(HELM_VERSION)
	@mv $(BIN)/helm $@

$(CRD_REF_DOCS):
	@$(call say,building crd-ref-docs $(CRD_REF_DOCS_VERSION))
	@GOBIN=$(BIN) $(GO) install github.com/elastic/crd-ref-docs@$(CRD_REF_DOCS_VERSION)
	@mv $(BIN)/crd-ref-docs $@

$(D2):
	@$(call say,building d2 $(D2_VERSION) (a minute or two))
	@GOBIN=$(BIN) $(GO) install oss.terrastruct.com/d2@$(D2_VERSION)
	@mv $(BIN)/d2 $@

$(AXE):
	@$(call say,fetching axe-core $(AXE_VERSION))
	@mkdir -p $(BIN)/axe && cd $(BIN)/axe && npm pack --silent axe-core@$(AXE_VERSION) >/dev/null && \
		tar xzf axe-core-$(AXE_VERSION).tgz package/axe.min.js && mv package/axe.min.js $@

$(COSIGN):
	@$(call say,building cosign $(COSIGN_VERSION) (some minutes))
	@GOBIN=$(BIN) $(GO) install github.com/sigstore/cosign/v3/cmd/cosign@$(COSIGN_VERSION)
	@mv $(BIN)/cosign $@

$(CRANE):
	@$(call say,building crane $(CRANE_VERSION))
	@GOBIN=$(BIN) $(GO) install github.com/google/go-containerregistry/cmd/crane@$(CRANE_VERSION)
	@mv $(BIN)/crane $@
