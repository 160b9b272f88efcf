#!/usr/bin/env bash
# docs/from-pytorch.md against the example that its lines stand in.
set -euo pipefail
python3 tests/docs/from_pytorch_test.py
