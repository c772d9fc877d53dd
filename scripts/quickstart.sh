#!/usr/bin/env bash
# Install what is needed into .venv and run the quick start: a real local model on two benchmarks.
# Further arguments go to `evalray run`.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "Installing into .venv (a few minutes the first time) ..." >&2
bash scripts/setup.sh "${EVALRAY_EXTRAS:-}"
exec .venv/bin/evalray run -c configs/quickstart.toml "$@"
