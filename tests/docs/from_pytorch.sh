#!/usr/bin/env bash
# Compares docs/from-pytorch.md with the example that contains its lines.
set -euo pipefail
python3 tests/docs/from_pytorch_test.py
