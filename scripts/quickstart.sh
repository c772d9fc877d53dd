#!/usr/bin/env bash
# Install what is needed into .venv and run the quick start: a real local model on two benchmarks.
# Further arguments go to `evalray run`.
set -euo pipefail
cd "$(dirname "$0")/.."
EVALRAY_SETUP_GOES_ON=1 bash scripts/setup.sh "${EVALRAY_EXTRAS:-}"
# What MFU and MBU are measured against, where no datasheet is known; kept, so that the next time is instant.
echo "Measuring what this processor achieves (some seconds, once) ..." >&2
.venv/bin/evalray hardware probe >&2 || echo "The quick start goes on without MFU and MBU." >&2
exec .venv/bin/evalray run -c configs/quickstart.toml "$@"
