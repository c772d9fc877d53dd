#!/usr/bin/env bash
# Install what is needed into .venv and run every check: format, lint, types, import rules, all tests.
# EVALRAY_VLLM=cpu also installs vLLM's CPU build and runs its tests, which are skipped otherwise.
# Arguments, if any, replace "all tests": bash scripts/test.sh tests/scorers -k mcq
set -euo pipefail
cd "$(dirname "$0")/.."
EVALRAY_SETUP_GOES_ON=1 bash scripts/setup.sh dev
export PATH="$PWD/.venv/bin:$PATH"
ruff format --check .
ruff check .
mypy
lint-imports
# Most of the long tests wait for processes to start: two at a time take little more than half of the time.
exec python -m pytest --numprocesses 2 --dist loadfile "$@"
