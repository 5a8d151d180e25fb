#!/bin/sh
# What a worker's container does: the work pool, the deployments of prefect.yaml, then the worker itself.
set -eu
cd "$(dirname "$0")/.."
prefect work-pool create igrpo --type process --overwrite
prefect --no-prompt deploy --all --prefect-file deployments/prefect.yaml
exec prefect worker start --pool igrpo --type process --limit 1
